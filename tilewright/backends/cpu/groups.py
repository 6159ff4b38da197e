"""The loop nest of a group: outer loops, the loop along a reduced dim with its accumulators, one chunk of lanes inside.

    for each outer dim                    values that depend on it are emitted here
      accumulators = identity
      for chunks of the innermost dim
        evaluate the roots of all sinks
        stores and spills; accumulators = combine(accumulators, chunk)
      fold the accumulators over the lanes, store or name the result

All roots of a chunk are evaluated before anything is stored, so that a tile may be replaced in place.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tilewright.backends.cpu import memory
from tilewright.backends.cpu.evaluator import Evaluator, Nest
from tilewright.backends.cpu.index import Index, bits_of, is_power_of_two
from tilewright.backends.cpu.lanes import Chunking, chunk_group
from tilewright.backends.cpu.lazy import is_tile
from tilewright.backends.cpu.masks import full_condition
from tilewright.backends.cpu.plan import Sink, Step
from tilewright.backends.cpu.reduce import Reduction
from tilewright.backends.llvm.types import V
from tilewright.ir.types import element_type, ir_name

if TYPE_CHECKING:
    from tilewright.backends.llvm.function import Function


def emit_group(ev: Evaluator, step: Step) -> None:
    """Emit a group of stores, spills and reductions."""
    own = {value: ev.placed[value] for value in step.computed(ev.placed)}
    if own:
        ev.restore({value: buffer for value, buffer in ev.placed.items() if value not in own})
    _emit(ev, step)
    if own:
        ev.place(own)


def _emit(ev: Evaluator, step: Step) -> None:
    chunking = chunk_group(step, ev.f.isa, ev.placed, ev.analysis)
    if chunking.lanes == 1:
        chunking.lanes = 0
    scalars = [result for sink in step.sinks if sink.kind == "reduce" for result in _scalar_results(sink)]
    condition = full_condition(ev, step)

    def variant(holds: frozenset[SSAValue]) -> list[V]:
        ev.holds = holds
        _GroupNest(ev, step, chunking).emit()
        ev.holds = frozenset()
        return [ev.scalars[value] for value in scalars]

    if condition is None:
        variant(frozenset())
        return
    test, holds = condition
    joined = ev.f.if_else(test, lambda: variant(holds), lambda: variant(frozenset()))
    for value, v in zip(scalars, joined, strict=True):
        ev.scalars[value] = v


def _scalar_results(sink: Sink) -> list[SSAValue]:
    assert sink.op is not None
    return [result for result in sink.op.results if not is_tile(result)]


class _GroupNest:
    """One emission of a group's loop nest."""

    def __init__(self, ev: Evaluator, step: Step, chunking: Chunking) -> None:
        self.ev, self.step, self.chunking = ev, step, chunking
        self.f: Function = ev.f
        self.index: Index = chunking.index
        self.reductions = [Reduction(ev, sink, chunking) for sink in step.sinks if sink.kind == "reduce"]
        self.roots = [(root, self.index) for root, _ in step.roots() if is_tile(root)]

    def emit(self) -> None:
        """Emit the nest."""
        shape = self.step.shape
        bits = {d: bits_of(n) if is_power_of_two(n) else 63 for d, n in enumerate(shape)}
        self.ev.enter(Nest(self.chunking.lanes, bits))
        axis = self.step.axis
        outer = [loop for loop in self.chunking.loops if loop[0] != axis]
        inner = [loop for loop in self.chunking.loops if loop[0] == axis]
        with ExitStack() as stack:
            for dim, extent, chunk in outer:
                self.ev.hoist(self.roots)
                loop = stack.enter_context(self.f.loop(0, extent, chunk, unroll=False))
                self.ev.open(dim, loop.index)
            if inner:
                self._along_axis(*inner[0])
            else:
                self._finish(self._chunk([r.start() for r in self.reductions], None))
            for dim, _, _ in reversed(outer):
                self.ev.close(dim)

    def _along_axis(self, dim: int, extent: int, chunk: int) -> None:
        """The loop that carries the accumulators."""
        starts = [r.start() for r in self.reductions]
        self.ev.hoist(self.roots)
        flat = [v for start in starts for v in start]
        with self.f.loop(0, extent, chunk, init=flat, unroll=False) as loop:
            self.ev.open(dim, loop.index)
            carried = _regroup(loop.values, starts)
            results = self._chunk(carried, loop.index)
            loop.next(*[v for result in results for v in result])
        self.ev.close(dim)
        self._finish(_regroup(loop.results, starts))

    def _chunk(self, carried: list[list[V]], position: V | None) -> list[list[V]]:
        """One chunk: evaluate, then store and accumulate."""
        ev, index = self.ev, self.index
        values: dict[int, list[V]] = {}
        for number, sink in enumerate(self.step.sinks):
            roots = sink.roots[1:] if sink.kind == "store" else sink.roots
            values[number] = [ev.eval(root, index) for root in roots]
        accumulated: list[list[V]] = []
        for number, sink in enumerate(self.step.sinks):
            if sink.kind == "store":
                memory.store_tile(ev, sink, index, values[number])
            elif sink.kind == "spill":
                (target,) = sink.targets
                assert target is not None
                name = ir_name(element_type(sink.roots[0].type))
                memory.write_scratch(ev, target, index, values[number][0], name)
            else:
                k = len(accumulated)
                accumulated.append(self.reductions[k].step(carried[k], values[number], position))
        return accumulated

    def _finish(self, accumulated: list[list[V]]) -> None:
        for reduction, values in zip(self.reductions, accumulated, strict=True):
            reduction.finish(values, self.index)


def _regroup(flat: list[V], like: list[list[V]]) -> list[list[V]]:
    """Cut a flat list into pieces of the lengths of `like`."""
    out, at = [], 0
    for part in like:
        out.append(list(flat[at : at + len(part)]))
        at += len(part)
    return out

