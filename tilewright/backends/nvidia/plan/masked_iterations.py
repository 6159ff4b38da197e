"""Loops with products are divided where a mask that selects elements becomes true everywhere, or stops being so.

    for i = 0 to n:                                   for i = 0 to e:  s = scores
      s = select(row >= i * 64 + column, scores, 0)   for i = e to n:  s = select(..., scores, 0)

`index_sets` finds e, or the first iteration from which on there is no mask.

Of attention's gradient a part has no mask but in the first iterations (over queries) or the last ones (over keys), and
a comparison and a selection for each element and use take a third of the time. Loops that roles have between them are
divided there (`rotation`).
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.index_sets import Unmasked, end_of_unmasked, unmasked
from tilewright.backends.nvidia.plan.pipeliner import SPLIT
from tilewright.backends.nvidia.tgir.ops import WarpGroupDotOp
from tilewright.ir.walk import among, every, walk
from tilewright.ops.casts import ExtFOp, TruncFOp
from tilewright.ops.control import ForOp, LoopOp
from tilewright.ops.elementwise import SelectOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import replace

_LEAST_PRODUCTS = 3  # of a loop: two, as attention has, run beside the exponentials between them


def divide_masked_loops(module: ModuleOp) -> bool:
    """Divide such loops of a laid-out module, in place; says whether there was one."""
    changed = False
    for loop in [op for op in every(module, ForOp) if SPLIT not in op.attributes]:
        inside = [op for op in walk(loop) if op is not loop]
        products = sum(isinstance(op, WarpGroupDotOp) for op in inside)
        if products < _LEAST_PRODUCTS or any(among(inside, LoopOp)):
            continue
        found = unmasked(loop) or unmasked(loop, last=True)
        if found is not None:
            _divide(loop, found)
            changed = True
    if changed:
        eliminate_dead_code(module)
    return changed


def _divide(loop: ForOp, found: Unmasked) -> None:
    border = end_of_unmasked(Builder(loop), found, loop.lb, loop.ub)
    known: dict[SSAValue, SSAValue] = {}
    first = loop.clone(known)
    block = loop.parent_block()
    assert block is not None
    block.insert_op_before(first, loop)
    first.location = loop.location
    if found.last:
        plain = list(found.selections)
    else:
        plain = among((known[one.result].owner for one in found.selections), SelectOp)
    first.operands[1] = loop.operands[0] = border
    for number, result in enumerate(first.results):
        loop.operands[3 + number] = result
    for op in plain:
        kept = op.operands[1]
        _undo_widening(op, kept)
        replace(op, [kept])


def _undo_widening(op: SelectOp, kept: SSAValue) -> None:
    """Selections of 16-bit floats are made in f32: without one there is nothing to round."""
    wide = kept.owner
    if isinstance(wide, ExtFOp):
        for use in list(op.result.uses):
            user = use.operation
            if isinstance(user, TruncFOp) and user.results[0].type == wide.operands[0].type:
                replace(user, [wide.operands[0]])


__all__ = ["divide_masked_loops"]
