"""Scalarized chunks: one lane after the other, where vectors cannot, or only by a branch for each lane.

LLVM writes gathers and scatters that the hardware does not have as a load or store, and under a mask a branch, for each
lane: 64 of them were a quarter of the time that it took for a product with a strided result, and no faster than a loop.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.cpu.emit.values import Values
from tilewright.backends.llvm.casts import load_bool, store_bool
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I64, T, V, const

_FEW = 8
"""Lanes up to which straight code is as short as a loop."""


def for_each_lane(ev: Values, values: list[V], body: Callable[[V, list[V]], V | None]) -> V | None:
    """Emit `body(lane number, scalars)` in a loop over the lanes; its results, if any, are joined to a vector."""
    f, lanes = ev.f, ev.nest.lanes
    if not lanes:
        return body(const(I64, 0), values)
    stored = [store_bool(f, v) if v.type.elem == "i1" else v for v in values]
    arrays = [None if not v.type.lanes else f.alloca(v.type.scalar, lanes) for v in stored]
    for array, v in zip(arrays, stored, strict=True):
        if array is not None:
            f.store(v, array)
    out: V | None = None
    result: V | None = None
    with f.loop(0, lanes, unroll=False) as loop:
        scalars = []
        for array, v, original in zip(arrays, stored, values, strict=True):
            if array is None:
                scalars.append(original)
                continue
            item = f.load(v.type.scalar, f.gep(array, loop.index, v.type.scalar))
            scalars.append(load_bool(f, item) if original.type.elem == "i1" else item)
        result = body(loop.index, scalars)
        if result is not None:
            out = f.alloca(result.type, lanes)
            f.store(result, f.gep(out, loop.index, result.type))
    if out is None or result is None:
        return None
    return f.load(result.type.vec(lanes), out)


def in_straight_code(f: Function, values: list[V], lanes: int, body: Callable[[int, list[V]], None]) -> None:
    """Emit `body(lane number modulo 8, scalars)` for each of many lanes, several of them without a branch between."""
    if lanes <= _FEW:  # LLVM 22 loses upper halves of two lanes that are stored and loaded: none are
        for number in range(lanes):
            body(number, [f.extract(v, number) if v.type.lanes else v for v in values])
        return
    arrays = [None if not v.type.lanes else f.alloca(v.type.scalar, lanes) for v in values]
    for array, v in zip(arrays, values, strict=True):
        if array is not None:
            f.store(v, array)
    with f.loop(0, lanes, _FEW, unroll=False) as loop:
        for number in range(_FEW):
            lane = f.add(loop.index, number)
            scalars = [
                v if array is None else f.load(v.type.scalar, f.gep(array, lane, v.type.scalar))
                for array, v in zip(arrays, values, strict=True)
            ]
            body(number, scalars)


def gathers(isa: CpuFeatures, t: T, lanes: int) -> bool:
    """Whether a gather of so many lanes of `t` is better than a loop."""
    return lanes <= _FEW or (t.bits >= 32 and isa.has("avx2"))


def scatters(isa: CpuFeatures, t: T, lanes: int) -> bool:
    """Whether a scatter of so many lanes of `t` is better than a loop."""
    return lanes <= _FEW or (t.bits >= 32 and isa.has("avx512f"))
