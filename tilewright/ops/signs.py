"""Offsets that are never negative: which lower bounds of a block need no check when the kernel runs.

Blocks (`block_access.py`) are checked against both ends of a tensor, in 64 bits. Most offsets are made of program ids,
loop counters and block sizes, and then ``offset + i >= 0`` holds. Index arithmetic of 32 bits below the widening is
taken not to wrap, as everywhere in addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.base.assumptions import POSITIVE_DIVISORS, holds
from tilewright.base.order import operands_first
from tilewright.ir.types import element_type, i64, shape_of
from tilewright.ops.constant import ConstantOp
from tilewright.ops.folds import Number

Rule = Callable[[Operation], Sequence[SSAValue] | None]
"""The operands of which none may be negative for the result not to be; None where that says nothing."""


def _constant(op: Operation) -> Sequence[SSAValue] | None:
    return () if isinstance(op, ConstantOp) and op.splat_value is not None and op.splat_value >= 0 else None


def _range(op: Operation) -> Sequence[SSAValue] | None:
    return () if int(op.properties["start"].value.data) >= 0 else None  # type: ignore[attr-defined]


def _all(op: Operation) -> Sequence[SSAValue]:
    return op.operands


def _first(op: Operation) -> Sequence[SSAValue]:
    return op.operands[:1]


def _always(op: Operation) -> Sequence[SSAValue]:
    return ()


def _larger(op: Operation) -> Sequence[SSAValue] | None:
    known = any(isinstance(side.owner, Operation) and _constant(side.owner) is not None for side in op.operands)
    return () if known else op.operands


_RULES: dict[str, Rule] = {
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.get_program_id": _always,
    "tt.get_num_programs": _always,
    "arith.extui": _always,
    "arith.remsi": _first,
    "arith.maxsi": _larger,
    **dict.fromkeys(("tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi"), _first),
    **dict.fromkeys(("arith.addi", "arith.muli", "arith.divsi", "arith.minsi", "arith.shrsi"), _all),
}


def never_negative(value: SSAValue, *, proven: bool = False) -> bool:
    """Whether no element of an integer value is negative.

    A proof by induction over the loops: a value that is being proven already counts as proven. All rules are
    conjunctions, so one value that cannot be proven ends the whole proof.

    Args:
        value: integers.
        proven: whether what the user or the compiler assumes of scalars does not count.
    """
    seen: set[SSAValue] = set()
    todo = [value]
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if not proven and _taken_for_granted(value):
            continue
        wanted = _carried(value) if isinstance(value, BlockArgument) else _defined(value.owner)
        if wanted is None:
            return False
        todo += wanted
    return True


_POSITIVE: dict[str, Callable[[Operation, Sequence[bool]], bool]] = {
    "arith.constant": lambda op, known: (op.splat_value or 0) > 0,  # type: ignore[attr-defined]
    "tt.get_num_programs": lambda op, known: True,
    "arith.maxsi": lambda op, known: any(known),
    "arith.addi": lambda op, known: any(known) and never_negative(op.results[0], proven=True),
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.muli", "arith.minsi"), lambda op, known: all(known)),
}


def always_positive(root: SSAValue) -> bool:
    """Whether an integer scalar is proven, or said by the user (`tl.assume(x > 0)`), to be above zero."""
    known: dict[SSAValue, bool] = {}

    def operands(value: SSAValue) -> Sequence[SSAValue]:
        op = value.owner
        return op.operands if isinstance(op, Operation) and op.name in _POSITIVE else ()

    for value in operands_first(root, operands, known):
        op = value.owner
        rule = _POSITIVE.get(op.name) if isinstance(op, Operation) else None
        proven = isinstance(op, Operation) and rule is not None and rule(op, [known[v] for v in operands(value)])
        known[value] = proven or _assumed(value, 1)
    return known[root]


def _taken_for_granted(value: SSAValue) -> bool:
    """Whether the user assumes it of a scalar (`tl.assume(x >= 0)`), or something is divided by it."""
    if shape_of(value.type):
        return False
    return (holds(POSITIVE_DIVISORS) and _divides(value)) or _assumed(value, 0)


def _divides(value: SSAValue) -> bool:
    """Whether something is divided by a scalar, or by a tile of it."""
    for use in value.uses:
        user = use.operation
        if user.name in ("arith.divsi", "arith.remsi") and use.index == 1:
            return True
        if user.name == "tt.splat" and _divides(user.results[0]):
            return True
    return False


def _assumed(value: SSAValue, least: int) -> bool:
    """Whether the user says, where a scalar is made, that it is at least a number."""
    for use in value.uses:
        user = use.operation
        if user.name == "arith.cmpi" and use.index == 0 and _says_at_least(user, least):
            assumed = (inner.operation for inner in user.results[0].uses)
            if any(op.name == "llvm.intr.assume" and op.parent is _block_of(value) for op in assumed):
                return True
    return False


def _says_at_least(test: Operation, least: int) -> bool:
    bound = test.operands[1].owner
    by = {"sge": least, "sgt": least - 1}.get(test.attr_values()["predicate"])  # type: ignore[attr-defined]
    number = bound.splat_value if isinstance(bound, ConstantOp) else None
    return by is not None and number is not None and number >= by


def _block_of(value: SSAValue) -> Block | None:
    return value.owner if isinstance(value.owner, Block) else value.owner.parent_block()


def _defined(op: object) -> Sequence[SSAValue] | None:
    assert isinstance(op, Operation)
    rule = _RULES.get(op.name)
    return None if rule is None else rule(op)


def _carried(value: BlockArgument) -> Sequence[SSAValue] | None:
    """A loop counter that starts from there, or a carried value that starts and goes on so."""
    loop, block = value.block.parent_op(), value.block
    if loop is None or loop.name != "scf.for":
        return None
    if value.index == 0:
        return loop.operands[:1]
    last = block.last_op
    assert last is not None
    return (loop.operands[2 + value.index], last.operands[value.index - 1])


def block_bound(op: Operation, known: Sequence[Number | None]) -> Number | None:
    """``offset >= 0`` of 64-bit offsets that are never negative."""
    at_least = op.attr_values()["predicate"] == "sge" and known[1] == 0  # type: ignore[attr-defined]
    if not at_least or element_type(op.operands[0].type) != i64:
        return None
    return True if never_negative(op.operands[0], proven=True) else None
