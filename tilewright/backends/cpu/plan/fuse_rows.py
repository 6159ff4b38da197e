"""Outer loop fusion: passes over one row after the other are one loop over rows, with the passes in it.

    for row: reduce x[row, :] -> m[row]              for row:
    for row: materialize exp(x[row, :] - m[row])          reduce x[row, :] -> m
    for row: store                                   ->    materialize exp(x[row, :] - m)
                                                           store

A pass over a tile of many rows leaves the first cache before the next pass comes to its first row; in one loop each
pass finds the row where the last one left it, and what is kept for a row alone takes the room of one row. It is as it
was for each element where a pass reads of what the others write its own row only, and stores meet no other row.

Sums over the rows, of what such a pass computes, are made in it, too: each row is added to a row of sums in scratch,
in the order in which a loop along the rows would add them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from xdsl.ir import Block, SSAValue

from tilewright.analysis.distinct import PROVED, Bounds, distinct
from tilewright.analysis.index import Index, identity, whole
from tilewright.analysis.origins import Origins
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.collect import FunctionContext
from tilewright.backends.cpu.plan.dependence import Accesses, Place, address_of
from tilewright.backends.cpu.plan.lanes import chunk_pieces
from tilewright.backends.cpu.plan.steps import (
    BlockPlan,
    Buffer,
    MaterializeSink,
    ReduceSink,
    RowsStep,
    ScalarStep,
    Sink,
    Step,
    StoreSink,
)
from tilewright.backends.cpu.plan.subjects import ROWS_FUSED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.elementwise import MaxNumFOp, MinNumFOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import single_operation
from tilewright.ops.spec import spec_of

_PLAIN = (StoreSink, MaterializeSink, ReduceSink)
_ADDED = ("i8", "i16", "i32", "i64", "f32", "f64")


@dataclass(slots=True)
class _Run:
    """Steps one after the other, the passes among them over the same rows.

    Args:
        rows: of each pass.
        passes: in order.
        accesses: of memory by the passes.
        written: where in scratch they write.
        read: what they read there.
        elsewhere: what they read there of other rows.
        before: steps between them that do not depend on them.
    """

    rows: int
    passes: list[Step] = field(default_factory=list)
    accesses: Accesses = field(default_factory=Accesses)
    written: set[Buffer] = field(default_factory=set)
    read: set[Buffer] = field(default_factory=set)
    elsewhere: set[Buffer] = field(default_factory=set)
    before: list[Step] = field(default_factory=list)


def fuse_rows(context: FunctionContext, block: Block, order: list[Step]) -> list[Step]:
    """The steps of a block with runs of passes over the same rows as loops over rows.

    Args:
        context: of the function, with what lives in scratch behind these steps.
        block: of the steps.
        order: the steps, as they would run.
    """
    fusing = _Fusing(context, block)
    for step in order:
        for part in fusing.parts(step):
            fusing.take(part)
    fusing.flush()
    return fusing.done


class _Fusing:
    """The walk over the steps of a block."""

    def __init__(self, context: FunctionContext, block: Block) -> None:
        self.context, self.block, self.origins = context, block, Origins()
        self.done: list[Step] = []
        self.run: _Run | None = None

    def take(self, step: Step) -> None:
        """Put a step into the run, in front of it, or behind it."""
        rows = self._rows(step)
        run = self.run
        if run is not None and rows == run.rows:
            answer = self._joins(step, run)
            self.context.decisions.note(ROWS_FUSED, step.place, answer)
            if isinstance(answer, Yes):
                self._add(step, run)
                return
        if run is not None and self._may_go_first(step, run):
            run.before.append(step)
            return
        self.flush()
        if rows and not _is_short(step):
            self.run = _Run(rows)
            self._add(step, self.run)
        else:
            self.done.append(step)

    def parts(self, step: Step) -> list[Step]:
        """A pass, or two where it joins a run: sums over rows apart from what is stored in memory.

        Stores wait for each other in order, those that hit the first cache for those that miss it.
        """
        run = self.run
        sums = [sink for sink in step.sinks if sink.axis == 0]
        if run is None or not step.stores or not sums or len(step.stores) + len(sums) < len(step.sinks):
            return [step]
        if self._rows(step) != run.rows or not isinstance(self._joins(step, run), Yes):
            return [step]
        return [replace(step, sinks=sums, writes=False), replace(step, sinks=list(step.stores))]

    def flush(self) -> None:
        """End the run."""
        run, self.run = self.run, None
        if run is None:
            return
        behind = []
        while _is_short(run.passes[-1]):  # vectors are faster where nobody waits for them
            behind.append(run.passes.pop())
        self.done += run.before
        if len(run.passes) == 1:
            self.done += run.passes
        else:
            body, writes = BlockPlan(self.block, run.passes), any(step.writes for step in run.passes)
            self.done.append(RowsStep(run.passes[0].position, writes=writes, bodies=[body], detail=run.rows))
        self.done += reversed(behind)

    def _rows(self, step: Step) -> int:
        """Rows that a pass goes over one after the other; 0 if it does not."""
        shape = step.shape
        if step.detail is not None or not step.is_only(*_PLAIN):
            return 0
        if not shape or shape[0] == 1 or not all(_has_rows(sink) for sink in step.sinks):
            return 0
        if step.axis == 0 and not (_adds_rows(step) and self._read(step, shape[0])[0].isdisjoint(_written(step))):
            return 0
        if _is_short(step):
            return shape[0] if step.axis else 0
        if step.axis == 0 and math.prod(shape[1:]) < tuning.SUMMED_ROW:
            return 0
        with self.context.computing(step):
            pieces = chunk_pieces(step, self.context.isa, self.context.demands.placed, self.context.analysis)
        return 0 if any(0 in chunking.lane_bits for chunking in pieces) else shape[0]

    def _joins(self, step: Step, run: _Run) -> Answer[Step]:
        """Whether a pass can run in the loop over rows of a run."""
        longest = max(math.prod(each.shape[1:]) for each in run.passes)
        if _is_short(step) and longest < tuning.SCALAR_ROW:
            return No("a few numbers of each row are computed as vectors of many rows, as the rows are short")
        if self._read(step, run.rows)[1] & run.written or run.elsewhere & _written(step):
            return No("it reads other rows of what the pass before it writes")
        if run.accesses.may_meet(self._accesses(step), _lies_apart):
            return No("what is stored might be loaded or stored in another row")
        return Yes(step, f"the loop over {run.rows} rows is that of the pass before it")

    def _add(self, step: Step, run: _Run) -> None:
        run.passes.append(step)
        run.accesses.include(self._accesses(step))
        run.written |= _written(step)
        read, elsewhere = self._read(step, run.rows)
        run.read |= read
        run.elsewhere |= elsewhere

    def _may_go_first(self, step: Step, run: _Run) -> bool:
        """Whether a step that belongs to no row, and does nothing but compute, needs nothing of a run."""
        kept = step.is_only(MaterializeSink)
        if step.writes or step.reads or not (kept or isinstance(step, ScalarStep)):
            return False
        demands = self.context.demands
        with self.context.computing(step):
            values = [*step.needs, *(root for root, _ in step.roots())]
            needed = set(values).union(*(demands.leaves(value) for value in values))
        if {demands.placed.get(value) for value in needed} & run.written or (run.read | run.written) & _written(step):
            return False
        return not (kept and run.accesses.may_meet(self._accesses(step), _lies_apart))

    def _read(self, step: Step, rows: int) -> tuple[set[Buffer], set[Buffer]]:
        """What a pass reads in scratch, and of that what it reads of other rows than its own."""
        row, placed = whole(0, rows), self.context.demands.placed
        read, elsewhere = set[Buffer](), set[Buffer]()
        for value, index in self._wanted(step):
            if value in placed:
                (read if index[:1] == (row,) else elsewhere).add(placed[value])
            if isinstance(op := defining_op(value), GatherOp) and op.operands[0] in placed:
                elsewhere.add(placed[op.operands[0]])
        return read | elsewhere, elsewhere

    def _wanted(self, step: Step) -> list[tuple[SSAValue, Index]]:
        """Everything that a pass evaluates, and at which index."""
        demands = self.context.demands
        with self.context.computing(step):
            found = {
                key: None
                for root, shape in step.roots()
                if is_tile(root)
                for key in demands.walk(root, identity(shape))
            }
        return list(found)

    def _accesses(self, step: Step) -> Accesses:
        """What a pass loads and stores."""
        found, analysis, origins = Accesses(), self.context.analysis, self.origins
        for sink in step.sinks:
            if isinstance(sink, StoreSink):
                found.add(address_of(sink.op, identity(sink.shape), sink.shape, analysis, origins), store=True)
        placed = self.context.demands.placed
        own = set(step.computed(placed))
        for value, index in self._wanted(step):
            op = defining_op(value)
            if isinstance(op, LoadOp) and (value not in placed or value in own):
                found.add(address_of(op, index, step.shape, analysis, origins), store=False)
        return found


def _is_short(step: Step) -> bool:
    """Whether a pass has one element of each row, or a few: it joins a loop over rows, and starts none."""
    return math.prod(step.shape[1:]) < tuning.FUSED_ROW


def _written(step: Step) -> set[Buffer]:
    """Where in scratch a pass writes."""
    return {target for sink in step.sinks for target in sink.targets if target is not None}


def _has_rows(sink: Sink) -> bool:
    """Whether what a sink writes to scratch has the rows of its pass as its first dim."""
    expected = tuple(extent for dim, extent in enumerate(sink.shape) if dim != sink.axis)
    return all(target is None or target.shape == expected for target in sink.targets)


def _adds_rows(step: Step) -> bool:
    """Whether each row of a pass that reduces the rows may be added to results in the first cache."""
    size = 0
    for sink in [sink for sink in step.sinks if isinstance(sink, ReduceSink)]:
        op, (target, *others) = single_operation(sink.op.regions[0].block), sink.targets
        if op is None or spec_of(op).monoid is None or others or target is None:
            return False
        if isinstance(op, MaxNumFOp | MinNumFOp) or target.elem not in _ADDED:
            return False
        size += target.size
    return size <= tuning.ROW_SUMS_BYTES


def _lies_apart(place: Place, bounds: Bounds) -> bool:
    """Whether the elements of a place have an address each, whatever the launch."""
    answer = distinct(dict(place.coords), place.shape, place.size, bounds)
    return isinstance(answer, Yes) and answer.plan == PROVED
