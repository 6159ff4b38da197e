"""Where the chunks of sums may end, row by row: from there on masks make zeros of all elements.

    end = the first place from which a bound of the masks is passed, for each sum the latest of its terms
    for chunk = limit .. end:      masked loads        (limit .. extent without it)

Extents of tiles are upper bounds of what the launch brings: the next power of two, or all pieces that one trip takes
(`plan/whole_rows.py`). `plan/vanishing.py` does the same where bounds are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.affine import Form
from tilewright.analysis.bounds import below_zero, is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.plan.recompute import cast_name
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.llvm.types import V
from tilewright.base.decision import Yes
from tilewright.ir.traits import is_view
from tilewright.ir.types import shape_of
from tilewright.ir.values import is_tile, owner_of
from tilewright.ops.elementwise import AddFOp, AddIOp, CmpIOp, MulFOp, SelectOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import single_operation


class Ends:
    """The first places from which what a group sums up is zero.

    Args:
        ev: evaluator.
        step: the group.
        indices: of its chunks, one for each side.
        passed: gives the first place along the innermost loop from which no lane of a form is negative, None if
            there is none that is known.
    """

    def __init__(self, ev: Evaluator, step: Step, indices: Sequence[Index], passed: Callable[[Form], V | None]) -> None:
        self.ev, self.step, self.indices, self.passed = ev, step, indices, passed

    def end(self) -> V | None:
        """Where the loop may end; None if that is not known."""
        roots: list[SSAValue] = []
        for sink in self.step.sinks:
            kind = single_operation(sink.op.regions[0].block) if sink.kind == "reduce" and sink.op else None
            if not isinstance(kind, AddFOp | AddIOp):
                return None
            roots.append(sink.roots[0])
        return self._latest([(root, index) for root in roots for index in self.indices])

    def _latest(self, parts: Sequence[tuple[SSAValue, Index]]) -> V | None:
        """From where all of several values are zero."""
        latest: V | None = None
        for part in dict.fromkeys(parts):
            end = self._zero_from(*part)
            if end is None:
                return None
            latest = end if latest is None else self.ev.f.intrinsic("smax", latest, end)
        return latest

    def _earliest(self, ends: Sequence[V | None]) -> V | None:
        """The least of the places that are known."""
        earliest: V | None = None
        for end in ends:
            if end is not None:
                earliest = end if earliest is None else self.ev.f.intrinsic("smin", earliest, end)
        return earliest

    def _zero_from(self, value: SSAValue, index: Index) -> V | None:
        op = owner_of(value)
        if op is None or not is_tile(value) or value in self.ev.placed or not shape_of(value.type):
            return None
        parts = operand_indices(value, index)
        if isinstance(op, LoadOp):
            masked = len(parts) > 2 and constant_of(parts[2][0]) == 0
            return self._false_from(*parts[1]) if masked else None
        if isinstance(op, SelectOp):
            masked = constant_of(parts[2][0]) == 0
            return self._earliest([self._false_from(*parts[0]), self._zero_from(*parts[1])]) if masked else None
        if isinstance(op, MulFOp | AddFOp | AddIOp) or is_view(op) or cast_name(op) in ("extf", "truncf", "sitofp"):
            return self._latest(parts)  # zero times infinity is not zero
        return None

    def _false_from(self, value: SSAValue, index: Index) -> V | None:
        """From where a mask does not hold."""
        op = owner_of(value)
        if op is None or not is_tile(value) or value in self.ev.placed:
            return None
        if is_conjunction(op):
            return self._earliest([self._false_from(*part) for part in operand_indices(value, index)])
        answer = below_zero(value, index, self.ev.analysis, "") if isinstance(op, CmpIOp) else None
        return self.passed(answer.plan) if isinstance(answer, Yes) else None
