"""A loop nest over an iteration space: entered by every group, emitted for scans, atomics, histograms and the like.

for each outer dim
  for chunks of lanes
    evaluate the roots
    whatever the step does with a chunk
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tilewright.analysis.index import bits_of
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.lanes import Chunking
from tilewright.backends.cpu.plan.steps import Sink, Step
from tilewright.backends.llvm.types import I64, V, const
from tilewright.ir.values import is_tile


def enter_nest(ev: Evaluator, shape: tuple[int, ...], chunking: Chunking) -> None:
    """Begin a nest over `shape`."""
    bits = {d: bits_of(n) for d, n in enumerate(shape)}
    zeros = {d: count for d, (_, count) in chunking.lane_bits.items()}
    ev.enter(Nest(chunking.lanes, bits, zeros))


@contextmanager
def computing(ev: Evaluator, step: Step) -> Iterator[None]:
    """While a group is emitted, what it writes to its place is computed, not read."""
    own = {value: ev.placed[value] for value in step.computed(ev.placed)}
    if own:
        ev.restore({value: buffer for value, buffer in ev.placed.items() if value not in own})
    yield
    if own:
        ev.place(own)


def for_each_chunk(
    ev: Evaluator,
    sink: Sink,
    chunking: Chunking,
    body: Callable[[list[V]], None],
    begin: Callable[[], V] = lambda: const(I64, 0),
) -> None:
    """Emit `body` on the evaluated roots of every chunk; `begin` says where the last of the loops begins."""
    enter_nest(ev, sink.shape, chunking)
    roots = [(root, chunking.index) for root in sink.roots if is_tile(root)]
    with ExitStack() as stack:
        for number, (dim, extent, chunk) in enumerate(chunking.loops, 1):
            ev.hoist(roots)
            first = begin() if number == len(chunking.loops) else const(I64, 0)
            loop = stack.enter_context(ev.f.loop(first, extent, chunk, unroll=False))
            ev.open(dim, loop.index)
        body([ev.eval(root, chunking.index) for root in sink.roots])
        for dim, _, _ in reversed(chunking.loops):
            ev.close(dim)


def element_position(ev: Evaluator, chunking: Chunking, lane: V) -> list[V]:
    """Coordinates, i64, of lane number `lane` of the current chunk."""
    f, out = ev.f, []
    for dim, coord in enumerate(chunking.index):
        base = ev.coord(coord)
        low, count = chunking.lane_bits.get(dim, (0, 0))
        part = f.and_(f.lshr(lane, low) if low else lane, (1 << count) - 1) if count else const(I64, 0)
        out.append(f.add(base, part))
    return out
