"""How functions of the language are written in the language itself: `library` and `constexpr_function`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tilewright.base.callable import BlockFunction
from tilewright.ops.values import constexpr, tensor, unwrap


class LibraryFunction(BlockFunction):
    """A block function that ships with the language; bound to a tensor when it is read from one."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


@overload
def library(fn: Callable[..., Any], *, method: bool = ...) -> LibraryFunction: ...
@overload
def library(fn: None = None, *, method: bool = ...) -> Callable[[Callable[..., Any]], LibraryFunction]: ...
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


class ConstexprFunction:
    """A Python function that kernels call on compile-time values.

    Args:
        fn: the function; it sees plain Python values.
    """

    is_constexpr_function = True

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
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


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction:
    """Let kernels call a Python function on compile-time values; its result is a compile-time value.

    Example:
        >>> @tl.constexpr_function
        ... def half(n):
        ...     return n // 2
        >>> half(8)
        4
    """
    return ConstexprFunction(fn)
