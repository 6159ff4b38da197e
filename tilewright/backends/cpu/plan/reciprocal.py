"""Division by a value that a whole row shares becomes one division and a multiplication per lane.

    x / splat(s)                 ->  x * splat(1 / s)
    x / broadcast(t)             ->  x * broadcast(1 / t)        t has fewer elements than x

A vector division costs ten times a multiplication. The quotient may differ from the correctly rounded one by 1.5 units
in the last place, and overflows where 1 / s does (|s| < 2^-128); `/` of the block language promises no more (Triton
compiles it to `div.full.f32`, two units), and `tl.div_rn` stays exact. Only f32: other types divide in f32 and round.
"""

from __future__ import annotations

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.cpu.plan.subjects import RECIPROCAL
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name, scalar_type, shape_of
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.elementwise import DivFOp, MulFOp
from tilewright.ops.function import FuncOp
from tilewright.passes.rewriting import insert_before, replace


def divide_rows_once(function: FuncOp, decisions: Decisions) -> None:
    """Rewrite the divisions of the tiles of a function, in place."""
    made: dict[SSAValue, SSAValue] = {}
    for op in list(walk(function)):
        if isinstance(op, DivFOp) and shape_of(op.results[0].type):
            repeat = decisions.note(RECIPROCAL, op, _repeated(op))
            if repeat is not None:
                _rewrite(op, repeat, made)


def _repeated(op: Operation) -> Answer[Operation]:
    """The operation that repeats the divisor, if there is one and the quotient need not be exact."""
    element, divisor = element_type(op.results[0].type), op.operands[1].owner
    if element != scalar_type("f32"):
        return No(f"only f32 is divided so, this is {ir_name(element)}")
    if not isinstance(divisor, (SplatOp, BroadcastOp)):
        cause = divisor if isinstance(divisor, Operation) else None
        return No("the divisor is not known to be the same along a row", cause, "x / s[:, None], s being one per row")
    return Yes(divisor, "one division, then a multiplication for each element")


def _rewrite(op: Operation, repeat: Operation, made: dict[SSAValue, SSAValue]) -> None:
    """Multiply by the repeated reciprocal, which is made where the divisor is."""
    repeated = repeat.results[0]
    if repeated not in made:
        made[repeated] = _repeated_reciprocal(repeat)
    product = MulFOp.create(operands=[op.operands[0], made[repeated]], result_types=[op.results[0].type])
    insert_before(product, op)
    replace(op, [product.results[0]])


def _repeated_reciprocal(repeat: Operation) -> SSAValue:
    """`repeat` of one over its operand, in front of `repeat`; through `expand_dims`, to divide as few as there are."""
    source = repeat.operands[0]
    inner = source.owner
    if isinstance(inner, ExpandDimsOp):
        again = inner.clone()
        again.operands[0] = _one_over(inner.operands[0], inner)
        insert_before(again, inner)
        source = again.results[0]
    else:
        source = _one_over(source, repeat)
    wide = repeat.clone()
    wide.operands[0] = source
    insert_before(wide, repeat)
    return wide.results[0]


def _one_over(value: SSAValue, place: Operation) -> SSAValue:
    type_: Attribute = value.type
    one = ConstantOp.of(1.0, type_)
    quotient = DivFOp.create(operands=[one.results[0], value], result_types=[type_])
    insert_before(one, place)
    insert_before(quotient, place)
    return quotient.results[0]
