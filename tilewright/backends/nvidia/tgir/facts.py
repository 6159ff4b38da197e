"""Axis facts of laid-out tile IR: those of tile IR, kept through changes of layout."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from tilewright.analysis.axis import AxisAnalysis
from tilewright.analysis.solver import Facts
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp, ProgramPlaceOp
from tilewright.ops.control import FuncOp
from tilewright.ops.facts import AxisFacts, of_index


class LaidOutAxisAnalysis(AxisAnalysis):
    """A conversion changes where elements are, not what they are; a place in the grid is what its index was."""

    def transfer(self, op: Operation, operands: Sequence[AxisFacts]) -> Sequence[AxisFacts]:
        if isinstance(op, ProgramPlaceOp):
            return [self.hinted(op, of_index(op, operands))]
        return operands[:1] if isinstance(op, ConvertLayoutOp) else super().transfer(op, operands)


def axis_facts(function: FuncOp) -> Facts[AxisFacts]:
    """Axis facts of every value of a laid-out function."""
    return Facts(function, LaidOutAxisAnalysis())
