"""`tt.scan`: along the lanes in log steps, or, where another dim has the lanes, one element after the other.

lanes across:  for columns: acc = x[0]; for i: acc = body(acc, x[i]); out[i] = acc
lanes along:   for chunks:  x = body(x shifted by s, x) for s = 1, 2, 4, ...      inside the chunk
                            x = body(last of the chunk before, x);  out = x

Stores of the results run in the same loop (`plan/scan_forwarding.py`), which goes on without masks as far as they hold.
What it would carry on from is the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.answers import tell_total
from tilewright.backends.cpu.emit.chunks import computing, enter_nest
from tilewright.backends.cpu.emit.context import FunctionLowering, emits
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.emit.masks import Masks
from tilewright.backends.cpu.emit.nontemporal import past_caches, plan_streaming
from tilewright.backends.cpu.emit.prefetch_rows import RowPrefetchEmitter
from tilewright.backends.cpu.emit.reduce import Reduction, apply_body
from tilewright.backends.cpu.plan.lanes import Chunking, make_chunking, survey
from tilewright.backends.cpu.plan.steps import ReduceSink, Step, StoreSink
from tilewright.backends.cpu.plan.subjects import NONTEMPORAL
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.types import I1, I64, T, V, const, const_vector, zero
from tilewright.ir.types import element_type, ir_name
from tilewright.ir.values import is_tile, property_int
from tilewright.ops.elementwise import AddFOp, MulFOp
from tilewright.ops.reduce import single_operation
from tilewright.ops.scan import ScanOp
from tilewright.ops.spec import spec_of


@emits(ScanOp)
def emit_scan(low: FunctionLowering, step: Step) -> None:
    """Emit one scan, with the stores and materializations that go along with it."""
    with computing(low.ev, step):
        _Scan(low.ev, step).emit()


class _Scan:
    def __init__(self, ev: Evaluator, step: Step) -> None:
        self.ev, self.f, self.step = ev, ev.f, step
        self.sink, *others = step.sinks
        self.totals = [sink for sink in others if isinstance(sink, ReduceSink)]
        self.others = [sink for sink in others if not isinstance(sink, ReduceSink)]
        assert self.sink.op is not None
        self.op, self.axis = self.sink.op, self.sink.axis
        self.body = self.op.regions[0].block
        self.reverse = bool(property_int(self.op, "reverse"))
        self.names = [ir_name(element_type(root.type)) for root in self.sink.roots]
        self.chunking = self._chunking(step)
        self.neutral = self._neutral()

    def _neutral(self) -> int | float | None:
        """What lanes before the first may hold so that a combination with them changes no bit; None: nothing is known.

        For sums of floats it is -0.0, as 0.0 turns -0.0 around. Products gain most: for lanes that a select drops LLVM
        takes whatever register is at hand, and where that holds subnormal numbers a multiplication takes many cycles.
        """
        op, t = single_operation(self.body), storage(self.names[0])
        if isinstance(op, AddFOp) and t.elem in ("float", "double"):
            return -0.0
        monoid = None if op is None else spec_of(op).monoid
        if monoid is None or not (t.is_int or (isinstance(op, MulFOp) and t.elem in ("float", "double"))):
            return None
        return monoid.identity(max(t.bits, 1))

    def _chunking(self, step: Step) -> Chunking:
        ev, shape = self.ev, self.sink.shape
        votes, widest = survey(step, ev.placed, ev.analysis)
        others = [d for d, n in enumerate(shape) if n > 1 and d != self.axis]
        others.sort(key=lambda d: (votes[d], d), reverse=True)
        native = max(2, ev.f.isa.vector_bytes // max(4, widest))
        along = not others or (votes[self.axis] > votes[others[0]] and shape[self.axis] >= native)
        if along:
            return make_chunking(shape, [self.axis], native, native, self.axis)
        return make_chunking(shape, others, tuning.NATIVE_VECTORS * native, native, self.axis)

    def emit(self) -> None:
        """Emit the nest."""
        ev, f, chunking = self.ev, self.f, self.chunking
        enter_nest(ev, self.sink.shape, chunking)
        roots = [(root, chunking.index) for root, _ in self.step.roots() if is_tile(root)]
        outer = [loop for loop in chunking.loops if loop[0] != self.axis]
        inner = [loop for loop in chunking.loops if loop[0] == self.axis]
        masks = Masks(ev, self.step, [chunking.index], self.axis) if inner else None
        streamed = self._streamed() if inner else None
        with ExitStack() as stack:
            for dim, extent, chunk in outer:
                ev.hoist(roots)
                ev.open(dim, stack.enter_context(f.loop(0, extent, chunk, unroll=False)).index)
            if masks is not None:
                ev.hoist(roots)
                self._total(self._row(*inner[0][1:], masks, streamed))
            else:
                self._total(self._chunk(None, None))
            for dim, _, _ in reversed(outer):
                ev.close(dim)

    def _streamed(self) -> int | None:
        """Bytes of a program that may go past the caches, None for no."""
        if not self.step.stores:
            return None
        return self.ev.decisions.note(
            NONTEMPORAL, self.step.stores[0].op, plan_streaming(self.ev, self.step, self.chunking)
        )

    def _total(self, carried: list[V]) -> None:
        """Reductions of the same elements give what the scan would carry on from."""
        for sink in self.totals:
            tell_total(self.ev.decisions, sink)
            Reduction(self.ev, sink, self.chunking).give(self._one(carried), self.chunking.index)

    def _one(self, carried: list[V]) -> list[V]:
        """What is carried, without the lanes along the axis, which all have the same."""
        return [self.f.extract(value, 0) for value in carried] if self._along else carried

    def _row(self, extent: int, chunk: int, masks: Masks, streamed: int | None) -> list[V]:
        """The loop along the axis, where masks hold without them: they hold from the first place on.

        Gives what another chunk would carry on from.
        """
        ev, f = self.ev, self.f
        limit = masks.limit(extent, chunk) if masks.any else const(I64, extent)
        start = [self._start(storage(name)) for name in self.names]
        prefetched = [RowPrefetchEmitter(ev, row, self.chunking.index) for row in self.step.prefetched]

        def unmasked(first: V, end: V, carried: list[V]) -> list[V]:
            with ev.knowing(masks.holds, masks.analysis):
                chunks = lambda: self._loop(first, end, extent, chunk, carried, prefetched)  # noqa: E731
                return past_caches(ev, self.step, self.chunking, streamed, chunks)

        if self.reverse:
            behind = f.sub(extent, limit)
            carried = self._loop(const(I64, 0), behind, extent, chunk, start) if masks.any else start
            return unmasked(behind, const(I64, extent), carried)
        carried = unmasked(const(I64, 0), limit, start)
        return self._loop(limit, const(I64, extent), extent, chunk, carried) if masks.any else carried

    def _loop(
        self, first: V, end: V, extent: int, chunk: int, carried: list[V], prefetched: Sequence[RowPrefetchEmitter] = ()
    ) -> list[V]:
        """Chunks in the order of the scan; gives what the next one carries on from."""
        ev, f = self.ev, self.f
        with f.loop(first, end, chunk, init=carried, unroll=False) as loop:
            ev.open(self.axis, f.sub(extent - chunk, loop.index) if self.reverse else loop.index)
            following = self._chunk(loop.values, f.icmp("eq", loop.index, 0))
            for row in prefetched:
                row.ask()
            loop.next(*following)
        ev.close(self.axis)
        return loop.results

    @property
    def _along(self) -> bool:
        """Whether the lanes lie along the axis."""
        return self.axis in self.chunking.lane_bits

    def _start(self, t: T) -> V:
        """What is carried into the first chunk."""
        value = zero(t) if self.neutral is None else const(t, self.neutral)
        return self.f.splat(value, self.chunking.lanes)

    def _chunk(self, carried: list[V] | None, first: V | None) -> list[V]:
        """One chunk; gives what the next one carries on from."""
        ev, f, index = self.ev, self.f, self.chunking.index
        values = [ev.vector(root, index) for root in self.sink.roots]
        if self._along:
            values = self._inside(values)
        alone = values
        if carried is not None and first is not None:
            if self.neutral is None:
                values = f.if_else(first, lambda: alone, lambda: apply_body(ev, self.body, [*carried, *alone]))
            else:
                values = apply_body(ev, self.body, [*carried, *alone])
        self._write(values)
        if not self._along:
            return values
        if carried is None or self.neutral is None:
            return [self._last(value) for value in values]
        # The last of the chunk once more, from what does not wait for the chunk before: the same numbers.
        return apply_body(ev, self.body, [*carried, *map(self._last, alone)])

    def _write(self, values: list[V]) -> None:
        """What a chunk computes, to scratch and to where stores want it."""
        ev, index = self.ev, self.chunking.index
        results = zip(self.op.results, values, self.sink.targets, self.names, strict=True)
        for result, value, target, name in results:
            ev.know(result, index, value)
            if target is not None:
                memory.write_scratch(ev, target, index, value, name)
        wanted = [[ev.eval(root, index) for root in sink.values] for sink in self.others]
        for sink, roots in zip(self.others, wanted, strict=True):
            if isinstance(sink, StoreSink):
                memory.store_tile(ev, sink, index, roots)
            else:
                (target,) = sink.targets
                assert target is not None
                memory.write_scratch(ev, target, index, roots[0], ir_name(element_type(sink.roots[0].type)))

    def _last(self, value: V) -> V:
        """The last element of a chunk in all lanes."""
        lanes = self.chunking.lanes
        return self.f.shuffle(value, None, [0 if self.reverse else lanes - 1] * lanes)

    def _inside(self, values: list[V]) -> list[V]:
        """The scan of one chunk on its own."""
        f, lanes = self.f, self.chunking.lanes
        by = 1
        while by < lanes:
            source = [lane + by if self.reverse else lane - by for lane in range(lanes)]
            inside = [0 <= lane < lanes for lane in source]
            if self.neutral is not None:
                # A rotation of two vectors, the value's lanes and, from `lanes` on, neutral ones: one instruction.
                filled = [lane % (2 * lanes) for lane in source]
                before = [f.shuffle(v, const(v.type, self.neutral), filled) for v in values]
                values = apply_body(self.ev, self.body, [*before, *values])
            else:
                clamped = [min(max(lane, 0), lanes - 1) for lane in source]
                before = [f.shuffle(v, None, clamped) for v in values]
                combined = apply_body(self.ev, self.body, [*before, *values])
                mask = const_vector(I1.vec(lanes), [int(kept) for kept in inside])
                values = [f.select(mask, new, old) for new, old in zip(combined, values, strict=True)]
            by *= 2
        return values
