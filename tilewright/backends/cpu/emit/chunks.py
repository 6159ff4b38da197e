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
from tilewright.backends.cpu.emit.masks import Masks
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
    ev.drop(own)
    yield
    ev.place(own)


def for_each_chunk(
    ev: Evaluator,
    sink: Sink,
    chunking: Chunking,
    body: Callable[[list[V]], None],
    begin: Callable[[], V] = lambda: const(I64, 0),
    masked: Step | None = None,
) -> None:
    """Emit `body` on the evaluated roots of every chunk.

    Args:
        ev: evaluator.
        sink: of which the roots are evaluated.
        chunking: the nest.
        body: takes the roots of a chunk; emitted twice if there are masks that hold up to some chunk.
        begin: says where the last of the loops begins.
        masked: the group whose masks are tested once for the chunks of the last loop; None: by each chunk.
    """
    enter_nest(ev, sink.shape, chunking)
    roots = [(root, chunking.index) for root in sink.roots if is_tile(root)]

    def chunk() -> None:
        body([ev.eval(root, chunking.index) for root in sink.roots])

    if not chunking.loops:
        chunk()
        return
    *outer, (dim, extent, by) = chunking.loops
    masks = None if masked is None else Masks(ev, masked, [chunking.index], dim)

    def last(first: V, end: V) -> None:
        with ev.f.loop(first, end, by, unroll=False) as loop:
            ev.open(dim, loop.index)
            chunk()
        ev.close(dim)

    with ExitStack() as stack:
        for around, count, step in outer:
            ev.hoist(roots)
            ev.open(around, stack.enter_context(ev.f.loop(0, count, step, unroll=False)).index)
        ev.hoist(roots)
        if masks is None or not masks.any:
            last(begin(), const(I64, extent))
        else:
            limit = masks.limit(extent, by)
            with ev.knowing(masks.holds, masks.analysis):
                last(begin(), limit)
            last(limit, const(I64, extent))
        for around, _, _ in reversed(outer):
            ev.close(around)


def element_position(ev: Evaluator, chunking: Chunking, lane: V) -> list[V]:
    """Coordinates, i64, of lane number `lane` of the current chunk."""
    f, out = ev.f, []
    for dim, coord in enumerate(chunking.index):
        base = ev.coord(coord)
        low, count = chunking.lane_bits.get(dim, (0, 0))
        part = f.and_(f.lshr(lane, low) if low else lane, (1 << count) - 1) if count else const(I64, 0)
        out.append(f.add(base, part))
    return out
