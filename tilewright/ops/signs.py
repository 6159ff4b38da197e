"""Offsets that are never negative: which lower bounds of a block need no check when the kernel runs.

Blocks (`block_access.py`) are checked against both ends of a tensor, in 64 bits. Most offsets are made of program ids,
loop counters and block sizes, and then ``offset + i >= 0`` holds. Index arithmetic of 32 bits below the widening is
taken not to wrap, as everywhere in addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.ir.types import element_type, i64
from tilewright.ops.constant import ConstantOp
from tilewright.ops.folds import Number

_VIEWS = ("tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi")
_FROM_ALL = ("arith.addi", "arith.muli", "arith.divsi", "arith.minsi", "arith.shrsi")


def _constant(op: Operation | Block, seen: set[SSAValue]) -> bool:
    return isinstance(op, ConstantOp) and op.splat_value is not None and op.splat_value >= 0


def _range(op: Operation, seen: set[SSAValue]) -> bool:
    return int(op.properties["start"].value.data) >= 0  # type: ignore[attr-defined]


def _all(op: Operation, seen: set[SSAValue]) -> bool:
    return all(_never_negative(operand, seen) for operand in op.operands)


def _first(op: Operation, seen: set[SSAValue]) -> bool:
    return _never_negative(op.operands[0], seen)


def _always(op: Operation, seen: set[SSAValue]) -> bool:
    return True


_RULES: dict[str, Callable[[Operation, set[SSAValue]], bool]] = {
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.get_program_id": _always,
    "tt.get_num_programs": _always,
    "arith.extui": _always,
    "arith.remsi": _first,
    "arith.maxsi": lambda op, seen: any(_constant(operand.owner, seen) for operand in op.operands),
    **dict.fromkeys(_VIEWS, _first),
    **dict.fromkeys(_FROM_ALL, _all),
}


def _never_negative(value: SSAValue, seen: set[SSAValue]) -> bool:
    """Whether no element of an integer value is negative.

    What is in `seen` is being proven already, by induction over a loop. All rules are conjunctions: a value that could
    not be proven ends the whole proof.
    """
    if value in seen:
        return True
    seen.add(value)
    if isinstance(value, BlockArgument):
        return _carried(value, seen)
    owner = value.owner
    assert isinstance(owner, Operation)
    rule = _RULES.get(owner.name)
    return rule is not None and rule(owner, seen)


def _carried(value: BlockArgument, seen: set[SSAValue]) -> bool:
    """A loop counter that starts from there, or a carried value that starts and goes on so."""
    loop, block = value.block.parent_op(), value.block
    if loop is None or loop.name != "scf.for":
        return False
    if value.index == 0:
        return _never_negative(loop.operands[0], seen)
    last = block.last_op
    assert last is not None
    first, following = loop.operands[2 + value.index], last.operands[value.index - 1]
    return _never_negative(first, seen) and _never_negative(following, seen)


def block_bound(op: Operation, known: Sequence[Number | None]) -> Number | None:
    """``offset >= 0`` of 64-bit offsets that are never negative."""
    at_least = op.attr_values()["predicate"] == "sge" and known[1] == 0  # type: ignore[attr-defined]
    if not at_least or element_type(op.operands[0].type) != i64:
        return None
    return True if _never_negative(op.operands[0], set()) else None
