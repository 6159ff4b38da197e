"""Multibuffering: which buffer of a ring a value is, followed to where buffers and their numbers are made.

A loop that goes round a ring of n buffers takes number (k + c) mod n on its iteration k. That is found by running the
few integer operations that compute the number, for the n iterations after which it must be what it was:

    %next = arith.addi %i, 1;  %wrap = arith.cmpi sge, %next, n;  scf.yield (arith.select %wrap, 0, %next)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.ir.core import OpResult

from tilewright.analysis.flow import carried_by, sources_of
from tilewright.backends.nvidia.tgir.ops import InitBarrierOp, LocalAllocOp, MemDescIndexOp
from tilewright.backends.nvidia.tgir.types import memdesc_count
from tilewright.base.errors import InternalError
from tilewright.base.order import reached
from tilewright.ir.walk import enclosing
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddIOp, CmpIOp, RemSIOp, RemUIOp, SelectOp, SubIOp


@dataclass(frozen=True, slots=True)
class Stage:
    """A buffer of a ring: number ``(offset + iteration) mod count``, or ``offset`` if there is no loop.

    Args:
        loop: whose iterations count; None for a constant number.
        offset: the number on the first iteration.
    """

    loop: Operation | None
    offset: int

    def may_equal(self, other: Stage) -> bool:
        """Whether two stages of one ring may be one buffer."""
        return self.loop is not other.loop or self.offset == other.offset


Root = tuple[Operation, Stage | None]
Move = Callable[[Operation, Operation, Stage | None], Stage | None]


# --- stages at the borders of loops ---------------------------------------------------------------------


def entering_loop(loop: Operation, ring: Operation, stage: Stage | None) -> Stage | None:
    """What a stage is on the first iteration of a loop."""
    return Stage(loop, stage.offset) if stage is not None and stage.loop is None else stage


def next_iteration(loop: Operation, ring: Operation, stage: Stage | None) -> Stage | None:
    """What a stage of one iteration is on the next."""
    if stage is None or stage.loop is not loop:
        return stage
    return Stage(loop, (stage.offset - 1) % memdesc_count(ring.results[0].type))


def after_loop(loop: Operation, ring: Operation, stage: Stage | None) -> Stage | None:
    """What a stage is when the loop has ended after an unknown number of iterations."""
    return None if stage is not None and stage.loop is loop else stage


# --- where buffers come from ----------------------------------------------------------------------------


def roots_of(value: SSAValue) -> set[Root]:
    """The buffers (or rings, with the stage) that a value of buffer type may be."""
    found: set[Root] = set()
    pending: list[tuple[SSAValue, Stage | None]] = [(value, None)]
    seen: set[SSAValue] = set()
    while pending:
        value, stage = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        maker = value.owner
        if isinstance(maker, LocalAllocOp):
            found.add((maker, stage))
        elif isinstance(maker, MemDescIndexOp):
            pending.append((maker.src, stage_of(maker.index, memdesc_count(maker.src.type))))
        elif isinstance(maker, InitBarrierOp):
            pending.append((maker.src, stage))
        else:
            sources = sources_of(value)
            if sources is None:
                raise InternalError("a buffer comes from an operation that makes none")
            pending += [(source, stage) for source in sources]
    return found


def _end(op: Operation, region: int) -> Operation:
    last = op.regions[region].block.last_op
    assert last is not None
    return last


# --- numbers ------------------------------------------------------------------------------------------


class _Unknown(Exception):
    """A number that does not depend on iterations alone."""


def stage_of(index: SSAValue, count: int) -> Stage | None:
    """The stage that a number of type i32 names in a ring of `count` buffers; None if it is not of that form."""
    try:
        return Stage(None, _evaluate(index, {}) % count)
    except _Unknown:
        pass
    loop = _loop_of(index)
    if loop is None:
        return None
    try:
        carried: dict[SSAValue, int] = {}
        for arg in _carried_below(index, loop):
            carried[arg] = _evaluate(loop.operands[arg.index + 2], {})
        return _round_trip(index, loop, carried, count)
    except _Unknown:
        return None


def _round_trip(index: SSAValue, loop: ForOp, carried: dict[SSAValue, int], count: int) -> Stage | None:
    """The stage, if `count` iterations take the ring round and leave everything as it was."""
    start, offset = dict(carried), _evaluate(index, dict(carried))
    for iteration in range(count):
        if _evaluate(index, dict(carried)) != (offset + iteration) % count:
            return None
        ends = {arg: _end(loop, 0).operands[arg.index - 1] for arg in carried if isinstance(arg, BlockArgument)}
        carried = {arg: _evaluate(end, dict(carried)) for arg, end in ends.items()}
    return Stage(loop, offset % count) if carried == start else None


def _loop_of(index: SSAValue) -> ForOp | None:
    """The innermost loop around the place where a value is made."""
    holder = index.owner.parent_op()
    return holder if holder is None or isinstance(holder, ForOp) else enclosing(holder, ForOp)


def _carried_below(index: SSAValue, loop: ForOp) -> set[BlockArgument]:
    """The carried values of a loop that a number depends on, now or in later iterations."""

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        if isinstance(value, OpResult):
            return value.op.operands
        holder, number = carried_by(value) or (None, 0)
        if holder is not loop:
            raise _Unknown
        return [loop.yielded[number]]

    return {value for value in reached([index], made_of) if isinstance(value, BlockArgument)}


def _evaluate(value: SSAValue, known: dict[SSAValue, int]) -> int:
    """The number that a value is, given some others; operations are run on i32 or i1."""
    if value in known:
        return known[value]
    if not isinstance(value, OpResult):
        raise _Unknown
    op = value.op
    if isinstance(op, ConstantOp):
        attribute = op.properties.get("value")
        if not isinstance(attribute, IntegerAttr):
            raise _Unknown
        known[value] = int(attribute.value.data)
    elif type(op) in _RULES:
        known[value] = _RULES[type(op)](op, *(_evaluate(operand, known) for operand in op.operands))
    else:
        raise _Unknown
    return known[value]


def _compare(op: Operation, a: int, b: int) -> int:
    predicate = str(op.attr_values()["predicate"])  # type: ignore[attr-defined]
    if predicate[0] == "u" and (a < 0 or b < 0):
        raise _Unknown
    order = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    return int(order[predicate if predicate in order else predicate[1:]])


def _remainder(op: Operation, a: int, b: int) -> int:
    if a < 0 or b <= 0:  # signed and unsigned rules agree only there
        raise _Unknown
    return a % b


_Rule = Callable[..., int]
_RULES: dict[type, _Rule] = {
    AddIOp: lambda op, a, b: a + b,
    SubIOp: lambda op, a, b: a - b,
    CmpIOp: _compare,
    SelectOp: lambda op, c, a, b: a if c else b,
    RemSIOp: _remainder,
    RemUIOp: _remainder,
}

__all__ = ["Move", "Root", "Stage", "after_loop", "entering_loop", "next_iteration", "roots_of", "stage_of"]
