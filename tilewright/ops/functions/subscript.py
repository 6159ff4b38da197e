"""Subscripts of tiles: ``x[i]``, ``x[a:b:s]``, ``x[..., None]``, and ``x[a:b] = v``, with numpy's meaning.

An index selects along each dimension by a first element, a count and a step known at compile time, or by one
run-time integer. Whole dimensions cost nothing, others a `tt.gather`; an assignment is a select between the old tile
and the new part, moved to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base import dtypes
from tilewright.base.errors import LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ops.broadcast import broadcast_to_shape, expand_axis, splat_to
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.casts import cast_to
from tilewright.ops.creation import arange
from tilewright.ops.functions.operators import (
    add,
    and_,
    equal,
    floordiv,
    greater_equal,
    less_than,
    mod,
    mul,
    sub,
    where,
)
from tilewright.ops.functions.shape import expand_dims, reshape_to
from tilewright.ops.gather import gather
from tilewright.ops.values import tensor, unwrap

_GATHER = "only constants, `:`, `...`, None and scalar integers index a tile; select by a tile with tl.gather"


@dataclass(frozen=True, slots=True)
class _Part:
    """What an index selects along one dimension of a tile.

    Args:
        size: elements of the dimension.
        start: first element; a tensor if it is known at run time only.
        count: number of elements.
        step: distance of two elements.
        dropped: whether the dimension vanishes.
    """

    size: int
    start: Any
    count: int
    step: int = 1
    dropped: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it selects the whole dimension in order."""
        return not isinstance(self.start, tensor) and (self.start, self.count, self.step) == (0, self.size, 1)


