"""Kernel values that hold several tensors: taking tuples apart and putting them together again.

Operations carry tensors only. A value that crosses a block boundary is split into its tensors
(`leaves`), and rebuilt around new ones (`rebuild`); what is not a tensor stays as it is.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.base.dtypes import BlockType, Type
from tilewright.ops.constant import ConstantOp
from tilewright.ops.values import constexpr, tensor
from tilewright.ops.values import tuple as tile_tuple


def leaves(value: Any) -> list[tensor]:
    """The tensors in a value, in order."""
    if isinstance(value, tensor):
        return [value]
    if isinstance(value, builtins.tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return []


def rebuild(value: Any, tensors: Iterator[tensor]) -> Any:
    """`value` with its tensors replaced, in order, by the next ones of `tensors`."""
    if isinstance(value, tensor):
        return next(tensors)
    if isinstance(value, builtins.tuple):
        return remake(value, [rebuild(part, tensors) for part in value])
    return value


def remake(like: builtins.tuple[Any, ...], parts: Sequence[Any]) -> Any:
    """A tuple of the class of `like` (a named tuple keeps its fields) of `parts`."""
    make = getattr(type(like), "_make", None)
    return tile_tuple(parts) if make is None else make(parts)


def name_leaves(value: Any, name: str) -> None:
    """Let the tensors in a value that have no name yet carry `name` in the text of the IR; constants are shared."""
    if name.isascii():
        for leaf in leaves(value):
            handle: Any = leaf.handle
            if handle.name_hint is None and not isinstance(handle.owner, ConstantOp):
                handle.name_hint = name


def map_leaves(value: Any, fn: Callable[[Any], Any]) -> Any:
    """`value` with `fn` applied to everything in it that is not a tuple."""
    if isinstance(value, builtins.tuple):
        return remake(value, [map_leaves(part, fn) for part in value])
    return fn(value)


def same_constant(a: Any, b: Any) -> bool:
    """Whether two compile-time values are the same, type included (1, 1.0 and True differ)."""
    if a is b:
        return True
    if isinstance(a, constexpr) and isinstance(b, constexpr):
        a, b = a.value, b.value
    if type(a) is not type(b):
        return False
    try:
        return bool(a == b)
    except Exception:  # values without an equality are different
        return False


def is_same(a: Any, b: Any) -> bool:
    """Whether two values are the same without looking at run time: equal constants, identical tensors."""
    if a is b:
        return True
    if isinstance(a, tensor) or isinstance(b, tensor):
        return isinstance(a, tensor) and isinstance(b, tensor) and a.handle is b.handle and a.type == b.type
    if isinstance(a, builtins.tuple) and isinstance(b, builtins.tuple):
        return type(a) is type(b) and len(a) == len(b) and all(is_same(x, y) for x, y in zip(a, b, strict=True))
    return same_constant(a, b)


def is_static(value: Any) -> bool:
    """Whether no tensor is in the value."""
    return not leaves(value)


def type_text(value: Any) -> str:
    """How a message names the type of a value: ``fp32[128, 64]``, ``int32``, ``constexpr[1]``, ``(int32, fp32)``."""
    if isinstance(value, tensor):
        return str(value.type)
    if isinstance(value, builtins.tuple):
        return f"({', '.join(type_text(part) for part in value)})"
    return repr(value) if isinstance(value, (constexpr, Type)) else f"{type(value).__name__} {value!r}"


def shaped_text(value: Any) -> str:
    """As :func:`type_text`, but a scalar tensor shows its empty shape: ``int32[]``."""
    if isinstance(value, tensor) and not isinstance(value.type, BlockType):
        return f"{value.type}[]"
    return type_text(value)
