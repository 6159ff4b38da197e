"""Reduction variables: what a loop carries, if that is sums that nothing else reads, and counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, is_made_inside
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import (
    AddFOp,
    AddIOp,
    FmaOp,
    MaximumFOp,
    MaxNumFOp,
    MinimumFOp,
    MinNumFOp,
    SubIOp,
)

_SUMS = (AddFOp, AddIOp, MaxNumFOp, MaximumFOp, MinNumFOp, MinimumFOp)


@dataclass(slots=True)
class Sum:
    """A carried value to which each iteration adds.

    Args:
        kind: the operation that adds.
        terms: what is added: a value, or two factors.
    """

    kind: type[Operation]
    terms: Sequence[SSAValue]


@dataclass(slots=True)
class Gain:
    """What a carried integer gains or loses in each iteration.

    Args:
        value: how much; made before the loop, or in it by a conversion of what is.
        kind: whether it is added or subtracted.
    """

    value: SSAValue
    kind: type[Operation]


def carried_sums(loop: ForOp) -> list[Sum | Gain] | None:
    """What becomes of the carried values, if there are sums among them and nothing but sums and counters."""
    body, found = loop.body.block, list[Sum | Gain]()
    last = body.last_op
    assert last is not None
    for argument, following in zip(loop.carried, last.operands, strict=True):
        op = defining_op(following)
        if op is None or op.parent is not body:
            return None
        made = _gain(op, argument, loop) or _sum(op, argument)
        if made is None:
            return None
        found.append(made)
    return found if any(isinstance(made, Sum) for made in found) else None


def _gain(op: Operation, argument: SSAValue, loop: ForOp) -> Gain | None:
    """What a carried integer gains in each iteration."""
    if not isinstance(op, AddIOp | SubIOp) or shape_of(argument.type) or argument not in op.operands:
        return None
    first, second = op.operands
    if isinstance(op, SubIOp) and first is not argument:
        return None
    other = second if first is argument else first
    return Gain(other, type(op)) if _is_outside(other, loop) else None


def _is_outside(value: SSAValue, loop: ForOp) -> bool:
    """Whether a scalar is a number, or made before a loop, or in it by a conversion of one that is."""
    op = defining_op(value)
    if constant_of(value) is not None or value in loop.body.block.args:
        return op is not None
    return not is_made_inside(op.operands[0] if isinstance(op, ExtSIOp) else value, loop)


def _sum(op: Operation, argument: SSAValue) -> Sum | None:
    """What is added to a carried value that nothing else reads."""
    if not argument.has_one_use() or not op.results[0].has_one_use():
        return None
    if isinstance(op, FmaOp) and op.operands[2] is argument:
        return Sum(AddFOp, op.operands[:2])
    if isinstance(op, _SUMS) and argument in op.operands:
        return Sum(type(op), [op.operands[1] if op.operands[0] is argument else op.operands[0]])
    return None
