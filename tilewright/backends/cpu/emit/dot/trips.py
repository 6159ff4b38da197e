"""Trips of a loop that a product joins: what scalars are in each, and operands that are computed in each.

for trip in 0 .. count:   the loop's scalars as they are in that trip
                          the group that computes an operand
                          (the caller packs it)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.backends.cpu.emit.context import FunctionLowering, JoinedTrips
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.types import V
from tilewright.ir.types import ir_name
from tilewright.ir.values import is_tile


def begin_trip(low: FunctionLowering, trips: JoinedTrips, number: V) -> None:
    """Give the loop's scalars the values that they have `number` trips after the first."""
    f, scalars = low.f, low.ev.scalars
    counter, *carried = trips.loop.body.block.args
    position = f.add(trips.counter, f.mul(number, trips.by))
    scalars[counter] = f.cast("trunc", position, storage(ir_name(counter.type)))
    names = [value for value in carried if not is_tile(value)]
    for name, first, gain in zip(names, trips.carried, trips.gains, strict=True):
        scalars[name] = f.add(first, f.cast("trunc", f.mul(number, gain), first.type))


@contextmanager
def each_trip(low: FunctionLowering, trips: JoinedTrips, fill: Step) -> Iterator[V]:
    """A loop over the trips that computes an operand in each of them; gives the number of the trip."""
    ev = low.ev
    outside = dict(ev.scalars)
    with low.f.loop(0, trips.count, unroll=False) as loop:
        for op in trips.loop.body.block.ops:  # computed anew for the trip
            for result in op.results:
                ev.scalars.pop(result, None)
        ev.enter(Nest())
        begin_trip(low, trips, loop.index)
        for step in trips.body.steps:
            if step.kind == "scalar":
                low.emit_step(step)
        low.emit_step(fill)
        ev.enter(Nest())
        yield loop.index
    ev.scalars.clear()
    ev.scalars.update(outside)
    ev.enter(Nest())


@contextmanager
def filled(low: FunctionLowering, fill: Step) -> Iterator[None]:
    """Compute an operand of a product whose trips are not joined; whoever packs it may not always come here."""
    ev = low.ev
    outside = dict(ev.scalars)
    ev.enter(Nest())
    low.emit_step(fill)
    ev.enter(Nest())
    yield
    ev.scalars.clear()
    ev.scalars.update(outside)
    ev.enter(Nest())
