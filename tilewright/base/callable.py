"""A function written in the block language, before anything is compiled.

The front end reads its source and the runtime launches it; both build on this record,
and library functions of `language/` are nothing more than it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec

from tilewright.base.errors import OutsideKernelError
from tilewright.base.naming import name_at_home

if TYPE_CHECKING:
    from typing_extensions import ParamSpec as ParamSpecWithDefault

    P = ParamSpecWithDefault("P", default=...)
else:
    P = ParamSpec("P")
"""Parameters of a function, in classes whose objects are called like one: `Builtin[P]`; without brackets, any."""

_numbers = itertools.count()
_numbered: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def give_number(thing: Any) -> str:
    """A number for a kernel or function: what a tracer can guard on, as no two objects of a process share one.

    It is text, because tracers take integers for sizes that may change.
    """
    number = f"#{next(_numbers)}"
    _numbered[number] = thing
    return number


def by_number(number: str) -> Any:
    """The kernel or function with this number; KeyError if it is gone."""
    return _numbered[number]


def take_back(number: str) -> None:
    """Forget what could not be made after all: whoever asks for all of them gets only whole ones."""
    _numbered.pop(number, None)


def every_block_function() -> list[BlockFunction]:
    """All that there are in this process."""
    return [thing for thing in list(_numbered.values()) if isinstance(thing, BlockFunction)]


class BlockFunction:
    """A Python function whose body is block-language source.

    Args:
        fn: the Python function.
        noinline: keep a call to it as a call in the IR.

    Attributes:
        number: tells it from every other kernel and function of the process.
    """

    def __init__(self, fn: Callable[..., Any], *, noinline: bool = False) -> None:
        self.fn = fn
        self.noinline = noinline
        functools.update_wrapper(self, fn)
        self.number = give_number(self)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Outside a kernel there is nothing to run; the eager interpreter calls `fn` itself."""
        return call_outside_kernel(self, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Itself, as functions of Python are theirs: copies of constants that hold it mean the same kernel."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__module__}:{name_at_home(self)})"


Run = Callable[[BlockFunction, tuple[Any, ...], dict[str, Any]], Any]
_runners: list[Run] = []


@contextlib.contextmanager
def block_functions_run_by(run: Run) -> Iterator[None]:
    """Inside, calling a block function as Python calls ``run(fn, args, kwargs)``: how the interpreter gets them."""
    _runners.append(run)
    try:
        yield
    finally:
        _runners.pop()


def are_block_functions_run() -> bool:
    """Whether an interpreter is running them."""
    return bool(_runners)


def outside(name: str) -> OutsideKernelError:
    """The error of a call of a function of the language where no kernel runs."""
    hint = "call it in a function that is decorated with @tilewright.jit and launched, function[grid](...)"
    if name in ("cdiv", "next_power_of_2"):
        hint = f"outside of kernels write tilewright.{name}(...)"
    return OutsideKernelError(f"tl.{name} can be called only inside a @jit kernel", hint=hint)


def call_outside_kernel(fn: BlockFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `fn` through the interpreter that is active, or explain that none is."""
    if _runners:
        return _runners[-1](fn, args, kwargs)
    if fn.fn.__globals__.get("__name__", "").startswith("tilewright.language."):
        raise outside(fn.fn.__name__)
    raise OutsideKernelError(
        f"Cannot call @jit'd function {fn.fn.__qualname__} outside of the scope of a kernel",
        hint=f"launch it as {fn.fn.__name__}[grid](...)",
    )
