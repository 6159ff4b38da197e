"""What the loops of a kernel iterate: ranges, and the tiles that they yield."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.symbols import Sym, minimum, same
from tilewright.hl.trace.state import device_trace


def _no_number(self: Tile, *others: Any) -> Any:
    raise exc.IncorrectTileUsage(
        f"{self!r} is used as a number",
        hint="write tile.index for its indices, tile.begin for the first, tile.block_size for its size",
    )


class Tile(int):
    """The part of a range that one pass over a loop's body works on.

    As a subscript it means its indices; given to a function that takes sizes, its size, for which PyTorch's parser of
    arguments wants an `int`. `tile + 3` are the indices moved by 3. It is no number otherwise.

    Args:
        axis: the range.
        offset: added to its indices.
    """

    axis: Axis
    offset: Any

    def __new__(cls, axis: Axis, offset: Any = 0) -> Tile:
        self = int.__new__(cls, axis.prime)
        self.axis, self.offset = axis, offset
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tile) and self.axis is other.axis and same(self.offset, other.offset)

    __hash__ = int.__hash__
    __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _no_number
    __truediv__ = __rtruediv__ = __rsub__ = __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _no_number
    __divmod__ = __rdivmod__ = __invert__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_number
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __trunc__ = __floor__ = __ceil__ = _no_number
    bit_length = bit_count = as_integer_ratio = conjugate = __round__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = _no_number

    @property
    def index(self) -> Any:
        """The indices, one dimension of int32 unless the range needs more; for the tile of a `grid` the index."""
        trace = device_trace("tile.index")
        with trace.silence():
            indices = torch.arange(self.axis.prime, dtype=torch.int64 if self.axis.wide else torch.int32, device="cpu")
        made = trace.record("tile_index", (self.axis.id,), indices)
        return made if type(self.offset) is int and self.offset == 0 else made + self.offset

    @property
    def begin(self) -> Any:
        """The first index."""
        return Sym.of(self.axis.offset) + self.offset

    @property
    def end(self) -> Any:
        """The index behind the last; of the last tile the end of the range."""
        _, end = device_trace("tile.end").bounds[self.axis.id]
        behind = Sym.of(self.axis.offset) + self.block_size
        if isinstance(end, torch.Tensor):
            return torch.minimum(end, torch.zeros((), dtype=end.dtype) + behind) + self.offset
        return minimum(behind, end) + self.offset

    @property
    def block_size(self) -> Any:
        """How many indices a tile has; the last one may have fewer valid ones."""
        return self.axis.prime if self.axis.is_even or self.axis.prime == 1 else Sym.of(self.axis.size)

    @property
    def id(self) -> Any:
        """Number of the tile in its range."""
        begin, _ = device_trace("tile.id").bounds[self.axis.id]
        return (Sym.of(self.axis.offset) - begin) // self.block_size

    @property
    def count(self) -> Any:
        """How many tiles the range has."""
        begin, end = device_trace("tile.count").bounds[self.axis.id]
        return (end - begin + self.block_size - 1) // self.block_size

    def __add__(self, offset: Any) -> Tile:
        return Tile(self.axis, self.offset + offset)

    __radd__ = __add__

    def __sub__(self, offset: Any) -> Tile:
        return Tile(self.axis, self.offset - offset)

    def __repr__(self) -> str:
        return self.axis.name if type(self.offset) is int and self.offset == 0 else f"{self.axis.name} + {self.offset}"


@dataclass(frozen=True)
class Dividing:
    """In the place of a block size: the configuration chooses one that divides another, so tiles lie in tiles of that.

    Args:
        size: the other one, a power of two.
    """

    size: int


_OWN_FRAMES = frozenset(("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"))  # of a kernel's text


@dataclass(frozen=True)
class Range:
    """What `hl.tile`, `hl.grid` and `hl.jagged_tile` return: the bounds of one loop or several.

    Args:
        kind: "tile", "grid" or "jagged".
        begin: first indices, one per range.
        end: indices behind the last.
        block: block sizes; None, or `Dividing`, where the configuration chooses.
        several: whether the loop variable is a sequence.
        places: (first index, step) of each range of a grid whose loop counts its passes; empty where it counts indices.
        backward: whether the last pass comes first.
    """

    kind: str
    begin: tuple[Any, ...]
    end: tuple[Any, ...]
    block: tuple[Any, ...]
    several: bool
    places: tuple[tuple[Any, Any], ...] = ()
    backward: bool = False

    def __reversed__(self) -> Range:
        return replace(self, backward=not self.backward)

    def __iter__(self) -> Iterator[Any]:
        if sys._getframe(1).f_code.co_name not in _OWN_FRAMES:
            raise exc.NotAllowedInHelperFunction(
                f"a loop over hl.{self.kind} in a function that the kernel calls",
                hint="write the loop in the kernel itself, and call the function in its body",
            )
        raise exc.LoopFunctionNotInFor(
            f"hl.{self.kind} makes a loop and must be what a `for` iterates",
            hint=f"write `for tile in hl.{self.kind}(...):` in the kernel itself",
        )
