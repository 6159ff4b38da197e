"""Loops in normal form: a new one through blocks of a range, and what stands in old ones beside what it replaces."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.analysis import affine
from tilewright.base.decision import No
from tilewright.ir.decisions import describe_op
from tilewright.ir.types import i64
from tilewright.ops.control import ForOp, YieldOp
from tilewright.ops.elementwise import DivSIOp
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import insert_before
from tilewright.passes.trip_count import Preheader


def loop_through(
    extent: affine.Poly, size: int, blocks: affine.Poly | None, firsts: Sequence[SSAValue], place: Operation
) -> ForOp:
    """A loop in front of an operation that hands on what it carries, for something to be put into it.

    Args:
        extent: of the range.
        size: of a block.
        blocks: how many blocks the range is, if it is a number of them; else the last one ends early.
        firsts: what is carried into the first iteration.
        place: the operation.
    """
    preheader = Preheader(place, i64)
    if blocks is not None:
        count = preheader.sum(blocks)
    else:
        count = preheader.apply(DivSIOp, preheader.sum(extent + affine.Poly.of(size - 1)), size)
    kinds = [first.type for first in firsts]
    body = Block(arg_types=[i64, *kinds])
    body.add_op(YieldOp.create(operands=body.args[1:]))
    loop = ForOp.create(
        operands=[preheader.known(0), count, preheader.known(1), *firsts],
        result_types=kinds,
        regions=[Region(body)],
    )
    insert_before(loop, place)
    return loop


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
