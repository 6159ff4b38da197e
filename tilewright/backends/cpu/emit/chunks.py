"""A loop nest over an iteration space: entered by every group, emitted for scans, atomics, histograms and the like.

for each outer dim
  for chunks of lanes
    evaluate the roots
    whatever the step does with a chunk, or, `for_each_element`, with one lane after the other
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from tilewright.analysis.index import bits_of
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.lanes import Chunking
from tilewright.backends.cpu.plan.steps import Sink
from tilewright.backends.llvm.casts import load_bool, store_bool
from tilewright.backends.llvm.types import I64, V, const
from tilewright.ir.values import is_tile


def enter_nest(ev: Evaluator, shape: tuple[int, ...], chunking: Chunking) -> None:
    """Begin a nest over `shape`."""
    bits = {d: bits_of(n) for d, n in enumerate(shape)}
    zeros = {d: count for d, (_, count) in chunking.lane_bits.items()}
    ev.enter(Nest(chunking.lanes, bits, zeros))


def for_each_chunk(ev: Evaluator, sink: Sink, chunking: Chunking, body: Callable[[list[V]], None]) -> None:
    """Emit `body` on the evaluated roots of every chunk."""
    enter_nest(ev, sink.shape, chunking)
    roots = [(root, chunking.index) for root in sink.roots if is_tile(root)]
    with ExitStack() as stack:
        for dim, extent, chunk in chunking.loops:
            ev.hoist(roots)
            loop = stack.enter_context(ev.f.loop(0, extent, chunk, unroll=False))
            ev.open(dim, loop.index)
        body([ev.eval(root, chunking.index) for root in sink.roots])
        for dim, _, _ in reversed(chunking.loops):
            ev.close(dim)


def for_each_lane(ev: Evaluator, values: list[V], body: Callable[[V, list[V]], V | None]) -> V | None:
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


def element_position(ev: Evaluator, chunking: Chunking, lane: V) -> list[V]:
    """Coordinates, i64, of lane number `lane` of the current chunk."""
    f, out = ev.f, []
    for dim, coord in enumerate(chunking.index):
        base = ev.coord(coord)
        low, count = chunking.lane_bits.get(dim, (0, 0))
        part = f.and_(f.lshr(lane, low) if low else lane, (1 << count) - 1) if count else const(I64, 0)
        out.append(f.add(base, part))
    return out
