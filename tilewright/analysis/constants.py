"""Numbers that are known when a kernel is compiled."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.ops.broadcast import SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.folds import Number


def constant_of(value: SSAValue) -> Number | None:
    """The number that every element of `value` is, when its definition says so."""
    owner = value.owner
    if isinstance(owner, SplatOp):
        return constant_of(owner.operands[0])
    return owner.splat_value if isinstance(owner, ConstantOp) else None


def constant_elements(op: Operation) -> list[int | float]:
    """The elements of a constant tile, in row-major order."""
    return list(op.properties["value"].get_values())  # type: ignore[attr-defined]
