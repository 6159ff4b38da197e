"""What a loop carries and could as well compute is computed.

    %i = %lo to %n step 64, carried %p = %first, %q = 0          %i = %lo to %n step 64
      ... %p ... %q ...                                    ->      ... %first ... (%i - %lo) ...
      yield %p, %q + 64

A value that every trip hands on as it is never changes; an integer that gains what the counter gains is the counter,
moved. Then masks and addresses of one block do not depend on different values that are the same, and what never changes
can be computed before the loop. `tl.advance` carries the place of a block along every dim, in 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.types import i64
from tilewright.ir.values import owner_of
from tilewright.ir.walk import walk
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddIOp
from tilewright.passes.rewriting import value_before


def compute_carried(root: Operation) -> bool:
    """Rewrite the uses of such values in every `scf.for` below `root`; says whether there were any.

    The loops still carry what is now dead: `dce` takes it away.
    """
    changed = False
    for loop in list(walk(root)):
        if isinstance(loop, ForOp):
            changed |= _keep_constant(loop)
            changed |= _count(loop)
    return changed


def _keep_constant(loop: ForOp) -> bool:
    """Let the first values stand for those that a trip hands on as they are."""
    changed = False
    for carried, first, following, result in zip(loop.carried, loop.iter_args, _next(loop), loop.results, strict=True):
        if following is carried:
            carried.replace_all_uses_with(first)
            result.replace_all_uses_with(first)
            changed = True
    return changed


def _count(loop: ForOp) -> bool:
    """Let the counter stand for integers that gain as much in a trip."""
    start, step, counter = constant_of(loop.lb), constant_of(loop.step), loop.induction_var
    if not isinstance(start, int) or not isinstance(step, int) or loop.unsignedCmp is not None:
        return False
    changed = False
    for carried, first, following in zip(loop.carried, loop.iter_args, _next(loop), strict=True):
        if carried.type not in (counter.type, i64) or _gain(carried, following) != step:
            continue
        anchor = loop.body.block.first_op
        assert anchor is not None
        carried.replace_all_uses_with(_moved(counter, start, first, anchor))
        changed = True
    return changed


def _next(loop: ForOp) -> Sequence[SSAValue]:
    """What a trip hands on to the next."""
    last = loop.body.block.last_op
    assert last is not None
    return last.operands


def _gain(carried: SSAValue, following: SSAValue) -> int | None:
    """What a trip adds to a carried value, if that is a number."""
    op = owner_of(following)
    if not isinstance(op, AddIOp) or carried not in op.operands:
        return None
    other = op.operands[1] if op.operands[0] is carried else op.operands[0]
    number = constant_of(other)
    return number if isinstance(number, int) else None


def _moved(counter: SSAValue, start: int, first: SSAValue, anchor: Operation) -> SSAValue:
    """``counter - start + first`` in the type of `first`, in front of `anchor`."""
    type_, known = first.type, constant_of(first)
    place = counter
    if type_ != counter.type:
        place = value_before(ExtSIOp.create(operands=[counter], result_types=[type_]), anchor)
    by = (known if isinstance(known, int) else 0) - start
    terms = [value_before(ConstantOp.of(by, type_), anchor)] if by else []
    terms += [] if isinstance(known, int) else [first]
    for term in terms:
        place = value_before(AddIOp.create(operands=[place, term], result_types=[type_]), anchor)
    return place
