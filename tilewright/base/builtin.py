"""A function that the language has built in, and the emitter of the kernel that is being interpreted.

What it does to operations is defined in `ops/`, on an emitter (`ops/builtin.py`); an object of this class can be held,
hashed and asked for its signature without them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from tilewright.base.callable import P, outside
from tilewright.base.naming import package
from tilewright.base.target import Target


class Builtin(Generic[P]):
    """A function of the language.

    Args:
        fn: implementation; its first parameter is the emitter.
        method: also available as ``x.name(...)`` on tensors.
    """

    __name__: str
    only_returns = False
    """Whether a call whose result nobody uses is surely a mistake, of which the compiler warns."""

    def __init__(self, fn: Callable[..., Any], *, method: bool = False) -> None:
        self.fn = fn
        self.method = method
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """What users write: without the emitter. Made when asked for, as importing the language is to be quick."""
        signature = inspect.signature(self.fn)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        """What may be passed: `_semantic` too, by functions of the language that others write and mark as such."""
        parameters = list(self.signature.parameters.values())
        hidden = inspect.Parameter("_semantic", inspect.Parameter.KEYWORD_ONLY, default=None)
        at = len(parameters) - (bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
        return self.signature.replace(parameters=[*parameters[:at], hidden, *parameters[at:]])

    if TYPE_CHECKING:  # what users write: without the emitter

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    else:

        def __call__(self, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
            """Run on the emitter that is given, by default on that of the kernel being interpreted."""
            if _semantic is not None:
                return self.fn(_semantic, *args, **kwargs)
            return active_emitter(self.__name__).invoke(self, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<{package()}.language.{self.__name__}>"


_ACTIVE: list[Any] = []


def push_emitter(emitter: Any) -> None:
    """Make `emitter` answer direct calls of builtins (interpreter mode)."""
    _ACTIVE.append(emitter)


def pop_emitter() -> None:
    """Undo the last :func:`push_emitter`."""
    _ACTIVE.pop()


def active_emitter(name: str) -> Any:
    """The emitter of the kernel being interpreted."""
    if not _ACTIVE:
        raise outside(name)
    return _ACTIVE[-1]


def active_target() -> Target | None:
    """Target of the kernel being interpreted; None outside of kernels."""
    target: Target | None = _ACTIVE[-1].target if _ACTIVE else None
    return target


def is_interpreting() -> bool:
    """Whether a kernel is being run as Python."""
    return bool(_ACTIVE)


_on_host: list[Callable[[], Target | None]] = [lambda: None]


def answer_on_host_by(target: Callable[[], Target | None]) -> None:
    """Have questions about the target that are asked outside of kernels answered for what a function gives."""
    _on_host[0] = target


def target_on_host() -> Target | None:
    """The target that such questions are about: that of the active driver."""
    return _on_host[0]()
