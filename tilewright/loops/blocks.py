"""Loops in normal form: a new one through blocks of a range, and what stands in old ones beside what it replaces."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis import affine
from tilewright.base.decision import No
from tilewright.ir.decisions import describe_op
from tilewright.ir.types import i64
from tilewright.loops.lowering import Matrix, Scalars
from tilewright.loops.nest import Range
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import DivSIOp
from tilewright.passes.dce import is_removable
from tilewright.passes.trip_count import Preheader


@dataclass(frozen=True, slots=True)
class Blocks:
    """A range that a loop goes through in blocks.

    Args:
        extent: of the range.
        size: of a block.
        count: how many blocks the range is, if it is a number of them; else the last one ends early.
    """

    extent: affine.Poly
    size: int
    count: affine.Poly | None

    @staticmethod
    def of(range_: Range, size: int, scalars: Scalars) -> Blocks | None:
        """None if the extent is no scalar in front of the loop."""
        extent, divided = scalars.poly(range_.extent), range_.extent.divided(size)
        count = None if divided is None else scalars.poly(divided)
        return None if extent is None else Blocks(extent, size, count)

    @property
    def limit(self) -> affine.Poly | None:
        """The end that elements of the last block may pass; None if all blocks are whole."""
        return self.extent if self.count is None else None

    def loop(self, firsts: Sequence[SSAValue], matrices: Iterable[Matrix], place: Operation) -> ForOp:
        """A loop in front of an operation that hands on what it carries, for loads of matrices to be put into it.

        Args:
            firsts: what is carried into the first iteration.
            matrices: of which a block is loaded in each iteration, from `at` on.
            place: the operation.
        """
        preheader = Preheader(place, i64)
        if self.count is not None:
            count = preheader.sum(self.count)
        else:
            count = preheader.apply(DivSIOp, preheader.sum(self.extent + affine.Poly.of(self.size - 1)), self.size)
        loop = preheader.loop([preheader.known(0), count, preheader.known(1)], firsts)
        for matrix in matrices:
            matrix.hoist(loop)
        return loop

    def at(self, loop: ForOp) -> affine.Poly:
        """Where the block of an iteration begins."""
        return affine.Poly.of(self.size) * affine.Poly.atom(loop.induction_var)


def beside(
    loop: ForOp, own: Collection[Operation], what: str, regions: tuple[type[Operation], ...] = (), most: int = 1
) -> No | None:
    """What a loop does beside operations of its own; None if it is nothing.

    Args:
        loop: the loop.
        own: what a loop in normal form stands for.
        what: text for that.
        regions: operations whose regions do nothing.
        most: of these it is for.
    """
    for op in loop.body.block.ops:
        if op in own or op is loop.body.block.last_op:
            continue
        if (op.regions and not isinstance(op, regions)) or not is_removable(op) or "isVolatile" in op.properties:
            return No(f"the loop also has {describe_op(op)}", op, "it outside of the loop")
    if len([result for result in loop.results if result.first_use is not None]) > most:
        return No(f"the loop carries more than {what}", loop)
    return None
