"""Kernel values that hold several tensors: taking tuples and records apart and putting them together again.

Operations carry tensors only. A value that crosses a block boundary is split into its tensors
(`leaves`), and rebuilt around new ones (`rebuild`); what is not a tensor stays as it is. Records are
instances of dataclasses and aggregates, and dictionaries.
"""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.base.dtypes import BlockType, Type
from tilewright.frontend.records import record_fields
from tilewright.ops.constant import ConstantOp
from tilewright.ops.values import constexpr, tensor
from tilewright.ops.values import tuple as tile_tuple


def parts_of(value: Any) -> Sequence[Any] | None:
    """What a tuple or record is made of; `None` for other values."""
    if isinstance(value, builtins.tuple):
        return value
    if isinstance(value, (tensor, constexpr)):
        return None
    if isinstance(value, dict):
        return list(value.values())
    fields = record_fields(type(value))
    return None if fields is None else [getattr(value, name) for name in fields]


def remake(like: Any, parts: Sequence[Any]) -> Any:
    """A tuple or record of the class of `like` (a named tuple keeps its fields) of `parts`."""
    if isinstance(like, builtins.tuple):
        make = getattr(type(like), "_make", None)
        return tile_tuple(parts) if make is None else make(parts)
    if isinstance(like, dict):
        return dict(zip(like, parts, strict=True))
    made = copy.copy(like)
    for name, part in zip(record_fields(type(like)) or (), parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def is_alike(a: Any, b: Any) -> bool:
    """Whether two tuples or records have the same class and names, and as many parts."""
    if type(a) is not type(b):
        return False
    return list(a) == list(b) if isinstance(a, dict) else len(parts_of(a) or ()) == len(parts_of(b) or ())


def leaves(value: Any) -> list[tensor]:
    """The tensors in a value, in order."""
    if isinstance(value, tensor):
        return [value]
    parts = parts_of(value)
    return [] if parts is None else [leaf for part in parts for leaf in leaves(part)]


def rebuild(value: Any, tensors: Iterator[tensor]) -> Any:
    """`value` with its tensors replaced, in order, by the next ones of `tensors`."""
    if isinstance(value, tensor):
        return next(tensors)
    parts = parts_of(value)
    return value if parts is None else remake(value, [rebuild(part, tensors) for part in parts])


def name_leaves(value: Any, name: str) -> None:
    """Let the tensors in a value that have no name yet carry `name` in the text of the IR; constants are shared."""
    if name.isascii():
        for leaf in leaves(value):
            handle: Any = leaf.handle
            if handle.name_hint is None and not isinstance(handle.owner, ConstantOp):
                handle.name_hint = name


def map_leaves(value: Any, fn: Callable[[Any], Any]) -> Any:
    """`value` with `fn` applied to everything in it that is no tuple or record."""
    parts = parts_of(value)
    return fn(value) if parts is None else remake(value, [map_leaves(part, fn) for part in parts])


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
    parts, others = parts_of(a), parts_of(b)
    if parts is not None and others is not None:
        return is_alike(a, b) and all(is_same(x, y) for x, y in zip(parts, others, strict=True))
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
    fields = None if isinstance(value, type) else record_fields(type(value))
    if fields is not None and not isinstance(value, constexpr):
        return f"{type(value).__name__}({', '.join(f'{n}: {type_text(getattr(value, n))}' for n in fields)})"
    return repr(value) if isinstance(value, (constexpr, Type)) else f"{type(value).__name__} {value!r}"


def shaped_text(value: Any) -> str:
    """As :func:`type_text`, but a scalar tensor shows its empty shape: ``int32[]``."""
    if isinstance(value, tensor) and not isinstance(value.type, BlockType):
        return f"{value.type}[]"
    return type_text(value)
