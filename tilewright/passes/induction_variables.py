"""Induction variables: what a loop carries and could as well compute is computed.

    %i = 0 to %n step 1, carried %p = %first, %q = 0          %i = 0 to %n step 1
      ... %p ... %q ...                                 ->      ... %first ... %i * 64 ...
      yield %p, %q + 64

A value that every iteration hands on as it is never changes; an integer that gains a number in every iteration is a
multiple of the counter, moved. Then masks and addresses of one block do not depend on different values that are the
same, and what never changes can be computed before the loop. `tl.advance` carries the place of a block along every
dim, in 64 bits.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit, way_of
from tilewright.ir.types import i64
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddIOp, MulIOp
from tilewright.passes.rewriting import take_out_invariants, value_before


def simplify_induction_variables(root: Operation) -> bool:
    """Rewrite the uses of such values in every `scf.for` below `root`; says whether there were any.

    The loops still carry what is now dead: `dce` takes it away.
    """
    changed = False
    for loop in every(root, ForOp):
        changed |= take_out_invariants(loop)
        changed |= _count(loop)
    return changed


def _count(loop: ForOp) -> bool:
    """Let multiples of the counter stand for integers that gain a number in an iteration."""
    counter = loop.induction_var
    if not is_unit(loop):
        return False
    changed = False
    for carried, first, following in zip(loop.carried, loop.iter_args, loop.yielded, strict=True):
        gain = _gain(carried, following)
        if carried.type not in (counter.type, i64) or gain is None:
            continue
        anchor = loop.body.block.first_op
        assert anchor is not None
        way = way_of(loop)
        narrow = way.fits and way.step == Poly.of(gain)  # it is the counter of the program, moved
        carried.replace_all_uses_with(_moved(counter, gain, first, anchor, narrow=narrow))
        changed = True
    return changed


def _gain(carried: SSAValue, following: SSAValue) -> int | None:
    """What an iteration adds to a carried value, if that is a number."""
    op = defining_op(following)
    if not isinstance(op, AddIOp) or carried not in op.operands:
        return None
    other = op.operands[1] if op.operands[0] is carried else op.operands[0]
    number = constant_of(other)
    return number if isinstance(number, int) else None


def _moved(counter: SSAValue, gain: int, first: SSAValue, anchor: Operation, *, narrow: bool) -> SSAValue:
    """``counter * gain + first`` in the type of `first`, in front of `anchor`; the product in that of `counter` if
    that holds it."""
    type_, place = first.type, counter
    if type_ != place.type and not narrow:
        place = value_before(ExtSIOp.create(operands=[place], result_types=[type_]), anchor)
    if gain != 1:
        by = value_before(ConstantOp.of(gain, place.type), anchor)
        place = value_before(MulIOp.create(operands=[place, by], result_types=[place.type]), anchor)
    if type_ != place.type:
        place = value_before(ExtSIOp.create(operands=[place], result_types=[type_]), anchor)
    if constant_of(first) != 0:
        place = value_before(AddIOp.create(operands=[place, first], result_types=[type_]), anchor)
    return place
