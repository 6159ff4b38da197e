"""Iterations of a loop that a product joins: what scalars are in each, and operands that are computed in each.

for iteration in 0 .. count:   the loop's scalars as they are in that iteration
                          the group that computes an operand
                          (the caller packs it)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.backends.cpu.emit.context import FunctionLowering, JoinedIterations
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.steps import ScalarStep, Step
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.types import V
from tilewright.ir.types import ir_name
from tilewright.ir.values import is_tile


def begin_iteration(low: FunctionLowering, iterations: JoinedIterations, number: V) -> None:
    """Give the loop's scalars the values that they have `number` iterations after the first."""
    f, scalars = low.f, low.ev.scalars
    counter, *carried = iterations.loop.body.block.args
    position = f.add(iterations.counter, f.mul(number, iterations.by))
    scalars[counter] = f.cast("trunc", position, storage(ir_name(counter.type)))
    names = [value for value in carried if not is_tile(value)]
    for name, first, gain in zip(names, iterations.carried, iterations.gains, strict=True):
        scalars[name] = f.add(first, f.cast("trunc", f.mul(number, gain), first.type))


@contextmanager
def each_iteration(low: FunctionLowering, iterations: JoinedIterations, fill: Step) -> Iterator[V]:
    """A loop over the iterations that computes an operand in each of them; gives the number of the iteration."""
    ev = low.ev
    outside = dict(ev.scalars)
    with low.f.loop(0, iterations.count, unroll=False) as loop:
        for op in iterations.loop.body.block.ops:  # computed anew for the iteration
            for result in op.results:
                ev.scalars.pop(result, None)
        ev.enter(Nest())
        begin_iteration(low, iterations, loop.index)
        for step in iterations.body.steps:
            if isinstance(step, ScalarStep):
                low.emit_step(step)
        low.emit_step(fill)
        ev.enter(Nest())
        yield loop.index
    ev.scalars.clear()
    ev.scalars.update(outside)
    ev.enter(Nest())


@contextmanager
def filled(low: FunctionLowering, fill: Step) -> Iterator[None]:
    """Compute an operand of a product whose iterations are not joined; whoever packs it may not always come here."""
    ev = low.ev
    outside = dict(ev.scalars)
    ev.enter(Nest())
    low.emit_step(fill)
    ev.enter(Nest())
    yield
    ev.scalars.clear()
    ev.scalars.update(outside)
    ev.enter(Nest())
