"""Stores past the caches, for kernels that write more than caches hold and never read it back.

    if programs * bytes stored per program >= 16 MiB and all addresses are whole lines:
      chunks with non-temporal stores          (a fence ends the range)
    else:
      chunks with ordinary stores

A plain store first reads the line that it overwrites: adding two vectors then moves four streams instead of three
(16M f32 on Zen 5: 5.2 ms, with these stores 4.0 ms). Only for one-dimensional groups that do nothing but store, and
for scans of one dim that store what they compute.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.affine import Poly
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.plan.lanes import Chunking
from tilewright.backends.cpu.plan.steps import ReduceSink, ScanSink, Step, StoreSink
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I64, VOID, V
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import pointee_bytes


def plan_streaming(ev: Evaluator, step: Step, chunking: Chunking) -> Answer[int]:
    """Bytes that a program stores in a group, all of them in whole lines, if they may go past the caches."""
    if not ev.f.isa.has_zmm:
        return No("the target has no stores of whole lines (AVX-512)")
    if ev.programs is None:
        return No("a function that is called does not know the grid")
    if len(step.shape) != 1:
        return No("the tile has several dims")
    if not chunking.loops:
        return No("the tile is a single chunk of lanes", instead="a larger tile")
    harmless = (StoreSink, ScanSink, ReduceSink) if step.scans else StoreSink  # totals of a scan read no more
    other = next((sink for sink in step.sinks if not isinstance(sink, harmless)), None)
    if other is not None:
        return No(f"the same loop has a {other.label}", other.op)
    for sink in step.stores:
        pointer, size = sink.roots[0], pointee_bytes(sink.roots[0].type)
        form = ev.analysis.pointer(pointer, chunking.index)
        contiguous = form.offset.coords == {chunking.index[0]: Poly.of(size)} and not form.offset.residual
        if form.base is None or not contiguous:
            return No("the addresses are not known to be contiguous", sink.op, "pointer + offset + tl.arange(0, N)")
        if (stored := max(1, chunking.lanes) * size) % memory.LINE:
            return No(f"a chunk of {stored} bytes is no whole line", sink.op)
    stored = sum(step.shape[0] * pointee_bytes(sink.roots[0].type) for sink in step.stores)
    return Yes(stored, f"where a launch stores {tuning.NONTEMPORAL_BYTES >> 20} MiB or more, in whole lines")


def past_caches(
    ev: Evaluator, step: Step, chunking: Chunking, stored: int | None, chunks: Callable[[], list[V]]
) -> list[V]:
    """Emit chunks; twice, if their stores may go past the caches.

    Args:
        ev: evaluator.
        step: the group.
        chunking: of the group.
        stored: what `plan_streaming` gave, None for no.
        chunks: emits them, and gives what they carry.
    """
    if stored is None:
        return chunks()

    def variant(past: bool) -> list[V]:
        ev.open_scope()
        ev.streaming = past
        results = chunks()
        ev.streaming = False
        ev.close_scope()
        return results

    return ev.f.if_else(_streams(ev, step, chunking, stored), lambda: variant(True), lambda: variant(False))


def _streams(ev: Evaluator, step: Step, chunking: Chunking, stored: int) -> V:
    """The test for stores past the caches; `stored` is what `plan_streaming` gave."""
    assert ev.programs is not None
    f = ev.f
    aligned: V | None = None
    for sink in step.stores:
        memory.hoist_address(ev, sink.roots[0], chunking.index)
        start = memory.address_of(ev, sink.roots[0], chunking.index).base
        whole = f.icmp("eq", f.and_(f.cast("ptrtoint", start, I64), memory.LINE - 1), 0)
        aligned = whole if aligned is None else f.and_(aligned, whole)
    assert aligned is not None
    return f.and_(f.icmp("sge", f.mul(ev.programs, stored), tuning.NONTEMPORAL_BYTES), aligned)


def fence(f: Function) -> None:
    """Make stores past the caches visible before the range ends."""
    if f.isa.is_x86:
        f.call("llvm.x86.sse.sfence", VOID, ())
