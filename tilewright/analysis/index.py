"""Where in a tile: an index gives each dim of a value a coordinate built from loop variables and lanes.

A coordinate is a tuple of bit fields `(src, lo, width, pos)`: bits `lo .. lo+width` of a loop variable (or of the
lane number, or of a constant) placed at bit `pos`. Fields of one coordinate never overlap, so transposition, join,
split and most reshapes (`keeps_bits`; all of them between powers of two) only move fields; nothing is computed for
them. The empty coordinate is zero. Indices are hashable and are the keys under which evaluated values are remembered.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

LANE = -1
CONST = -2


class Field(NamedTuple):
    """`((source >> lo) & (2**width - 1)) << pos`; `src` is a loop number, `LANE`, or `CONST` (`lo` is the value)."""

    src: int
    lo: int
    width: int
    pos: int


Coord = tuple[Field, ...]
Index = tuple[Coord, ...]
ZERO: Coord = ()


def is_power_of_two(n: int) -> bool:
    """Whether `n` is 1, 2, 4, ..."""
    return n > 0 and n & (n - 1) == 0


def bits_of(extent: int) -> int:
    """Bits of a coordinate that runs below `extent`."""
    return (extent - 1).bit_length()


@functools.cache
def whole(src: int, extent: int) -> Coord:
    """The coordinate that is loop variable `src` itself."""
    if extent == 1:
        return ZERO
    return (Field(src, 0, bits_of(extent), 0),)


def constant(value: int) -> Coord:
    """The coordinate that is always `value`."""
    return () if value == 0 else (Field(CONST, value, value.bit_length(), 0),)


def shifted(coord: Coord, by: int) -> Coord:
    """`coord << by`."""
    return tuple([Field(src, lo, width, pos + by) for src, lo, width, pos in coord]) if by else coord


@functools.cache
def cut(coord: Coord, lo: int, width: int) -> Coord:
    """Bits `lo .. lo+width` of a coordinate, moved down to bit 0."""
    out = []
    for field in coord:
        first, last = max(field.pos, lo), min(field.pos + field.width, lo + width)
        if first >= last:
            continue
        skip = first - field.pos
        if field.src == CONST:
            value = (field.lo >> skip) & ((1 << (last - first)) - 1)
            if value:
                out.append(Field(CONST, value, last - first, first - lo))
        else:
            out.append(Field(field.src, field.lo + skip, last - first, first - lo))
    return tuple(out)


@functools.cache
def normal(coord: Coord) -> Coord:
    """Fields in ascending position, neighbours from one source merged, so that equal coordinates compare equal."""
    out: list[Field] = []
    for field in sorted(coord, key=lambda f: f.pos):
        last = out[-1] if out else None
        joined = (
            last is not None
            and last.src == field.src != CONST
            and last.lo + last.width == field.lo
            and last.pos + last.width == field.pos
        )
        if joined and last is not None:
            out[-1] = Field(last.src, last.lo, last.width + field.width, last.pos)
        else:
            out.append(field)
    return tuple(out)


_Stride = TypeVar("_Stride")


def joined(strides: dict[Coord, _Stride], goes_on: Callable[[_Stride, _Stride, int], bool]) -> dict[Coord, _Stride]:
    """A sum of coordinates by strides, where one coordinate goes on behind the bits of another, as one of both.

    Of 1024 elements in parts of 128, the place `(i >> 7) * 128 + (i & 127)` is `i`.

    Args:
        strides: of each coordinate.
        goes_on: whether a large stride is a small one, doubled so often: ``goes_on(small, large, doublings)``.
    """
    ends = {(part.src, part.lo + part.width): (coord, part) for coord in strides for part in coord if part.src != CONST}
    for high in strides:
        for first in high:
            low, last = ends.get((first.src, first.lo), (high, first))
            by = last.pos + last.width - first.pos
            if low is high or any(part.pos + part.width > by for part in low):
                continue
            both = normal((*low, *shifted(high, by)))
            if both not in strides and goes_on(strides[low], strides[high], by):
                rest = {coord: stride for coord, stride in strides.items() if coord not in (low, high)}
                return joined({**rest, both: strides[low]}, goes_on)
    return strides


@functools.cache
def _runs(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Dims of `source` and of `target` in the shortest runs of equal size; dims of one element are in none."""
    left, right = ([d for d, n in enumerate(shape) if n > 1] for shape in (source, target))
    out: list[tuple[list[int], list[int]]] = []
    while left:
        from_, to = [left.pop(0)], [right.pop(0)]
        while (have := math.prod([source[d] for d in from_])) != (want := math.prod([target[d] for d in to])):
            if have < want:
                from_.append(left.pop(0))
            else:
                to.append(right.pop(0))
        out.append((from_, to))
    return out


@functools.cache
def keeps_bits(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a reshape only moves bits of coordinates, so that `reshape` applies.

    Row-major order numbers elements in mixed radix. That is a sequence of bits as long as every extent but the first is
    a power of two, in each run of dims by itself: 3x32 -> 96 and 5x4x7 -> 5x2x2x7 move bits, 32x3 -> 96 does not.
    """
    return all(
        len(from_) == len(to) == 1
        or all(is_power_of_two(n) for n in (*(source[d] for d in from_[1:]), *(target[d] for d in to[1:])))
        for from_, to in _runs(source, target)
    )


@functools.cache
def reshape(index: Index, source: tuple[int, ...], target: tuple[int, ...]) -> Index:
    """The index in a tile of shape `source` of the element that `index` names in its reshape to `target`."""
    out = [ZERO] * len(source)
    for from_, to in _runs(source, target):
        flat: list[Field] = []
        position = 0
        for dim in reversed(to):
            flat.extend(shifted(index[dim], position))
            position += bits_of(target[dim])
        position = 0
        for dim in reversed(from_):
            out[dim] = normal(cut(tuple(flat), position, bits_of(source[dim])))
            position += bits_of(source[dim])
    return tuple(out)


@functools.cache
def pattern(coord: Coord, lanes: int) -> tuple[int, ...] | None:
    """The part of a coordinate that varies over the lanes, per lane; None when no part does."""
    fields = [field for field in coord if field.src == LANE]
    if not fields:
        return None
    return tuple(sum(((lane >> f.lo) & ((1 << f.width) - 1)) << f.pos for f in fields) for lane in range(lanes))


@functools.cache
def base_fields(coord: Coord) -> Coord:
    """The part of a coordinate that is the same for all lanes."""
    return tuple([field for field in coord if field.src != LANE])


def greatest(coord: Coord) -> int:
    """A number that no value of a coordinate exceeds."""
    return sum((field.lo if field.src == CONST else (1 << field.width) - 1) << field.pos for field in coord)


@functools.cache
def sources(index: Index) -> frozenset[int]:
    """Loop numbers and `LANE` on which an index depends."""
    return frozenset([field.src for coord in index for field in coord if field.src != CONST])


def identity(shape: Sequence[int]) -> Index:
    """The index whose loop variable number d is coordinate d."""
    return tuple([whole(d, n) for d, n in enumerate(shape)])
