"""`tt.check`: a branch that is never taken in a program without faults, to code that leaves a record.

    if not all elements of the condition hold:
        for each element that does not: note(row, program, what is shown, place in the tile)
        go on behind this program, if what the check guards must not happen

`note` is one function of a module. Whether a check ends its program is said by who wrote it: where programs may wait
for each other, only one that waits for ever is ended (`passes/checks.py` masks the accesses of others).
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from tilewright.backends.cpu.emit.chunks import element_position, for_each_chunk
from tilewright.backends.cpu.emit.context import FunctionLowering, emits
from tilewright.backends.cpu.emit.scalarize import for_each_lane
from tilewright.backends.cpu.plan.lanes import chunk_asked
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I64, PTR, VOID, V, const
from tilewright.ir.walk import every
from tilewright.ops.check import (
    BUSY,
    COUNT,
    FIRST,
    LAST_PROGRAM,
    MOST_DIMS,
    MOST_SHOWN,
    PROGRAM,
    PROGRAMS,
    ROW,
    CheckOp,
)

_NOTE = "tw.note"


def end_of_program(f: Function, function: Operation) -> str | None:
    """A label behind a program, if a check may end it."""
    ends = any(check.attr_values()["ends"] for check in every(function, CheckOp))
    return f.label("next_program") if ends else None


@emits(CheckOp)
def emit_check(low: FunctionLowering, step: Step) -> None:
    """Check every element of a tile, equal ones once."""
    (sink,) = step.sinks
    ev, op = low.ev, sink.op
    assert isinstance(op, CheckOp)
    chunking = chunk_asked(step, ev.f.isa, ev.placed, ev.analysis)

    def chunk(values: list[V]) -> None:
        condition, *shown = values
        records = ev.scalar(op.records)

        def fail() -> None:
            lanes = ev.nest.lanes
            each = [low.f.splat(v, lanes) for v in (condition, *shown)]

            def one(lane: V, scalars: list[V]) -> None:
                with low.f.if_(low.f.not_(scalars[0])):
                    _note(low, op, records, scalars[1:], element_position(ev, chunking, lane))

            for_each_lane(ev, each, one)

        _unless(low, op, ev.f.reduce("and", condition), fail)

    for_each_chunk(ev, sink, chunking, chunk)


def emit_scalar_check(low: FunctionLowering, step: Step) -> None:
    """Check a scalar; what it shows behind two values is the place in the tile that it stands for."""
    op = step.op
    assert isinstance(op, CheckOp)
    condition, records, *shown = (low.ev.scalar(operand) for operand in op.operands)
    _unless(low, op, condition, lambda: _note(low, op, records, shown[:MOST_SHOWN], shown[MOST_SHOWN:]))


def _unless(low: FunctionLowering, op: CheckOp, holds: V, fail: Callable[[], None]) -> None:
    f = low.f
    failed, go_on = f.label("failed"), f.label("holds")
    rarely = f.module.metadata('!{!"branch_weights", i32 1048575, i32 1}')
    f.cond_br(holds, go_on, failed, f", !prof {rarely}")
    f.start(failed)
    fail()
    f.br((low.skip if op.attr_values()["ends"] else None) or go_on)
    f.start(go_on)


def _note(low: FunctionLowering, op: CheckOp, records: V, shown: list[V], place: list[V]) -> None:
    f = low.f
    _define_note(f.module)
    row = f.gep(records, 8 * ROW * int(op.attr_values()["site"]))
    x, y, z = (f.cast("sext", pid, I64) for pid in low.pids)
    columns, rows = (f.cast("sext", n, I64) for n in low.grid[:2])
    number = f.add(f.add(x, f.mul(columns, f.add(y, f.mul(rows, z)))), 1)
    wide = [v if v.type is I64 else f.cast("sext", v, I64) for v in shown]
    values = (*wide, *[const(I64, 0)] * (MOST_SHOWN - len(wide)), *place, *[const(I64, 0)] * (MOST_DIMS - len(place)))
    f.call(_NOTE, VOID, (row, number, x, y, z, *values))


def _define_note(module: Module) -> None:
    """`note(row, 1 + number of the program, x, y, z, shown, place)`: threads that meet in it take turns.

    What the row shows is the first failure of the first program at fault, whichever thread came first.
    """
    if module.has(_NOTE):
        return
    count = 3 + MOST_SHOWN + MOST_DIMS
    f = module.function(_NOTE, VOID, (PTR, I64, *[I64] * count), attrs="nounwind noinline cold")
    row, number, *values = f.args

    def word(at: int) -> V:
        return f.gep(row, 8 * at)

    taken = lambda _: f.icmp("ne", f.atomic_rmw("xchg", word(BUSY), const(I64, 1), "acquire"), 0)  # noqa: E731
    f.while_((), taken, lambda _: ())
    seen, first = f.load(I64, word(COUNT)), f.load(I64, word(FIRST))
    with f.if_(f.or_(f.icmp("eq", seen, 0), f.icmp("slt", number, first))):
        for at, value in ((FIRST, number), *enumerate(values, PROGRAM)):
            f.store(value, word(at))
    with f.if_(f.icmp("ne", f.load(I64, word(LAST_PROGRAM)), number)):
        f.store(number, word(LAST_PROGRAM))
        f.store(f.add(f.load(I64, word(PROGRAMS)), 1), word(PROGRAMS))
    f.store(f.add(seen, 1), word(COUNT))
    f.atomic_rmw("xchg", word(BUSY), const(I64, 0), "release")
    f.ret()
