"""Narrowed dots: products of 8-bit floats that were widened before multiply the 8-bit floats.

    %x = fp_to_fp %a : f8 -> f16        %y = fp_to_fp %b : f8 -> f32
    tt.dot (%x, trans %y, ..)                                         ->   tt.dot (%a, trans %b, ..)

Every type of 16 bits or more holds them, and their products, exactly. A product of f32 takes four times as long as one
of bf16, to which they are widened where they are packed (`dot.py`).
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.ir.types import element_type, ir_name, with_element
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.ops.casts import ExtFOp, FpToFpOp
from tilewright.ops.control import FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.shape import TransOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import value_before


def narrow_dots(function: FuncOp) -> bool:
    """Rewrite all such products of a function; says whether there was one."""
    changed = False
    for dot in every(function, DotOp):
        chains = [_narrow(value) for value in dot.operands[:2]]
        if all(chains) and any(ir_name(element_type(value.type)) in ("f16", "f32") for value in dot.operands[:2]):
            for number, chain in enumerate(chains):
                dot.operands[number] = _transposed(chain, dot)
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _narrow(value: SSAValue) -> list[SSAValue]:
    """A value and what it is made of, each in the next: wider floats, transposed, last an 8-bit float; or nothing."""
    chain = [value]
    while not ir_name(element_type(value.type)).startswith("f8"):
        op = defining_op(value)
        if not isinstance(op, ExtFOp | FpToFpOp | TransOp):
            return []
        value = op.operands[0]
        chain.append(value)
    return chain


def _transposed(chain: list[SSAValue], anchor: Operation) -> SSAValue:
    """The number at the end of a chain, transposed as the chain does it."""
    *steps, value = chain
    kind = element_type(value.type)
    for step in reversed(steps):
        op = defining_op(step)
        if isinstance(op, TransOp):
            types = [with_element(step.type, kind)]
            value = value_before(TransOp.create(operands=[value], result_types=types, properties=op.properties), anchor)
    return value
