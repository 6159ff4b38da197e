"""What is the same everywhere: for all programs of a launch, or in all elements of a tile."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.origins import is_parameter
from tilewright.ir.effect_traits import access_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.function import CallOp
from tilewright.ops.program import GetProgramIdOp


def is_invariant(value: SSAValue, seen: dict[SSAValue, bool] | None = None) -> bool:
    """Whether a scalar is the same for all programs of a launch."""
    seen = {} if seen is None else seen
    found = seen.get(value)
    if found is None:
        op = defining_op(value)
        if op is None:
            found = is_parameter(value)
        elif isinstance(op, (GetProgramIdOp, CallOp)) or access_of(op) is not None or op.regions or is_tile(value):
            found = False
        else:
            found = all(is_invariant(operand, seen) for operand in op.operands)
        seen[value] = found
    return found


def scalar_of(value: SSAValue) -> SSAValue | int | None:
    """The scalar, or the number, that every element of a tile is; None if it is not known."""
    value = unrepeated(value)
    op, known = defining_op(value), constant_of(value)
    if isinstance(known, int):
        return known
    return op.operands[0] if isinstance(op, SplatOp) else None


def unrepeated(value: SSAValue) -> SSAValue:
    """The smaller tile that a tile repeats, or itself."""
    while isinstance(op := defining_op(value), (BroadcastOp, ExpandDimsOp)):
        value = op.operands[0]
    return value
