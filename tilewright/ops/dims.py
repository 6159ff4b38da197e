"""Which dims of its tiles an operation goes through together, named as the letters of an einsum.

arith.addf           ab, ab     -> ab
tt.trans             ab         -> ba
tt.expand_dims       a          -> ab
tt.reduce            ab         -> a       elements meet along b
tt.dot               ac, cb, ab -> ab      elements meet along c
tt.broadcast         ac         -> ab      of one element along c
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.ir.types import shape_of
from tilewright.ir.values import operands_of, property_int

Names = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dims:
    """The names of the dims of all tiles of an operation, numbers in place of letters.

    An element of a result is made of the elements of operands that have its coordinates in the dims of its names.

    Args:
        operands, results: for each of them the names of its dims; a scalar has none.
        met: names along which elements are combined, or need those before them.
    """

    operands: tuple[Names, ...]
    results: tuple[Names, ...]
    met: frozenset[int] = field(default=frozenset())

    def named(self, op: Operation) -> Iterator[tuple[SSAValue, Names]]:
        """The operands and results of the operation, each with the names of its dims."""
        yield from zip((*operands_of(op), *op.results), (*self.operands, *self.results), strict=True)


def lanewise(op: Operation) -> Dims:
    """Of an operation whose tiles have one shape and whose elements are made of those at the same place."""
    return Dims(_names(operands_of(op)), _names(op.results))


def along(op: Operation, *, reduces: bool) -> Dims:
    """Of an operation on tiles of one shape whose elements meet along its `axis`.

    Args:
        op: the operation.
        reduces: whether its results are without that dim.
    """
    axis, operands = property_int(op, "axis"), _names(operands_of(op))
    names = tuple([name for name in operands[0] if name != axis]) if reduces else operands[0]
    return Dims(operands, (names,) * len(op.results), frozenset((axis,)))


def made(op: Operation) -> Dims:
    """Of an operation that makes tiles of scalars, or of nothing."""
    return Dims(((),) * len(operands_of(op)), _names(op.results))


def _names(values: Sequence[SSAValue]) -> tuple[Names, ...]:
    return tuple([tuple(range(len(shape_of(value.type)))) for value in values])
