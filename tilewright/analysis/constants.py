"""Numbers that are known when a kernel is compiled."""

from __future__ import annotations

from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.ir.values import operands_of
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.folds import Number


def constant_of(value: SSAValue) -> Number | None:
    """The number that every element of `value` is, when its definition says so."""
    if type(value) is not OpResult:
        return None
    kind = type(value.op)  # by far the most values are neither, and `isinstance` is slow for classes of xDSL
    if kind is SplatOp:
        return constant_of(operands_of(value.op)[0])
    return value.op.splat_value if kind is ConstantOp else None  # type: ignore[attr-defined]


def constant_elements(op: Operation) -> list[int | float]:
    """The elements of a constant tile, in row-major order."""
    return list(op.properties["value"].get_values())  # type: ignore[attr-defined]
