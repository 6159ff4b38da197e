"""Stores past the caches, for kernels that write more than caches hold and never read it back.

    if programs * bytes stored per program >= 48 MiB and all addresses are whole lines:
      chunks with non-temporal stores          (a fence ends the range)
    else:
      chunks with ordinary stores

A plain store first reads the line that it overwrites: adding two vectors then moves four streams instead of three
(16M f32 on Zen 5: 5.2 ms, with these stores 4.0 ms). Only for one-dimensional groups that do nothing but store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.plan.affine import Poly
from tilewright.backends.cpu.plan.lanes import Chunking
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.llvm.function import Function
from tilewright.backends.llvm.types import I64, VOID, V
from tilewright.ir.types import pointee_bytes

if TYPE_CHECKING:
    from tilewright.backends.cpu.emit.evaluator import Evaluator

_MANY_BYTES = 48 << 20


def streams(ev: Evaluator, step: Step, chunking: Chunking) -> V | None:
    """The test for stores past the caches; None where they are never used."""
    if ev.programs is None or len(step.shape) != 1 or not chunking.loops:
        return None
    if any(sink.kind != "store" for sink in step.sinks) or not ev.f.isa.has_zmm:
        return None
    f, stored = ev.f, 0
    aligned: V | None = None
    for sink in step.sinks:
        pointer, size = sink.roots[0], pointee_bytes(sink.roots[0].type)
        form = ev.analysis.pointer(pointer, chunking.index)
        contiguous = form.offset.coords == {chunking.index[0]: Poly.of(size)} and not form.offset.residual
        if form.base is None or not contiguous or chunking.lanes * size % memory.LINE:
            return None
        stored += step.shape[0] * size
        memory.hoist_address(ev, pointer, chunking.index)
        start = memory.address_of(ev, pointer, chunking.index).base
        whole = f.icmp("eq", f.and_(f.cast("ptrtoint", start, I64), memory.LINE - 1), 0)
        aligned = whole if aligned is None else f.and_(aligned, whole)
    if aligned is None:
        return None
    return f.and_(f.icmp("sge", f.mul(ev.programs, stored), _MANY_BYTES), aligned)


def fence(f: Function) -> None:
    """Make stores past the caches visible before the range ends."""
    if f.isa.is_x86:
        f.call("llvm.x86.sse.sfence", VOID, ())
