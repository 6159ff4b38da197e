"""Extremes that a loop chooses: the larger one of what it has and what comes is a maximum.

    %better = cmpf ogt, %x, %most                      %most' = maxnumf %x, %most
    %most' = select %better, %x, %most         ->

A NaN is never better, so what begins with a number stays one, and between a number and a NaN `maxnumf` takes the
number, too. What reads reductions (`reductions.py`) need not know of comparisons.
"""

from __future__ import annotations

import math

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.walk import among, every
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.elementwise import CmpFOp, CmpIOp, MaxNumFOp, MaxSIOp, MinNumFOp, MinSIOp, SelectOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace

_EXTREMES: dict[tuple[type[Operation], str], type[Operation]] = {
    (CmpFOp, "og"): MaxNumFOp, (CmpFOp, "ol"): MinNumFOp, (CmpIOp, "sg"): MaxSIOp, (CmpIOp, "sl"): MinSIOp,
}  # fmt: skip
_OTHER_WAY = {"g": "l", "l": "g"}


def raise_chosen_extremes(function: FuncOp) -> bool:
    """Rewrite all such choices of the loops of a function; says whether there was one."""
    changed = False
    for loop in every(function, ForOp):
        firsts = dict(zip(loop.carried, map(constant_of, loop.iter_args), strict=True))
        for choice in among(loop.body.block.ops, SelectOp):
            better, new, old = choice.operands
            first = firsts.get(old)
            if first is None or math.isnan(first) or not better.has_one_use() or not _is_next(loop, old, choice):
                continue
            kind = _extreme(better, new, old)
            if kind is not None:
                replace(choice, [Builder(choice).op(kind, new, old)])
                changed = True
    return changed


def _is_next(loop: ForOp, carried: SSAValue, choice: SelectOp) -> bool:
    """Whether a loop carries a choice as the next value."""
    return loop.yielded[list(loop.carried).index(carried)] is choice.results[0]


def _extreme(better: SSAValue, new: SSAValue, old: SSAValue) -> type[Operation] | None:
    """What it gives to take a new value where it is better than the old one."""
    for test in among([better.owner], CmpFOp, CmpIOp):
        predicate = str(test.attr_values()["predicate"])[:2]
        if (test.operands[0], test.operands[1]) == (old, new):
            predicate = predicate[:1] + _OTHER_WAY.get(predicate[1:], "")
        if {*test.operands} == {new, old}:
            return _EXTREMES.get((type(test), predicate))
    return None