@dataclass(frozen=True, slots=True)
class _Index:
    """An index of a tile.

    Args:
        parts: one for each dimension of the tile.
        result: for each dimension of the result the number of its part, or `None` for a new one.
    """

    parts: tuple[_Part, ...]
    result: tuple[int | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(1 if part is None else self.parts[part].count for part in self.result)


def _index_text(item: Any) -> str:
    if isinstance(item, slice):
        parts = ["" if p is None else _index_text(p) for p in (item.start, item.stop, item.step)]
        return f"slice {':'.join(parts)}"
    return str(item.type) if isinstance(item, tensor) else repr(item)


def _parse(b: Emitter, value: tensor, index: Any) -> _Index:
    items = [unwrap(item) for item in (index if isinstance(index, tuple) else (index,))]
    sizes, rank = value.block_shape, len(value.block_shape)
    given = sum(item is not None and item is not ... for item in items)
    if given > rank:
        raise LanguageValueError(
            f"too many indices: {given} for a tensor of type {value.type} with {rank} dimensions",
            hint="write tl.load(pointer + index)" if value.dtype.is_ptr() else None,
        )
    if sum(item is ... for item in items) > 1:
        raise LanguageValueError("an index can only have a single ellipsis ('...')")
    if ... not in items:
        items.append(...)
    parts: list[_Part] = []
    result: list[int | None] = []
    for item in items:
        if item is ...:
            whole = [_Part(n, 0, n) for n in sizes[len(parts) : len(parts) + rank - given]]
            result += range(len(parts), len(parts) + len(whole))
            parts += whole
        elif item is None:
            result.append(None)
        else:
            part = _part(b, item, sizes[len(parts)], len(parts))
            if not part.dropped:
                result.append(len(parts))
            parts.append(part)
    return _Index(tuple(parts), tuple(result))


def _part(b: Emitter, item: Any, size: int, axis: int) -> _Part:
    """What one item of an index selects along a dimension of `size` elements.

    Raises:
        LanguageTypeError: neither an integer nor a slice.
        LanguageValueError: out of range, or nothing is selected.
    """
    if isinstance(item, slice):
        return _sliced(item, size, axis)
    if isinstance(item, tensor):
        if item.block_shape or not item.dtype.is_int() or item.dtype == dtypes.int1:
            raise LanguageTypeError(f"unsupported tensor index: {item.type}", hint=_GATHER)
        if not item.dtype.is_int_unsigned():  # counted from the end, as in Python
            item = where.fn(b, less_than.fn(b, item, 0), add.fn(b, item, size, False), item)
        return _Part(size, item, 1, dropped=True)
    if not isinstance(item, int) or isinstance(item, bool):
        raise LanguageTypeError(f"unsupported tensor index: {_index_text(item)}", hint=_GATHER)
    if not -size <= item < size:
        raise LanguageValueError(f"index {item} is out of bounds for dimension {axis} with size {size}")
    return _Part(size, item % size, 1, dropped=True)


def _sliced(item: slice, size: int, axis: int) -> _Part:
    bounds = [unwrap(p) for p in (item.start, item.stop, item.step)]
    if not all(p is None or (isinstance(p, int) and not isinstance(p, bool)) for p in bounds):
        raise LanguageTypeError(
            f"unsupported tensor index: {_index_text(slice(*bounds))}, whose bounds are not compile-time integers",
            hint="the shape of a tile is fixed at compile time: use tl.gather(x, start + tl.arange(0, N), axis)",
        )
    if bounds[2] == 0:
        raise LanguageValueError("slice step cannot be zero")
    positions = range(*slice(*bounds).indices(size))
    if not positions:
        raise LanguageValueError(
            f"{_index_text(slice(*bounds))} selects nothing of dimension {axis} with size {size}",
            hint="a tile has at least one element",
        )
    step = positions.step if len(positions) > 1 else 1
    return _Part(size, positions[0], len(positions), step)


def _along(b: Emitter, shape: Sequence[int], axis: int, line: tensor) -> tensor:
    """A tile of one dimension as one of `shape` that changes along `axis` only."""
    for number in range(len(shape)):
        if number != axis:
            line = expand_axis(b, line, number)
    return broadcast_to_shape(b, line, shape)


def _line(b: Emitter, part: _Part) -> tensor:
    """Positions of the selected elements in their dimension."""
    if isinstance(part.start, tensor):
        return splat_to(b, part.start, (1,))
    if part.step == 1:
        made: tensor = arange.fn(b, part.start, part.start + part.count)
        return made
    scaled = mul.fn(b, arange.fn(b, 0, part.count), part.step, False)
    result: tensor = add.fn(b, scaled, part.start, False)
    return result


def _select(b: Emitter, value: tensor, axis: int, part: _Part) -> tensor:
    if part.is_whole:
        return value
    shape = (*value.block_shape[:axis], part.count, *value.block_shape[axis + 1 :])
    selected: tensor = gather.fn(b, value, _along(b, shape, axis, _line(b, part)), axis)
    return selected


@builtin(export=False)
def subscript(b: Emitter, value: tensor, index: Any) -> tensor:
    """``x[index]`` as in numpy: integers, slices, ``...``, None for a new dimension of size 1, and run-time scalars.

    Args:
        value: tile.
        index: one item, or a tuple of them. Bounds of slices are compile-time integers; a run-time integer outside of
            the dimension gives an undefined value.

    Raises:
        LanguageValueError: more items than dimensions, a constant out of bounds, an empty slice.
        LanguageTypeError: another kind of item.
    """
    parsed = _parse(b, value, index)
    smallest_first = sorted(
        range(len(parsed.parts)), key=lambda axis: parsed.parts[axis].count - parsed.parts[axis].size
    )
    for axis in smallest_first:
        value = _select(b, value, axis, parsed.parts[axis])
    kept = tuple(part.count for part in parsed.parts if not part.dropped)
    if kept != value.block_shape:
        value = reshape_to(b, value, kept)
    for position, number in enumerate(parsed.result):
        if number is None:
            value = expand_dims.fn(b, value, position)
    return value


# --- assignment ----------------------------------------------------------------------------------------------------


def _fitted(b: Emitter, new: tensor, index: _Index, old: tensor) -> tensor:
    """The assigned value with the rank of the tile, each dimension 1 or as selected."""
    shape = new.block_shape
    while len(shape) > len(index.shape) and shape[0] == 1:
        shape = shape[1:]
    padded = (1,) * (len(index.shape) - len(shape)) + shape
    if len(padded) > len(index.shape) or any(n not in (1, m) for n, m in zip(padded, index.shape, strict=True)):
        raise ShapeError(
            f"a value of shape {list(new.block_shape)} does not fit into a part of shape {list(index.shape)} "
            f"of a tensor of type {old.type}"
        )
    dims = [1] * len(index.parts)
    for size, number in zip(padded, index.result, strict=True):
        if number is not None:
            dims[number] = size
    return reshape_to(b, new, dims)


def _spread(b: Emitter, new: tensor, axis: int, part: _Part) -> tuple[tensor, tensor | None]:
    """`new` moved to its place along `axis`, and where that is."""
    place = arange.fn(b, 0, part.size)
    if isinstance(part.start, tensor):
        return new, equal.fn(b, place, part.start)
    forward = part.step > 0
    first = part.start if forward else part.start + (part.count - 1) * part.step
    step = abs(part.step)
    offset = sub.fn(b, place, first, False) if first else place
    inside: tensor | None = None
    if first:
        inside = greater_equal.fn(b, place, first)
    if first + part.count * step < part.size:
        below = less_than.fn(b, place, first + part.count * step)
        inside = below if inside is None else and_.fn(b, inside, below)
    if step > 1:
        hit = equal.fn(b, mod.fn(b, offset, step), 0)
        inside = hit if inside is None else and_.fn(b, inside, hit)
    if new.block_shape[axis] == 1:
        return new, inside
    source = floordiv.fn(b, offset, step) if step > 1 else offset
    if not forward:
        source = sub.fn(b, part.count - 1, source, False)
    if inside is not None:
        source = where.fn(b, inside, source, 0)
    shape = (*new.block_shape[:axis], part.size, *new.block_shape[axis + 1 :])
    return gather.fn(b, new, _along(b, shape, axis, source), axis), inside


@builtin(export=False)
def with_item(b: Emitter, value: tensor, index: Any, new: Any) -> tensor:
    """`value` with ``value[index]`` replaced by `new`, which is converted to its type and broadcast.

    Raises:
        ShapeError: `new` does not fit.
        LanguageTypeError: a pointer tile, or as for :func:`subscript`.
    """
    if not value.block_shape:
        raise LanguageTypeError(
            f"a scalar of type {value.type} has no elements to assign",
            hint="write tl.store(pointer + index, value)" if value.dtype.is_ptr() else None,
        )
    parsed = _parse(b, value, index)
    part_of = _fitted(b, cast_to(b, to_tensor(b, new), value.dtype), parsed, value)
    mask: tensor | None = None
    for axis, part in enumerate(parsed.parts):
        if part.is_whole:
            continue
        part_of, here = _spread(b, part_of, axis, part)
        if here is not None:
            here = _along(b, value.block_shape, axis, here)
            mask = here if mask is None else and_.fn(b, mask, here)
    full = broadcast_to_shape(b, part_of, value.block_shape)
    result: tensor = full if mask is None else where.fn(b, mask, full, value)
    return result


setattr(tensor, "__getitem__", lambda self, index: subscript(self, index))  # noqa: B010  (for the interpreter)
