"""What tiles, indices and block sizes are while a kernel runs as a reference, and which reference runs."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import torch

LOCAL = threading.local()


def running() -> Any:
    """The `Reference` of this thread's run, or None."""
    return getattr(LOCAL, "reference", None)


class RefIndex(int):
    """An index of a loop, or one made of it: one beyond a tensor reads 0 and writes nothing, a negative one too."""


def _made_of(operation: Callable[[int, int], int], swapped: bool) -> Callable[[RefIndex, Any], Any]:
    def method(self: RefIndex, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        pair = (int(other), int(self)) if swapped else (int(self), int(other))
        return RefIndex(operation(*pair))

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"):
    setattr(RefIndex, f"__{_name.rstrip('_')}__", _made_of(getattr(operator, _name), False))
    setattr(RefIndex, f"__r{_name.rstrip('_')}__", _made_of(getattr(operator, _name), True))


class RefBlock(int):
    """A block size, or a multiple or part of one.

    Args:
        size: all lanes.
        valid: those that the tile has: fewer in one that is cut.
    """

    valid: int

    def __new__(cls, size: int, valid: int) -> RefBlock:
        self = int.__new__(cls, size)
        self.valid = valid
        if (reference := running()) is not None and size != valid:
            reference.cut.add((size, valid))
        return self

    def __floordiv__(self, other: Any) -> Any:
        return RefBlock(int(self) // other, self.valid // other) if type(other) is int else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, RefBlock):
            return RefBlock(int(self) * int(other), self.valid * other.valid)
        return RefBlock(int(self) * other, self.valid * other) if type(other) is int else NotImplemented

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, RefIndex) else int.__add__(self, other)

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, RefIndex) else int.__sub__(self, other)


class RefTile(int):
    """A part of a range: an `int` that is its length, as functions that take sizes want.

    Args:
        begin: first index.
        end: index behind the last.
        block: size of the tiles of the range.
        range: first index and end of the range.
        offset: added to the indices.
    """

    begin: int
    end: int
    block_size: RefBlock
    range: tuple[int, int]
    offset: int

    def __new__(cls, begin: int, end: int, block: int, range: tuple[int, int], offset: int = 0) -> RefTile:
        self = int.__new__(cls, end - begin)
        self.begin, self.end, self.block_size, self.range = (
            RefIndex(begin + offset),
            RefIndex(end + offset),
            RefBlock(block, end - begin),
            range,
        )
        self.offset = offset
        return self

    @property
    def index(self) -> Any:
        """The indices."""
        return torch.arange(self.begin, self.end, dtype=torch.int32)

    @property
    def first(self) -> int:
        """The first index, without what was added."""
        return self.begin - self.offset

    @property
    def id(self) -> int:
        """Number of the tile in its range."""
        return (self.first - self.range[0]) // self.block_size

    @property
    def count(self) -> int:
        """How many tiles the range has."""
        return -(-(self.range[1] - self.range[0]) // self.block_size)

    def __add__(self, other: Any) -> Any:
        moved = self.offset + int(other)
        return RefTile(self.first, self.end - self.offset, self.block_size, self.range, moved)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -int(other)
