"""What every room asks of a value: whether it is a tile, and what makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, OpResult, SSAValue, Use

from tilewright.base.order import reached

# Values are equal if they are one object. xDSL says so in Python, which was a tenth of the calls of a compile.
SSAValue.__hash__ = object.__hash__  # type: ignore[method-assign]
SSAValue.__eq__ = object.__eq__  # type: ignore[method-assign]


def defining_op(value: SSAValue) -> Operation | None:
    """The operation that defines a value; None for block arguments."""
    return value.op if type(value) is OpResult else None


def result_number(value: SSAValue) -> int:
    """Which result of the operation that defines it a value is."""
    assert isinstance(value, OpResult)
    return value.index


def operands_of(op: Operation) -> tuple[SSAValue, ...]:
    """The operands of `op` as they are now. `op.operands` is a view that follows changes, and ten times as slow."""
    return op._operands


def users_of(value: SSAValue) -> list[Operation]:
    """The operations that use a value, once for each use."""
    return [use.operation for use in value.uses]


def uses_behind(values: Iterable[SSAValue], through: Callable[[Operation], bool]) -> Iterator[Use]:
    """The uses of some values, and of what operations make of them.

    Args:
        values: where to start.
        through: whether the results of an operation count too; it is asked when all uses of its operand were given.
    """

    def made_of(value: SSAValue) -> list[SSAValue]:
        return [result for user in users_of(value) if through(user) for result in user.results]

    return (use for value in reached(values, made_of) for use in value.uses)


def makers_behind(values: Iterable[SSAValue], within: Callable[[Operation], bool]) -> Iterator[Operation]:
    """The operations that make some values, and what those are made of: those within some, once for each result."""

    def maker(value: SSAValue) -> Operation | None:
        op = defining_op(value)
        return op if op is not None and within(op) else None

    def made_of(value: SSAValue) -> tuple[SSAValue, ...]:
        op = maker(value)
        return () if op is None else operands_of(op)

    return filter(None, map(maker, reached(values, made_of)))


def is_tile(value: SSAValue) -> bool:
    """Whether `value` has a shape; scalars have none."""
    return type(value._type) is TensorType


def property_int(op: Operation, name: str) -> int:
    """An integer property as a number."""
    return int(op.properties[name].value.data)  # type: ignore[attr-defined]


def is_inside(op: Operation, ancestor: Operation | None) -> bool:
    """Whether an operation stands in a region of another, at any depth."""
    parent = op.parent_op()
    while parent is not None and parent is not ancestor:
        parent = parent.parent_op()
    return parent is not None


def is_made_inside(value: SSAValue, ancestor: Operation) -> bool:
    """Whether a value is a result, or an argument of a block, of the regions of an operation, at any depth."""
    holder = value.owner.parent_op()
    return holder is ancestor or (holder is not None and is_inside(holder, ancestor))
