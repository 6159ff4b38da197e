"""How functions of the language are written in the language itself: `library` and `constexpr_function`."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from tilewright.base.callable import BlockFunction, P
from tilewright.ops.values import constexpr, tensor, unwrap


class LibraryFunction(BlockFunction, Generic[P]):
    """A block function that ships with the language; bound to a tensor when it is read from one."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


@overload
def library(fn: Callable[P, Any], *, method: bool = ...) -> LibraryFunction[P]: ...
@overload
def library(fn: None = None, *, method: bool = ...) -> Callable[[Callable[P, Any]], LibraryFunction[P]]: ...
def library(fn: Callable[..., Any] | None = None, *, method: bool = False) -> Any:
    """Make a block function of the language.

    Args:
        fn: its source.
        method: also available as ``x.name(...)`` on tensors.
    """
    if fn is None:
        return functools.partial(library, method=method)
    made = LibraryFunction(fn)
    if method:
        setattr(tensor, fn.__name__, made)
    return made


_F = TypeVar("_F", bound=Callable[..., Any])


def host_and_kernel(fn: _F) -> _F:
    """Let kernels call `fn` on compile-time values; on the host it stays a plain function that can be traced."""
    fn.is_constexpr_function = True  # type: ignore[attr-defined]
    return fn


class ConstexprFunction(Generic[P]):
    """A Python function that kernels call on compile-time values.

    Args:
        fn: the function; it sees plain Python values.
    """

    is_constexpr_function = True
    digest_of: ClassVar[Callable[[Any], tuple[str, str]]]  # `frontend/content.py` puts it here

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)

    @property
    def src(self) -> str:
        """Source text from the `def` on, without decorators and indentation.

        Raises:
            OSError: the function does not come from a file.
        """
        text = textwrap.dedent(inspect.getsource(self.fn))
        found = re.search(r"^(async )?def\s", text, re.MULTILINE)
        return text[found.start() :] if found else text

    @property
    def cache_key(self) -> str:
        """Hash of its code and of what it reads."""
        return type(self).digest_of(self)[0]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """On the host: the function itself; its result is wrapped only if an argument was."""
        wrapped = any(isinstance(value, constexpr) for value in (*args, *kwargs.values()))
        result = self.fn(*(unwrap(a) for a in args), **{k: unwrap(v) for k, v in kwargs.items()})
        return constexpr(result) if wrapped else result

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = functools.partial(self, instance)
        bound.is_constexpr_function = True  # type: ignore[attr-defined]
        return bound


def constexpr_function(fn: Callable[P, Any]) -> ConstexprFunction[P]:
    """Let kernels call a Python function on compile-time values; its result is a compile-time value.

    Example:
        >>> @tl.constexpr_function
        ... def half(n):
        ...     return n // 2
        >>> half(8)
        4
    """
    return ConstexprFunction(fn)
