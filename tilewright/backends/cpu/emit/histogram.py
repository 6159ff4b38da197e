"""`tt.histogram`: counters in scratch, incremented one element after the other.

counters = 0
for chunks: if all elements are inside, and the mask holds for all: for each element: counters[element] += 1
            else: for each element where the mask holds: if 0 <= element < bins: counters[element] += 1
"""

from __future__ import annotations

from tilewright.backends.cpu.emit.chunks import for_each_chunk
from tilewright.backends.cpu.emit.context import FunctionLowering, emits
from tilewright.backends.cpu.emit.scalarize import for_each_lane, in_straight_code
from tilewright.backends.cpu.plan.lanes import chunk_group
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.types import I1, I32, I64, V, const
from tilewright.ops.gather import HistogramOp


@emits(HistogramOp)
def emit_histogram(low: FunctionLowering, step: Step) -> None:
    """Emit one histogram."""
    (sink,) = step.sinks
    ev, f = low.ev, low.f
    (target,) = sink.targets
    assert target is not None
    counters, t = f.gep(ev.arena, target.offset), storage(target.elem)
    f.memset(counters, 0, target.size)

    def counted(number: int, places: list[V]) -> None:
        counter = f.gep(counters, f.cast("zext", places[0], I64), t)
        f.store(f.add(f.load(t, counter), 1), counter)

    def count(lane: V, values: list[V]) -> None:
        element, *mask = values
        inside = f.and_(f.icmp("ult", element, target.shape[0]), mask[0] if mask else const(I1, 1))
        with f.if_(inside):
            counter = f.gep(counters, f.cast("zext", element, storage("i64")), t)
            f.store(f.add(f.load(t, counter), 1), counter)

    def chunk(values: list[V]) -> None:
        element, *mask = values
        if not element.type.lanes:
            for_each_lane(ev, values, count)
            return
        lanes = element.type.lanes
        inside = f.icmp("ult", element, f.splat(const(element.type.scalar, target.shape[0]), lanes))
        inside = f.and_(inside, f.splat(mask[0], lanes)) if mask else inside
        places = element if element.type.bits == 32 else f.cast("trunc", element, I32)

        def one_by_one() -> None:
            for_each_lane(ev, values, count)

        f.if_else(f.reduce("and", inside), lambda: in_straight_code(f, [places], lanes, counted), one_by_one)

    for_each_chunk(ev, sink, chunk_group(step, f.isa, ev.placed, ev.analysis), chunk, masked=step)
