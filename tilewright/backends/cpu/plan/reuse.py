"""Which values that several groups compute, or one group computes several times, are kept in scratch.

Walking the steps in order, a value that an earlier group computed and that costs more than reading it back is
materialized by that earlier group; one that a group would compute again for every row (an exp of a vector broadcast
over a tile) is materialized before the group. Loads of f32 and a few additions are cheaper to repeat than to keep.
"""

from __future__ import annotations

import enum
import math

from xdsl.ir import SSAValue

from tilewright.analysis.bounds import are_bounds
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index, identity
from tilewright.analysis.uniform import unrepeated
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.collect import FunctionContext
from tilewright.backends.cpu.plan.lanes import crosswise_loads, square_lanes, survey, vector_dim
from tilewright.backends.cpu.plan.steps import (
    Buffer,
    DotStep,
    GroupStep,
    MaterializeSink,
    ReduceSink,
    ScanSink,
    Step,
    StoreSink,
)
from tilewright.backends.cpu.plan.subjects import MATERIALIZED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import element_type, i1, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.control import ControlOp, LoopOp
from tilewright.ops.gather import GatherOp

_PLAIN = (StoreSink, MaterializeSink, ReduceSink, ScanSink)


def share_work(context: FunctionContext, order: list[Step], placed: dict[SSAValue, Buffer]) -> None:
    """Insert materializations into `order`; new places are added to `placed` and to the context."""
    sharing = _Sharing(context, order, placed)
    at = 0
    while at < len(order):
        at += sharing.visit(at)
    for value, answer in sharing.answers.items():
        context.decisions.note(MATERIALIZED, defining_op(value), answer)


class _Kept(enum.Enum):
    """What became of a value that should be kept."""

    NOT = enum.auto()
    ALONGSIDE = enum.auto()
    BEFORE = enum.auto()


