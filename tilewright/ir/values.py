"""What every room asks of a value: whether it is a tile, and what makes it."""

from __future__ import annotations

from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.ir.types import shape_of


def owner_of(value: SSAValue) -> Operation | None:
    """The operation that defines a value; None for block arguments."""
    return value.owner if isinstance(value, OpResult) else None


def is_tile(value: SSAValue) -> bool:
    """Whether `value` has a shape; scalars have none."""
    return bool(shape_of(value.type))


def property_int(op: Operation, name: str) -> int:
    """An integer property as a number."""
    return int(op.properties[name].value.data)  # type: ignore[attr-defined]
