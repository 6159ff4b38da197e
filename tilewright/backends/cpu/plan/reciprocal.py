"""Division by a value that a whole row shares becomes one division and a multiplication per lane.

    x / splat(s)            ->  by_row(x, splat(s), splat(r), splat(larger))           r = 1 / s, larger = max(|s|, |r|)
    x / broadcast(s)        ->  by_row(x, broadcast(s), broadcast(r), ...)             s has fewer elements than x
    by_row(x, s, r, larger)  =  if larger <= 2^126 { x * r } else { x / s }

A vector division costs ten times a multiplication. The quotient may differ from the correctly rounded one by 1.5 units
in the last place; `/` of the block language promises no more (Triton compiles it to `div.full.f32`, two units), and
`tl.div_rn` stays exact. Where 1 / s would overflow or lose digits, and for zero, infinity and NaN, lanes are divided:
the test is made once per row, and processors foresee the branch. Only f32: other types divide in f32 and round.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from tilewright.backends.cpu.plan.subjects import RECIPROCAL
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.op import TileOp
from tilewright.ir.traits import Lanewise
from tilewright.ir.types import element_type, i1, ir_name, scalar_type, shape_of, tile_type, with_element
from tilewright.ir.walk import every
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.elementwise import AbsFOp, CmpFOp, DivFOp
from tilewright.ops.function import FuncOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace

LARGEST = 2.0**126  # where neither a number nor its reciprocal is larger, both are normal


@irdl_op_definition
class DivideByRowOp(TileOp):
    """Quotient of a tile and a repeated divisor; also takes its reciprocal, and the size of the larger of the two."""

    name = "cpu.divf_by_row"
    x = operand_def()
    divisor = operand_def()
    once = operand_def()
    larger = operand_def()
    result = result_def()
    traits = traits_def(Pure(), Lanewise())


def divide_rows_once(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite the divisions of the tiles of a function, in place; says whether there was one to rewrite."""
    made: dict[SSAValue, Sequence[SSAValue]] = {}
    for op in every(function, DivFOp):
        if shape_of(op.results[0].type):
            repeat = decisions.note(RECIPROCAL, op, _repeated(op))
            if repeat is not None:
                _rewrite(op, repeat, made)
    return bool(made)


def _repeated(op: Operation) -> Answer[Operation]:
    """The operation that repeats the divisor, if there is one and the quotient need not be exact."""
    element, divisor = element_type(op.results[0].type), op.operands[1].owner
    if element != scalar_type("f32"):
        return No(f"only f32 is divided so, this is {ir_name(element)}")
    if not isinstance(divisor, (SplatOp, BroadcastOp)):
        cause = divisor if isinstance(divisor, Operation) else None
        return No("the divisor is not known to be the same along a row", cause, "x / s[:, None], s being one per row")
    return Yes(divisor, "one division, then a multiplication for each element")


def _rewrite(op: Operation, repeat: Operation, made: dict[SSAValue, Sequence[SSAValue]]) -> None:
    """Take the repeated reciprocal, which is made where the divisor is."""
    repeated = repeat.results[0]
    if repeated not in made:
        inner = repeat.operands[0].owner
        way = [inner, repeat] if isinstance(inner, ExpandDimsOp) else [repeat]  # to divide as few as there are
        divisor, b = way[0].operands[0], Builder(way[0])
        once = b.op(DivFOp, b.number(1.0, divisor.type), divisor)
        made[repeated] = [_along(way, value) for value in (once, _larger(b, divisor, once))]
    replace(op, [Builder(op).make(DivideByRowOp, op.results[0].type, *op.operands, *made[repeated])])


def _along(way: Sequence[Operation], value: SSAValue) -> SSAValue:
    """What a value becomes by operations that repeat it, in front of the last."""
    for op in way:
        value = Builder(way[-1]).again(op, tile_type(shape_of(op.results[0].type), element_type(value.type)), value)
    return value


def _larger(b: Builder, divisor: SSAValue, once: SSAValue) -> SSAValue:
    """The size of a divisor or of its reciprocal: up to `LARGEST` both are normal numbers."""
    one, other = (b.op(AbsFOp, value) for value in (divisor, once))
    return b.choose(b.make(CmpFOp, with_element(one.type, i1), one, other, predicate="ogt"), one, other)
