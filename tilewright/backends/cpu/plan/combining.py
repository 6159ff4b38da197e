"""Which atomic sums are combined: elements of one address are summed before memory is touched.

A window of sums stands for the addresses behind the operation's pointer. Where nothing else in the kernel can tell, a
thread keeps the window over all programs that it runs, and its size grows with their number; else it is that of one
tile. `emit/combined.py` has the code that runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly
from tilewright.analysis.index import identity
from tilewright.analysis.origins import may_meet
from tilewright.analysis.uniform import is_invariant
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.steps import Buffer
from tilewright.base.assumptions import UNORDERED_PROGRAMS, holds
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.effect_traits import access_of
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.ir.values import defining_op
from tilewright.ir.walk import walk
from tilewright.ops.atomic import AtomicRMWOp, adds
from tilewright.ops.function import CallOp, FuncOp


@dataclass(eq=False, slots=True)
class Combining:
    """How an atomic sum is combined.

    Args:
        op: the sum.
        base, offset: where its window begins: a scalar pointer and bytes.
        elements: of its tile.
        span: addresses that it has, where all programs have the same; None where they are looked up.
        kept: memory of the window, if it is kept over the programs of a thread.
    """

    op: AtomicRMWOp
    base: SSAValue
    offset: Poly
    elements: int
    span: int | None = None
    kept: Buffer | None = None

    @property
    def size(self) -> int:
        """Addresses of the window of one tile."""
        return min(tuning.COMBINING_WINDOW, (1 << (self.elements.bit_length() - 1)) // tuning.COMBINING_SHARE)


def plan_combining(op: Operation, analysis: AffineAnalysis) -> Answer[Combining]:
    """Whether the elements of an atomic are summed by address first, and how long the sums are kept."""
    if not isinstance(op, AtomicRMWOp) or not adds(op):
        return No("it is no sum")
    if op.results[0].uses:
        return No("the old values are read")
    if bit_width(element_type(op.results[0].type)) < 32:
        return No("sums of partial sums would round more often")
    pointer = op.operands[0]
    form = analysis.pointer(pointer, identity(shape_of(pointer.type)))
    if form.base is None:
        return No("the addresses do not begin at one pointer")
    count = math.prod(shape_of(pointer.type))
    made = Combining(op, form.base, form.offset.constant, count)
    by_itself = not form.offset.residual and bool(form.offset.coords)
    if by_itself:
        made.span = _span(form.offset, bit_width(element_type(op.results[0].type)) // 8)
        if made.span is None:
            return No("the elements have addresses of their own")
    elif count < tuning.COMBINED_ELEMENTS:
        return No(f"there are fewer than {tuning.COMBINED_ELEMENTS} elements", instead="a larger block")
    if _told_by_nobody(op, form.base, form.offset.constant):
        size = tuning.KEPT_SUMS_BYTES
        made.kept = Buffer((size,), "i8", (1,), size)
        return Yes(made, "those of the first addresses, before memory is touched, over all programs of a thread")
    if by_itself:
        return No("the elements have addresses of their own")
    return Yes(made, f"those of the first {made.size} addresses, before memory is touched")


def _span(offset: Form, size: int) -> int | None:
    """Elements of `size` bytes between the first address and the last, if every program has the same; None else."""
    last = 0
    for coord, stride in offset.coords.items():
        step = stride.constant
        if step is None or step < 0:
            return None
        last += step * sum(((1 << field.width) - 1) << field.pos for field in coord)
    return last // size + 1


def _told_by_nobody(op: AtomicRMWOp, base: SSAValue, offset: Poly) -> bool:
    """Whether nothing in the kernel can tell that a sum is made when a thread has run its programs.

    The window must begin at one place for all of them, known before the first; nothing but other sums may look there.
    """
    function = FuncOp.around(op)
    if not function.is_kernel or not holds(UNORDERED_PROGRAMS):
        return False
    first = function.body.blocks[0]
    if not all(_is_of(first, value) for value in (base, *offset.atoms())):
        return False
    for other in walk(function):
        access = access_of(other)
        if isinstance(other, CallOp):
            return False
        if access is None or other is op or _is_unread_sum(other):
            continue
        if may_meet(op.operands[0], other.operands[0]):
            return False
    return True


def _is_of(block: Block, value: SSAValue) -> bool:
    """Whether a scalar is computed in a block, the first one, from what all programs share."""
    op = defining_op(value)
    return is_invariant(value) and (value.owner is block if op is None else op.parent is block)


def _is_unread_sum(op: Operation) -> bool:
    return adds(op) and not op.results[0].uses
