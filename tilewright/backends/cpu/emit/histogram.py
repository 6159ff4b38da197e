"""`tt.histogram`: counters in scratch, incremented one element after the other.

counters = 0
for each element where the mask holds: if 0 <= element < bins: counters[element] += 1
"""

from __future__ import annotations

from tilewright.backends.cpu.emit.chunks import for_each_chunk
from tilewright.backends.cpu.emit.context import FunctionLowering
from tilewright.backends.cpu.emit.onebyone import for_each_lane
from tilewright.backends.cpu.plan.lanes import chunk_group
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.types import I1, V, const


def emit_histogram(low: FunctionLowering, step: Step) -> None:
    """Emit one histogram."""
    (sink,) = step.sinks
    ev, f = low.ev, low.f
    (target,) = sink.targets
    assert target is not None
    counters, t = f.gep(ev.arena, target.offset), storage(target.elem)
    f.memset(counters, 0, target.size)

    def count(lane: V, values: list[V]) -> None:
        element, *mask = values
        inside = f.and_(f.icmp("ult", element, target.shape[0]), mask[0] if mask else const(I1, 1))
        with f.if_(inside):
            counter = f.gep(counters, f.cast("zext", element, storage("i64")), t)
            f.store(f.add(f.load(t, counter), 1), counter)

    def chunk(values: list[V]) -> None:
        for_each_lane(ev, values, count)

    for_each_chunk(ev, sink, chunk_group(step, f.isa, ev.placed, ev.analysis), chunk)
