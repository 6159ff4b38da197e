"""The loop nest of a group: outer loops, the loop along a reduced dim with its accumulators, one chunk of lanes inside.

    for each outer dim                    values that depend on it are emitted here
      accumulators = identity
      for chunks of the innermost dim
        evaluate the roots of all sinks
        stores and materializations; accumulators = combine(accumulators, chunk)
      fold the accumulators over the lanes, store or name the result

Groups in a loop over rows have the first dim's loop around all of them.
All roots of a chunk are evaluated before anything is stored, so that a tile may be replaced in place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import ExitStack

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form
from tilewright.analysis.index import Index
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.answers import tell_reductions
from tilewright.backends.cpu.emit.chunks import computing, enter_nest
from tilewright.backends.cpu.emit.context import FunctionLowering
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.emit.masks import Masks, Runs
from tilewright.backends.cpu.emit.nontemporal import past_caches, plan_streaming
from tilewright.backends.cpu.emit.prefetch_rows import RowPrefetchEmitter
from tilewright.backends.cpu.emit.quotients import RUN
from tilewright.backends.cpu.emit.reduce import Reduction
from tilewright.backends.cpu.emit.source_lines import at_line_of, loaded_by
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.direct_epilogue_store import DirectStore
from tilewright.backends.cpu.plan.lanes import (
    Chunking,
    chunk_pieces,
    chunks_of_a_run,
    make_chunking,
    row_pieces,
    vectorised,
)
from tilewright.backends.cpu.plan.sides import Sides, plan_sides
from tilewright.backends.cpu.plan.steps import Buffer, CopySink, MaterializeSink, ReduceSink, Sink, Step, StoreSink
from tilewright.backends.cpu.plan.subjects import NONTEMPORAL, TAIL, VECTORS
from tilewright.backends.cpu.plan.tail_chunks import FEWEST_CHUNKS, Tail, is_dead, plan_tail
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, I64, V, const, zero
from tilewright.base.decision import Answer, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name
from tilewright.ir.values import is_tile

_WRITE = (MaterializeSink, CopySink)


def emit_group(low: FunctionLowering, step: Step) -> None:
    """Emit a group of stores, materializations and reductions."""
    ev = low.ev
    place = low.direct.get(step.detail) if isinstance(step.detail, DirectStore) else None
    with computing(ev, step):
        with low.f.if_(low.f.not_(place.direct) if place is not None else const(I1, 1)):
            _emit(ev, step, low.row)
        if place is not None:
            ev.enter(Nest())


def emit_rows(low: FunctionLowering, step: Step) -> None:
    """Emit groups in one loop over their first dim, which ends where nothing is stored any more."""
    for group in step.bodies[0].steps:
        for sink in group.sinks:
            if isinstance(sink, ReduceSink) and sink.axis == 0:
                Reduction(low.ev, sink, make_chunking(sink.shape, [], 1, 1, 0)).empty()
    with low.f.loop(0, _stored_rows(low.ev, step), 1, unroll=False) as rows:
        low.row = rows.index
        for group in step.bodies[0].steps:
            emit_group(low, group)
        low.row = None
    low.ev.enter(Nest())


def _stored_rows(ev: Evaluator, step: Step) -> V | int:
    """The end of a loop over rows; all of them if groups leave more behind than what they store."""
    targets = [target for group in step.bodies[0].steps for sink in group.sinks for target in sink.targets]
    if any(target is not None and target.strides[0] for target in targets):
        return int(step.detail)
    ends: list[V] = []
    told, ev.decisions = ev.decisions, Decisions()  # the groups themselves answer
    for group in step.bodies[0].steps:
        if not group.stores:
            continue
        with computing(ev, group):
            chunking = _pieces(ev, group, const(I64, 0))[0]
            enter_nest(ev, group.shape, chunking)
            sides = plan_sides(group, chunking, ev.placed, ev.analysis)
            end = _GroupNest(ev, group, chunking, sides, None).end_of_rows()
        ends.append(const(I64, end) if isinstance(end, int) else end)
    ev.decisions = told
    return functools.reduce(functools.partial(ev.f.intrinsic, "smax"), ends)


def _pieces(ev: Evaluator, step: Step, row: V | None) -> list[Chunking]:
    """The chunks of a group, which may be in a loop over rows."""
    choose = chunk_pieces if row is None else row_pieces
    return choose(step, ev.f.isa, ev.placed, ev.analysis)


def _emit(ev: Evaluator, step: Step, row: V | None) -> None:
    pieces = _pieces(ev, step, row)
    for chunking in pieces:
        sides = plan_sides(step, chunking, ev.placed, ev.analysis)
        if chunking is pieces[0] and (row is None or math.prod(step.shape) > step.shape[0]):
            ev.decisions.note(VECTORS, step.place, vectorised(chunking, step.shape, bool(sides.bits)))
        tell_reductions(ev.decisions, step, chunking)
        enter_nest(ev, step.shape, chunking)
        nest = _GroupNest(ev, step, chunking, sides, row)
        store = next((sink.op for sink in step.sinks if isinstance(sink, StoreSink)), None)
        if store is not None:
            answer = plan_streaming(ev, step, chunking)
            nest.streamed = answer.plan if isinstance(answer, Yes) else None
            if chunking is pieces[0]:
                ev.decisions.note(NONTEMPORAL, store, answer)
        nest.emit()


class _GroupNest:
    """The emission of a group's loop nest."""

    def __init__(self, ev: Evaluator, step: Step, chunking: Chunking, sides: Sides, row: V | None) -> None:
        self.ev, self.step, self.chunking, self.sides, self.row = ev, step, chunking, sides, row
        ev.nest.lanes = sides.lanes
        self.f: Function = ev.f
        self.index: Index = chunking.index
        reduced = {
            n: Reduction(ev, sink, chunking) for n, sink in enumerate(step.sinks) if isinstance(sink, ReduceSink)
        }
        self.added = reduced if row is not None and step.axis == 0 else {}  # row by row
        self.reductions = [] if self.added else list(reduced.values())
        self.multiplied = {n: reduction for n, reduction in reduced.items() if reduction.multiplies and not self.added}
        self.roots = [(root, at) for root, _ in step.roots() if is_tile(root) for at in (*sides.indices, self.index)]
        self.targets = {number: _target(sink) for number, sink in enumerate(step.sinks) if isinstance(sink, _WRITE)}
        self.loops = [loop for loop in chunking.loops if row is None or loop[0] != 0]
        dim, extent, chunk = self.loops[-1] if self.loops else (-1, 1, 1)
        self.masks = Masks(ev, step, sides.indices, dim, cut=extent >= FEWEST_CHUNKS * chunk)
        self.settled: frozenset[tuple[SSAValue, Index]] = frozenset()  # comparisons that are true where loops end
        self.prefetched: list[RowPrefetchEmitter] = []  # rows of the next program that the chunks ask for
        self.streamed: int | None = None  # bytes of a program that may go past the caches

    def emit(self) -> None:
        """Emit the nest; of a group in a loop over rows, what is in that."""
        if self.row is None:
            self._emit_loops()
            return
        end = self.end_of_rows()
        self.ev.open(0, self.row)
        inside = const(I1, 1) if isinstance(end, int) else self.f.icmp("slt", self.row, end)
        with self.f.if_(inside), self.ev.knowing(self.settled, None):
            self._emit_loops()
        self.ev.close(0)

    def end_of_rows(self) -> V | int:
        """Where the first dim ends, whose loop is not open: what stands behind it is not stored."""
        return self._end(0, self.step.shape[0], 1, {dim for dim, _, _ in self.loops if dim != 0})

    def _emit_loops(self) -> None:
        axis = self.step.axis
        *outer, last = self.loops or [(-1, 1, 1)]
        # Accumulators live around the loops along the axis, which stand innermost.
        inside = last[0] == axis
        if not inside and last[0] >= 0 and self.reductions:
            outer, last = [*outer, last], (-1, 1, 1)
        closed = {dim for dim, _, _ in self.loops}
        with ExitStack() as stack:
            for dim, extent, chunk in outer:
                closed.discard(dim)
                self.ev.hoist(self.roots)
                first, end = self.chunking.first.get(dim, 0), self._end(dim, extent, chunk, closed)
                loop = stack.enter_context(self.f.loop(first, end, chunk, unroll=False))
                stack.enter_context(self.ev.knowing(self.settled, None))
                self.ev.open(dim, loop.index)
            self._finish(self._innermost(*last))
            for dim, _, _ in reversed(outer):
                self.ev.close(dim)

    def _end(self, dim: int, extent: int, chunk: int, closed: set[int]) -> V | int:
        """Where a loop around others ends: what stands behind it is not stored."""
        coord = self.index[dim]
        for form in self.masks.ends(dim, chunk, closed).values():
            if set(form.coords) == {coord} and not form.residual and is_dead(self.step, dim, form, self.ev.analysis):
                self.ev.decisions.note(TAIL, self.step.place, Yes(dim, "rows are left out"))
                self.settled |= self.masks.settle(form) if chunk == 1 else frozenset()
                return self.f.intrinsic("smin", self.masks.end([form], dim, chunk), const(I64, extent))
        return extent

    def _innermost(self, dim: int, extent: int, chunk: int) -> list[list[V]]:
        """The innermost loop, without masks where they hold, before and behind that with them."""
        starts = [r.start() for r in self.reductions]
        prefetched = [RowPrefetchEmitter(self.ev, row, self.index) for row in self.step.prefetched]
        if dim < 0:
            self.prefetched = prefetched
            return self._single(starts)
        self.ev.hoist(self.roots)
        flat = [v for start in starts for v in start]
        falling = self.masks.falling(chunk) if extent >= FEWEST_CHUNKS * chunk else []
        limit = self.masks.limit(extent, chunk, falling) if self.masks.any else const(I64, extent)
        first = self.chunking.first.get(dim, 0)
        begin = const(I64, first)
        if falling:
            begin = self.masks.begin(falling, first, extent, chunk)
            with self.ev.comparing(self.masks.by_lane):
                flat = self._loop(dim, const(I64, first), begin, chunk, flat)
        limit = self.f.intrinsic("smax", limit, begin) if first or falling else limit
        self.prefetched = prefetched
        if self.masks.runs is not None:
            flat = self._in_runs(self.masks.runs, dim, begin, limit, chunk, flat)
        else:
            with self.ev.knowing(self.masks.holds, self.masks.analysis):
                flat = self._unmasked(dim, begin, limit, chunk, flat)
        self.prefetched = []
        if self.masks.any:
            with self.ev.comparing(self.masks.by_lane):
                flat = self._masked(dim, limit, extent, chunk, flat)
        return _regroup(flat, starts)

    def _masked(self, dim: int, limit: V, extent: int, chunk: int, flat: list[V]) -> list[V]:
        """The chunks from `limit` on; those past the end of the row are computed once."""
        if extent < FEWEST_CHUNKS * chunk:
            return self._loop(dim, limit, extent, chunk, flat)
        ev, f = self.ev, self.f
        answers = [self._past(dim, self.masks.ends(dim, chunk)), self._past(dim, self.masks.outer(dim))]
        along, rows = ([each.plan for each in answer if isinstance(each, Yes)] for answer in answers)
        ev.decisions.note(TAIL, self.step.place, (answers[1] if rows else answers[0])[0])
        found = [*along, *rows]
        if not found:
            return self._loop(dim, limit, extent, chunk, flat)
        end: V = const(I64, extent)
        for past in along:
            end = f.intrinsic("smin", end, self.masks.end(past.forms, dim, chunk))
        for past in rows:
            end = f.select(self.masks.past(past.forms), limit, end)
        end = f.intrinsic("smax", limit, end)
        if found[0].once:
            end = f.intrinsic("smin", f.add(end, chunk), const(I64, extent))
        again = sorted({number for past in found for number in past.again})
        return self._and_again(dim, limit, end, extent, chunk, flat, again)

    def _past(self, dim: int, false: dict[tuple[SSAValue, Index], Form]) -> list[Answer[Tail]]:
        """What is known where each comparison that is enough by itself is false, or all of them are."""

        def plan(comparisons: dict[tuple[SSAValue, Index], Form]) -> Answer[Tail]:
            return plan_tail(self.step, self.sides.indices, dim, comparisons, self.ev.placed, self.ev.analysis)

        if len(false) > 1:
            alone = [plan({key: form}) for key, form in false.items()]
            if found := [answer for answer in alone if isinstance(answer, Yes)]:
                return list(found)
        return [plan(false)]

    def _and_again(self, dim: int, lo: V, end: V, extent: int, chunk: int, flat: list[V], again: list[int]) -> list[V]:
        """Chunks `lo` to `end`, and `again` what some sinks took in last for each chunk up to `extent`."""
        roots = [root for number in again for root in self.step.sinks[number].roots]
        values = [zero(storage(ir_name(element_type(root.type)), self.chunking.lanes)) for root in roots]
        both = self._loop(dim, lo, end, chunk, [*flat, *values], again)
        if not again:
            return both
        flat, values = both[: len(flat)], list(both[len(flat) :])
        same = {number: [values.pop(0) for _ in self.step.sinks[number].roots] for number in again}
        if all(number in self.multiplied for number in again):
            count = self.f.op("sdiv", self.f.sub(extent, end), chunk)
            times = {number: self.multiplied[number].times(value, count) for number, value in same.items()}
            return [v for result in self._taken_in(self._regrouped(flat), times, end) for v in result]
        with self.f.loop(end, extent, chunk, init=flat, unroll=False) as loop:
            self.ev.open(dim, loop.index)
            results = self._taken_in(self._regrouped(loop.values), same, loop.index)
            loop.next(*[v for result in results for v in result])
        self.ev.close(dim)
        return loop.results

    def _in_runs(self, runs: Runs, dim: int, begin: V, limit: V, chunk: int, flat: list[V]) -> list[V]:
        """Chunks `begin` to `limit`: up to where a quotient changes, then the one in which it does, and so on."""
        ev, f, masks = self.ev, self.f, self.masks

        def run(values: list[V]) -> list[V]:
            first, *flat = values
            ev.open(RUN, first)
            end = masks.end_of_run(runs, first, limit, chunk)
            with ev.knowing(masks.holds | runs.holds, runs.analysis):
                ev.hoist(self.roots)
                flat = self._unmasked(dim, first, end, chunk, flat)
            ev.close(RUN)
            after = f.intrinsic("smin", f.add(end, chunk), limit)
            with ev.knowing(masks.holds, masks.analysis):
                return [after, *self._loop(dim, end, after, chunk, flat)]

        ev.nest.bits[RUN], ev.nest.zeros[RUN] = ev.nest.bits[dim], ev.nest.zeros.get(dim, 0)
        return f.while_([begin, *flat], lambda values: f.icmp("slt", values[0], limit), run)[1:]

    def _unmasked(self, dim: int, begin: V, limit: V, chunk: int, flat: list[V]) -> list[V]:
        """The chunks in which masks hold; twice, if their stores may go past the caches."""
        f, ev = self.f, self.ev
        count = 1 if self.reductions else chunks_of_a_run(self.step, self.chunking, dim, ev.placed, ev.analysis)

        def chunks() -> list[V]:
            whole = limit if count == 1 else f.add(begin, f.and_(f.sub(limit, begin), -count * chunk))
            values = self._loop(dim, begin, whole, chunk, flat, count=count)
            is_all = whole is limit or (whole.const is not None and whole.const == limit.const)
            return values if is_all else self._loop(dim, whole, limit, chunk, values)

        return past_caches(ev, self.step, self.chunking, self.streamed, chunks)

    def _loop(
        self, dim: int, lo: V, hi: V | int, chunk: int, carried: list[V], kept: Sequence[int] = (), count: int = 1
    ) -> list[V]:
        """Chunks `lo` to `hi`, `count` in an iteration; gives the accumulators, and what some sinks took in last."""
        with self.f.loop(lo, hi, chunk * count, init=carried, unroll=False) as loop:
            flat = loop.values
            for number in range(count):
                index = self.f.add(loop.index, number * chunk) if number else loop.index
                self.ev.open(dim, index)
                values = self._values()
                flat = [v for result in self._taken_in(self._regrouped(flat), values, index) for v in result]
                last = [self.f.splat(v, self.chunking.lanes) for sink in kept for v in values[sink]]
                self.ev.close(dim)
            loop.next(*flat, *last)
        return loop.results

    def _regrouped(self, flat: Sequence[V]) -> list[list[V]]:
        """The accumulators of each reduction."""
        return _regroup(list(flat), [r.start() for r in self.reductions])

    def _single(self, starts: list[list[V]]) -> list[list[V]]:
        """Just one chunk at the current place in the nest."""
        if not self.masks.any or self.masks.dim >= 0:
            return self._chunk(starts, None)

        def variant(holds: frozenset[tuple[SSAValue, Index]], analysis: AffineAnalysis | None) -> list[V]:
            # Nothing evaluated in a branch may be remembered after it.
            self.ev.open_scope()
            with self.ev.knowing(holds, analysis):
                results = self._chunk(starts, None)
            self.ev.close_scope()
            return [v for result in results for v in result]

        whole, known = self.f.icmp("ne", self.masks.limit(1, 1), 0), (self.masks.holds, self.masks.analysis)
        return _regroup(self.f.if_else(whole, lambda: variant(*known), lambda: variant(frozenset(), None)), starts)

    def _chunk(self, carried: list[list[V]], position: V | None) -> list[list[V]]:
        """One chunk: evaluate, then store and accumulate."""
        return self._taken_in(carried, self._values(), position)

    def _values(self) -> dict[int, list[V]]:
        """What a chunk stores and accumulates, by the number of the sink."""
        ev, index = self.ev, self.index
        values: dict[int, list[V]] = {}
        for number, sink in enumerate(self.step.sinks):
            values[number] = [self._all_sides(root) for root in sink.values]
            if isinstance(sink, CopySink):
                values[number] = [memory.read_scratch(ev, sink.source, index, sink.source.elem)]
        for row in self.prefetched:
            row.ask()
        return values

    def _taken_in(self, carried: list[list[V]], values: dict[int, list[V]], position: V | None) -> list[list[V]]:
        """Store and accumulate, in all lanes of a chunk."""
        self.ev.nest.lanes = self.chunking.lanes
        accumulated = self._consume(carried, values, position)
        self.ev.nest.lanes = self.sides.lanes
        return accumulated

    def _all_sides(self, root: SSAValue) -> V:
        """A root for all lanes of the chunk."""
        values = [self.ev.eval(root, index) for index in self.sides.indices]
        for bit in self.sides.bits:
            lanes = max(value.type.lanes for value in values) or self.sides.lanes
            values = [self._woven(a, b, bit, lanes) for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def _woven(self, a: V, b: V, bit: int, lanes: int) -> V:
        """One vector of the lanes with a bit of their number clear, and of those with it set."""
        if a is b and not a.type.lanes:
            return a
        numbers = [(lane & (1 << bit) - 1 | lane >> bit + 1 << bit, lane >> bit & 1) for lane in range(2 * lanes)]
        order = [place + lanes * side for place, side in numbers]
        return self.f.shuffle(self.f.splat(a, lanes), self.f.splat(b, lanes), order)

    def _consume(self, carried: list[list[V]], values: dict[int, list[V]], position: V | None) -> list[list[V]]:
        """Store and accumulate what has been evaluated."""
        ev, index = self.ev, self.index
        accumulated: list[list[V]] = []
        for number, sink in enumerate(self.step.sinks):
            given = values.get(number)
            if isinstance(sink, ReduceSink) and number in self.added:
                if given is not None:
                    self.added[number].add_row(given, index)
            elif isinstance(sink, ReduceSink):
                k = len(accumulated)
                with at_line_of(ev.f, loaded_by(sink.op)):
                    accumulated.append(
                        carried[k] if given is None else self.reductions[k].step(carried[k], given, position)
                    )
            elif given is not None and isinstance(sink, StoreSink):
                memory.store_tile(ev, sink, index, given)
            elif given is not None:
                target = self.targets[number]
                name = target.elem if isinstance(sink, CopySink) else ir_name(element_type(sink.roots[0].type))
                memory.write_scratch(ev, target, index, given[0], name)
        return accumulated

    def _finish(self, accumulated: list[list[V]]) -> None:
        for reduction, values in zip(self.reductions, accumulated, strict=True):
            reduction.finish(values, self.index)


def _target(sink: Sink) -> Buffer:
    """Where a materialization or a copy goes, in the shape of the iteration space."""
    (target,) = sink.targets
    assert target is not None
    return target if target.shape == sink.shape else target.viewed(sink.shape)


def _regroup(flat: list[V], like: list[list[V]]) -> list[list[V]]:
    """Cut a flat list into pieces of the lengths of `like`."""
    out, at = [], 0
    for part in like:
        out.append(list(flat[at : at + len(part)]))
        at += len(part)
    return out