class _Sharing:
    """The walk over the steps of one block."""

    def __init__(self, context: FunctionContext, order: list[Step], placed: dict[SSAValue, Buffer]) -> None:
        self.context = context
        self.demands = context.demands
        self.order = order
        self.placed = placed
        self.first: dict[SSAValue, Step] = {}
        self.packed: dict[SSAValue, Step] = {}  # what products compute where they pack it, and the first that does
        self.aligned: set[tuple[SSAValue, Step]] = set()
        self.answers: dict[SSAValue, Answer[Step]] = {}  # the last ones: a step may be looked at again

    def visit(self, at: int) -> int:
        """Decide for the step at position `at`; gives how far to move on (0 to look at it again)."""
        step = self.order[at]
        before = len(self.placed)
        if isinstance(step, GroupStep):
            if self._stage(step):
                return 0
            own = step.computed(self.demands.placed)
            for root, shape in list(step.roots()):
                starts = operand_indices(root, identity(shape)) if root in own else [(root, identity(shape))]
                if not all(self._walk(step, value, index, shape) for value, index in starts if is_tile(value)):
                    break
        elif isinstance(step, DotStep):
            for fill in step.detail.fills:
                for root, shape in fill.roots():
                    for value, _ in self.demands.walk(root, identity(shape)):
                        self.packed.setdefault(value, step)
        else:
            for value in filter(is_tile, step.needs):
                smallest = unrepeated(value)
                costly = smallest not in self.demands.placed and self.demands.cost(smallest) > tuning.LOOP_COST
                if costly and isinstance(step.op, LoopOp) and not self._are_bounds(smallest):
                    self._keep_before(smallest, step)
                    self.answers[smallest] = Yes(step, "once before the loop")
                shape = shape_of(value.type)
                if not self._walk(step, value, identity(shape), shape):
                    break
        return 1 if len(self.placed) == before else 0

    def _stage(self, step: Step) -> bool:
        """Spill a load whose neighbours in memory lie along another dim than the group's lanes; True if there was one.

        The materialization reads whole vectors; picking from scratch, in the first cache, replaces picking from memory.
        A group that does little else turns them in its own registers, where there are enough for squares of vectors.
        """
        shape = step.shape
        if len(shape) < 2 or math.prod(shape) < tuning.STAGED_ELEMENTS:
            return False
        context, placed = self.context, self.demands.placed
        with context.computing(step):
            votes, _ = survey(step, placed, context.analysis)
            dim = vector_dim(shape, votes)
            loads = next(crosswise_loads(step, dim, placed, context.analysis), None) if dim >= 0 else None
            if loads is None:
                return False
            cost = sum(self.demands.cost(root) for root, _ in step.roots() if is_tile(root))
            if cost <= tuning.SQUARE_COST and square_lanes(step, context.isa, placed, context.analysis):
                return False
        return self._keep_before(loads[0], step) is _Kept.BEFORE

    def _walk(self, step: Step, root: SSAValue, index: Index, shape: tuple[int, ...]) -> bool:
        """Look at everything that `root` at `index` makes `step` compute; False when the step must be visited anew."""
        seen: set[tuple[SSAValue, Index]] = set()
        stack = [(root, index, False)]
        while stack:
            value, at, told = stack.pop()
            if (value, at) in seen or not is_tile(value) or value in self.demands.placed:
                continue
            seen.add((value, at))
            host = self.first.get(value)
            if self._wanted_again(value, step, shape):
                kept, answer = self._keep(value, step, shape)
                if not told and self.demands.cost(value):
                    self.answers[value] = answer
                    told = True  # the parts of what is computed again need no answer of their own
                if kept is _Kept.BEFORE:
                    return False
                if kept is _Kept.ALONGSIDE:
                    continue  # what else the root needs is still to be looked at: later steps ask who computed it first
            if host is None:
                self.first[value] = step
            if at == identity(shape) and shape_of(value.type) == shape:
                self.aligned.add((value, step))
            stack.extend((operand, wanted, told) for operand, wanted in operand_indices(value, at))
        return True

    def _wanted_again(self, value: SSAValue, step: Step, shape: tuple[int, ...]) -> bool:
        """Whether another step computes `value` too, or this one does so for each row or column."""
        return self.first.get(value, step) is not step or self._repeated(value, shape)

    def _keep(self, value: SSAValue, step: Step, shape: tuple[int, ...]) -> tuple[_Kept, Answer[Step]]:
        """Keep a value that is wanted again, if that pays and what it needs is there in time."""
        answer = self._worth(value, step, shape)
        if isinstance(answer, No):
            return _Kept.NOT, answer
        kept = self._keep_before(value, step) if answer.plan is step else self._keep_in(value, answer.plan)
        return kept, No("what it needs is complete only later") if kept is _Kept.NOT else answer

    def _worth(self, value: SSAValue, step: Step, shape: tuple[int, ...]) -> Answer[Step]:
        """The step in or before which a value should be computed once."""
        cost, host = self.demands.cost(value), self.first.get(value, step)
        shared = host is not step and cost > tuning.SHARED_COST
        if not shared and not (self._repeated(value, shape) and cost > tuning.ROW_COST):
            return No("it is as cheap to compute again")
        if self._are_bounds(value):
            return No("loops are cut at the bounds that it is made of")
        return Yes(host, "for the passes that need it") if shared else Yes(step, "once for all rows")

    def _are_bounds(self, value: SSAValue) -> bool:
        """Whether a value is a mask that is not looked at where loops are cut (`emit/masks.py`): kept, it would be."""
        if element_type(value.type) != i1:
            return False
        return are_bounds(value, identity(shape_of(value.type)), self.context.analysis, tuning.MASK_COMPARISONS)

    def _repeated(self, value: SSAValue, shape: tuple[int, ...]) -> bool:
        """Whether a group over `shape` computes much smaller `value` again for each row or column."""
        extent = math.prod(shape_of(value.type))
        return tuning.ROW_SHARE * extent <= math.prod(shape) and extent > 1

    def _keep_in(self, value: SSAValue, host: Step) -> _Kept:
        """Spill `value` in the earlier step `host` that computes it, or before that."""
        host = self._earliest(value, host)
        plain = host.is_only(*_PLAIN)
        if (value, host) in self.aligned and plain:
            host.sinks.append(MaterializeSink(host.shape, [value], targets=[self._place(value)]))
            return _Kept.ALONGSIDE
        return self._keep_before(value, host)

    def _keep_before(self, value: SSAValue, step: Step) -> _Kept:
        """Spill `value` before `step` and before every earlier step that computes it.

        It goes to a group of its own, or to an earlier group over the same space.
        """
        earliest = self._earliest(value, step)
        if earliest is not step:
            return self._keep_in(value, earliest)
        shape = shape_of(value.type)
        sink = MaterializeSink(shape, [value])
        at = self.order.index(step)
        if not self._ready(value, at):
            return _Kept.NOT
        host = self._earlier_group(value, shape, at)
        cone = [key for key in self.demands.walk(value, identity(shape)) if key[0] is not value]
        sink.targets = [self._place(value)]
        if host is not None:
            host.sinks.append(sink)
        else:
            host = GroupStep(step.position, sinks=[sink])
            self.order.insert(at, host)
        self._note(cone, host)
        return _Kept.BEFORE

    def _earliest(self, value: SSAValue, step: Step) -> Step:
        """The first step that computes `value`, which would read it from its place if that had one; else `step`."""
        found = [known[value] for known in (self.first, self.packed) if value in known]
        return min([*found, step], key=self.order.index)

    def _ready(self, value: SSAValue, at: int) -> bool:
        """Whether nothing that `value` needs is written by the step at position `at` or later."""
        leaves = self.demands.leaves(value)
        for step in self.order[at:]:
            written = set(step.computed(self.demands.placed))
            written |= {result for sink in step.sinks if sink.op is not None for result in sink.op.results}
            if step.op is not None:
                written.update(step.op.results)
            if leaves & written:
                return False
        return True

    def _aligned(self, value: SSAValue, written: set[SSAValue]) -> bool:
        """Whether computing `value` reads the values `written` only at its own index."""
        wanted = identity(shape_of(value.type))
        for other, index in self.demands.walk(value, wanted):
            op = defining_op(other)
            if isinstance(op, GatherOp) and op.operands[0] in written:
                return False
            if other in written and index != wanted:
                return False
        return True

    def _note(self, cone: list[tuple[SSAValue, Index]], host: Step) -> None:
        """`host`, an earlier step than those seen, now computes the values of `cone`."""
        at = self.order.index(host)
        for value, index in cone:
            known = self.first.get(value)
            if value not in self.demands.placed and (known is None or self.order.index(known) > at):
                self.first[value] = host
                if index == identity(host.shape) and shape_of(value.type) == host.shape:
                    self.aligned.add((value, host))

    def _place(self, value: SSAValue) -> Buffer:
        buffer = self.placed[value] = self.context.place(value)
        return buffer

    def _earlier_group(self, value: SSAValue, shape: tuple[int, ...], at: int) -> Step | None:
        """A group before position `at` that runs over `shape` after everything that `value` needs."""
        leaves = self.demands.leaves(value)
        if self.demands.loads(value):
            return None
        for step in reversed(self.order[max(0, at - tuning.MATERIALIZE_LOOK_BACK) : at]):
            written = {root for sink in step.sinks for root in sink.roots if isinstance(sink, MaterializeSink)}
            results = set(step.op.results) if step.op is not None else set()
            results |= {result for sink in step.sinks if sink.op is not None for result in sink.op.results}
            apart = step.bodies or isinstance(step, DotStep) or isinstance(step.op, ControlOp)
            if leaves & results or apart:
                return None
            if isinstance(step, GroupStep) and step.shape == shape and not any(s.axis >= 0 for s in step.sinks):
                plain = step.is_only(MaterializeSink, StoreSink) and not step.writes
                if plain and (not leaves & written or self._aligned(value, written)):
                    return step
            if leaves & written:
                return None
        return None
