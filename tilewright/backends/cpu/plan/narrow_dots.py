"""Narrowed dots: what loses nothing in front of a dot is left to where its operands are packed.

    %x = extf %a : f16 -> f32        %y = fp_to_fp %b : f8 -> f16        tt.dot (%x, ..)  ->  tt.dot (%a, ..)

Products of the narrow numbers are those of the wide ones, and their sums are of the same type. Fewer bytes are read,
operands in memory stay there, and a target may have instructions for the narrow type. bf16 instructions take subnormal
numbers for zero: what is widened from bf16 stays where they would multiply it.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot import ELEM, thin_vectors
from tilewright.backends.cpu.plan.dot_step import dot_plan
from tilewright.backends.cpu.plan.subjects import NARROWED
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name, with_element
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.ops.casts import is_exact
from tilewright.ops.control import FuncOp
from tilewright.ops.dot import DotOp, accumulators
from tilewright.ops.shape import TransOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code

_Chain = list[SSAValue]


def narrow_dots(function: FuncOp, isa: CpuFeatures, decisions: Decisions) -> bool:
    """Rewrite all such products of a function; says whether there was one."""
    changed = False
    for dot in every(function, DotOp):
        chains = [_widened(value) for value in dot.operands[:2]]
        if any(len(chain) > 1 for chain in chains):
            chains = decisions.note(NARROWED, dot, _narrow(dot, chains, isa)) or []
            for number, chain in enumerate(chains):
                dot.operands[number] = _transposed(chain, dot)
            changed |= bool(chains)
    if changed:
        eliminate_dead_code(function)
    return changed


def _widened(value: SSAValue) -> _Chain:
    """A value and what it is made of by exact conversions and transpositions, each in the next, last a narrower one."""
    chain, length = [value], 1
    while (op := defining_op(chain[-1])) is not None and (is_exact(op) or isinstance(op, TransOp)):
        chain.append(op.operands[0])
        length = len(chain) if is_exact(op) else length
    return chain[:length]


def _narrow(dot: DotOp, chains: list[_Chain], isa: CpuFeatures) -> Answer[list[_Chain]]:
    """Whether a dot of the ends of both chains is the same, and no wider."""
    a, b = kinds = [ir_name(element_type(chain[-1].type)) for chain in chains]
    if a != b and not (a.startswith("f8") and b.startswith("f8")):
        return No(f"its operands are {a} and {b} before they are widened, and no dot multiplies these")
    if ir_name(element_type(dot.d.type)) not in accumulators(element_type(chains[0][-1].type)):
        return No(f"dots of {a} add up in another type", dot)
    wide, narrow = dot_plan(isa, dot), dot_plan(isa, dot, kinds)
    if "bf16" in kinds and narrow.operand == "bf16" != wide.operand:
        return No("instructions for bf16 take subnormal numbers for zero")
    if ELEM[narrow.operand].bytes > ELEM[wide.operand].bytes:
        return No(f"{a} would be multiplied as {narrow.operand}, which is wider")
    if narrow.thin and thin_vectors(narrow, isa) * narrow.lanes * ELEM[b].bytes < tuning.THIN_BYTES:
        return No(f"few rows read {b} where it lies, too few of its columns at once")
    return Yes(chains, f"{a} and {b} are widened where they are packed")


def _transposed(chain: _Chain, anchor: Operation) -> SSAValue:
    """The number at the end of a chain, transposed as the chain does it."""
    *steps, value = chain
    kind = element_type(value.type)
    for step in reversed(steps):
        op = defining_op(step)
        if isinstance(op, TransOp):
            value = Builder(anchor).again(op, with_element(step.type, kind), value)
    return value
