"""Loops that run strip by strip, with what they carry in registers (`plan/strips.py`).

for strips of the tile (as far as masks hold without them, then with them):
  sums = scratch[strip]
  for the iterations:   scalars of an iteration;   sums = what it makes of them
  scratch[strip] = sums
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.chunks import computing, enter_nest
from tilewright.backends.cpu.emit.context import FunctionLowering
from tilewright.backends.cpu.emit.counting import Counting, bind, scalars_of
from tilewright.backends.cpu.emit.masks import Masks
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.lanes import strip_chunks, vectorised
from tilewright.backends.cpu.plan.steps import BlockPlan, Buffer, EndStep, GroupStep, ScalarStep
from tilewright.backends.cpu.plan.subjects import VECTORS
from tilewright.backends.llvm.types import I64, V, const
from tilewright.ir.types import element_type, ir_name, is_pointer
from tilewright.ir.values import is_made_inside, is_tile
from tilewright.ops.control import ForOp

Loop = tuple[int, int, int]  # dim, extent and step


def emit_strips(low: FunctionLowering, op: ForOp, body: BlockPlan, tiles: dict[SSAValue, Buffer]) -> None:
    """A loop, strip by strip.

    Args:
        low: the function.
        op: the loop.
        body: the plan of its body.
        tiles: where what it carries lies before and behind it, by argument of its body.
    """
    before = dict(low.ev.placed)
    low.ev.place(tiles)
    low.ev.place(body.placed)
    assert body.strips is not None
    with computing(low.ev, body.strips):
        _Strips(low, op, body, body.strips, tiles).emit()
    low.ev.restore(before)
    low.ev.enter(Nest())


class _Strips:
    def __init__(
        self, low: FunctionLowering, op: ForOp, body: BlockPlan, group: GroupStep, tiles: dict[SSAValue, Buffer]
    ) -> None:
        self.low, self.ev, self.f, self.op, self.group, self.tiles = low, low.ev, low.f, op, group, tiles
        self.scalars = [step for step in body.steps if isinstance(step, ScalarStep)]
        (end,) = [step.op for step in body.steps if isinstance(step, EndStep)]
        assert end is not None
        self.end = end
        numbers = {buffer: argument for argument, buffer in tiles.items()}
        self.sums = [(numbers[sink.targets[0]], sink.roots[0]) for sink in self.group.sinks]  # type: ignore[index]
        self.widths = strip_chunks(self.group, self.f.isa, self.ev.placed, self.ev.analysis)
        self.index = self.widths[0].index
        self.counting = Counting(self.ev, self.op)
        self.firsts = scalars_of(self.ev, self.op.operands[3:])

    def emit(self) -> None:
        """Emit the strips; what scalars the loop gives is the same after each of them."""
        ev = self.ev
        ev.decisions.note(VECTORS, self.group.place, vectorised(self.widths[0], self.group.shape))
        enter_nest(ev, self.group.shape, self.widths[0])
        *outer, row = self.widths[-1].loops or [(-1, 1, 1)]
        bind(ev, self.op.results, self._around(outer, row, self.firsts))

    def _around(self, outer: Sequence[Loop], row: Loop, results: Sequence[V]) -> Sequence[V]:
        """The loops around the innermost one."""
        if not outer:
            return self._row(*row, results)
        (dim, extent, by), *inner = outer
        with self.f.loop(0, extent, by, init=list(results), unroll=False) as loop:
            self.ev.open(dim, loop.index)
            loop.next(*self._around(inner, row, loop.values))
        self.ev.close(dim)
        return loop.results

    def _row(self, dim: int, extent: int, _: int, results: Sequence[V]) -> Sequence[V]:
        """The strips along the innermost loop, if there is one: as far as masks hold wide ones without masks."""
        ev, begin, by = self.ev, const(I64, 0), extent
        for chunking in self.widths:
            ev.nest.lanes, self.index = chunking.lanes, chunking.index
            ev.nest.zeros = {d: count for d, (_, count) in chunking.lane_bits.items()}
            by = next((step for d, _, step in chunking.loops if d == dim), extent)
            masks = Masks(ev, self.group, [self.index], dim)
            if not masks.any:
                return self._along(dim, begin, const(I64, extent), by, results)
            limit = self.f.intrinsic("smax", begin, masks.limit(extent, by))
            with ev.knowing(masks.holds, masks.analysis):
                results = self._along(dim, begin, limit, by, results)
            begin = limit
        return self._along(dim, begin, const(I64, extent), by, results)

    def _along(self, dim: int, first: V, end: V, by: int, results: Sequence[V]) -> Sequence[V]:
        """Strips `first` to `end`."""
        ev, known = self.ev, dict(self.ev.scalars)
        with self.f.loop(first, end, by, init=list(results), unroll=False) as loop:
            ev.open(dim, loop.index)
            loop.next(*self._strip())
        ev.close(dim)
        ev.scalars.clear()
        ev.scalars.update(known)
        return loop.results

    def _strip(self) -> list[V]:
        """All iterations, of one strip; gives the scalars that the loop gives."""
        ev, index, count = self.ev, self.index, len(self.firsts)
        self._before()
        sums = [ev.vector(argument, index) for argument, _ in self.sums]
        init = [*self.firsts, *self.counting.init, *sums]
        with self.f.loop(*self.counting.ends, init=init, unroll=False) as loop:
            ev.open_scope()
            numbers = loop.values[count : len(init) - len(sums)]
            following = self.counting.begin(loop.index, numbers)
            bind(ev, self.op.body.block.args[1:], loop.values[:count])
            for (argument, _), value in zip(self.sums, loop.values[len(init) - len(sums) :], strict=True):
                ev.know(argument, index, value)
            for step in self.scalars:
                self.low.emit_step(step)
            made = [ev.vector(root, index) for _, root in self.sums]
            loop.next(*scalars_of(ev, self.end.operands), *following, *made)
            ev.close_scope()
        totals = loop.results[len(init) - len(sums) :]
        for sink, (_, root), value in zip(self.group.sinks, self.sums, totals, strict=True):
            assert sink.targets[0] is not None
            memory.write_scratch(ev, sink.targets[0], index, value, ir_name(element_type(root.type)))
        return loop.results[:count]

    def _before(self) -> None:
        """Computes what a strip reads in all iterations alike."""
        stack, seen = [(root, self.index) for _, root in self.sums], set[tuple[SSAValue, Index]]()
        while stack:
            value, index = stack.pop()
            if (value, index) in seen or not is_tile(value) or is_pointer(element_type(value.type)):
                continue
            seen.add((value, index))
            if is_made_inside(value, self.op):
                stack += operand_indices(value, index) if value not in self.tiles else []
            elif constant_of(value) is None:
                self.ev.eval(value, index)
