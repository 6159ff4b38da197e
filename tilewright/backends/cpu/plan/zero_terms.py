"""Zero terms: sums over a dim of which the last elements are zero end before them.

    tl.sum(tl.load(x + at, d < 5, 0.0) * tl.load(w + d, d < 5, 0.0), axis)    d = tl.arange(0, 8)

Extents are often the next power of two. Where masks with a number for a bound make zeros of the rest, slices of
them are left out.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.bounds import below_zero, is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index, identity, whole
from tilewright.backends.cpu.plan.recompute import cast_name
from tilewright.base.decision import Yes
from tilewright.ir.traits import is_view
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.elementwise import AddFOp, AddIOp, CmpIOp, MulFOp, SelectOp
from tilewright.ops.memory import LoadOp


def first_zero(value: SSAValue, axis: int, analysis: AffineAnalysis) -> int:
    """The first element of a tile along a dim from which all are zero; the extent if there is none."""
    shape = shape_of(value.type)
    return _Zeros(axis, shape[axis], analysis).begin(value, identity(shape))


class _Zeros:
    """From which element along a dim values are zero; its extent if that is not known."""

    def __init__(self, axis: int, extent: int, analysis: AffineAnalysis) -> None:
        self.place, self.extent, self.analysis = whole(axis, extent), extent, analysis

    def begin(self, value: SSAValue, index: Index) -> int:
        """The first element from which all are zero."""
        if constant_of(value) == 0:
            return 0
        op = defining_op(value)
        if op is None or not is_tile(value) or not shape_of(value.type):
            return self.extent
        parts = operand_indices(value, index)
        if isinstance(op, LoadOp):
            masked = len(parts) > 1 and (len(parts) < 3 or constant_of(parts[2][0]) == 0)
            return self.false_from(*parts[1]) if masked else self.extent
        if isinstance(op, SelectOp):
            inside = self.begin(*parts[1])
            return min(inside, self.false_from(*parts[0])) if constant_of(parts[2][0]) == 0 else self.extent
        if isinstance(op, MulFOp | AddFOp | AddIOp) or is_view(op) or cast_name(op) in ("extf", "truncf", "sitofp"):
            return max(self.begin(*part) for part in parts)  # zero times infinity is not zero
        return self.extent

    def false_from(self, value: SSAValue, index: Index) -> int:
        """The first element from which a mask does not hold."""
        op = defining_op(value)
        if op is None or not is_tile(value):
            return self.extent
        if is_conjunction(op):
            return min(self.false_from(*part) for part in operand_indices(value, index))
        answer = below_zero(value, index, self.analysis, "") if isinstance(op, CmpIOp) else None
        if not isinstance(answer, Yes) or answer.plan.coords != {self.place: Poly.of(1)}:
            return self.extent
        constant = answer.plan.constant.constant
        return self.extent if constant is None else max(0, -constant)
