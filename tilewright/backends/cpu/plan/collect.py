"""From the operations of a block to its steps, in program order: what runs, what it needs, where results go.

Lazy operations make no step. A value that something needs as a whole (an operand of a dot, the source of a gather, a
tile handed to a region) gets a materialization: a step that writes it to scratch. So does the source of a reshape that
no index can express. Grouping and ordering come after (`planner`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.traits import IsTerminator

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.captured import Captured
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import is_ragged
from tilewright.analysis.index import identity
from tilewright.analysis.matrices import MemoryOperand, memory_operand, strip_views
from tilewright.backends.cpu.plan.combining import Combining, plan_combining
from tilewright.backends.cpu.plan.dead_rows import dead_dims
from tilewright.backends.cpu.plan.demand import Demands
from tilewright.backends.cpu.plan.dot import describe
from tilewright.backends.cpu.plan.dot_operands import Operand, ScratchOperand, scratch_operand
from tilewright.backends.cpu.plan.dot_step import (
    DotDetail,
    a_in_place,
    accumulates,
    accumulating_dot,
    accumulator,
    b_in_place,
    dot_plan,
    extended,
    is_ready,
    rows_exist,
)
from tilewright.backends.cpu.plan.k_strip_mining import KStrips, plan_k_strips
from tilewright.backends.cpu.plan.lanes import loaded_along
from tilewright.backends.cpu.plan.launches import Launches
from tilewright.backends.cpu.plan.pack_cache import PackCache, plan_cache
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.steps import (
    Buffer,
    CopySink,
    DotStep,
    EndStep,
    GroupStep,
    MaterializeSink,
    OwnSink,
    ReduceSink,
    ScalarStep,
    ScanSink,
    Sink,
    Step,
    StoreSink,
    tile_buffer,
)
from tilewright.backends.cpu.plan.subjects import ACCUMULATOR, DEAD_ROWS, DOT, IN_PLACE, K_STRIPS, KEPT, UNPACKED
from tilewright.backends.cpu.refused import refusal
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.errors import CompilationError, UnsupportedError
from tilewright.ir.decisions import Decisions
from tilewright.ir.effect_traits import is_atomic
from tilewright.ir.op import location_of
from tilewright.ir.traits import is_collective
from tilewright.ir.types import bit_width, element_type, ir_name, is_integer, is_pointer, shape_of
from tilewright.ir.values import defining_op, is_tile, property_int
from tilewright.ir.walk import among, every, operations
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp
from tilewright.ops.check import CheckOp
from tilewright.ops.control import ForOp, IfOp, LoopOp, WhileOp
from tilewright.ops.debug import AssertOp, BarrierOp, PrintOp
from tilewright.ops.dot import DotOp
from tilewright.ops.function import CallOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp, StoreOp, is_volatile
from tilewright.ops.program import AssumeOp, GetNumProgramsOp, GetProgramIdOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.shape import TransOp, UnsplatOp

_IGNORED = (AssumeOp, BarrierOp)
_REGIONS = (ForOp, IfOp, WhileOp, CallOp)


class FunctionContext:
    """What the planning of one function shares.

    Attributes:
        isa: the target.
        captured: what regions take from outside.
        hands_tiles: whether it calls functions with tiles, which lie row-major then.
        demands: placement and cones.
        analysis: affine forms under that placement.
        buffers: every buffer made.
        must_place: loads whose value must be taken at their place, because memory may change before it is used, and
            carried tiles that need a detour (see `Replan`).
        where: position and block of every load.
        caches, sums: packed operands, and atomic sums, kept between programs.
        launches: for which the plan is.
        decisions: what planners have answered.
    """

    def __init__(
        self, isa: CpuFeatures, captured: Captured, facts: ElementFacts, must_place: set[object], launches: Launches
    ) -> None:
        self.isa, self.launches = isa, launches
        self.captured = captured
        calls = (op for op in every(facts.function, CallOp))
        self.hands_tiles = any(is_tile(value) for call in calls for value in (*call.operands, *call.results))
        self.facts = facts
        self.demands = Demands(self._is_address, lambda value: max(self.facts[value].constancy, default=1))
        self.analysis = AffineAnalysis(lambda value: value in self.demands.placed, facts)
        self.buffers: list[Buffer] = []
        self.must_place = must_place
        self.where: dict[Operation, tuple[Block, float]] = {}
        self.caches: list[PackCache] = []
        self.sums: list[Combining] = []
        self.decisions = Decisions()

    def _is_address(self, value: SSAValue) -> bool:
        element, index = element_type(value.type), identity(shape_of(value.type))
        if is_pointer(element):
            form = self.analysis.pointer(value, index)
            return form.base is not None and not form.offset.residual
        return is_integer(element) and bit_width(element) >= 32 and not self.analysis.integer(value, index).residual

    def place(self, value: SSAValue, buffer: Buffer | None = None) -> Buffer:
        """Give a tile value a place in scratch."""
        if buffer is None:
            buffer = self.new_buffer(tile_buffer(value.type))
        self.demands.place({value: buffer})
        self._moved((value,))
        return buffer

    def drop(self, values: Collection[SSAValue]) -> None:
        """Undo `place`."""
        self.demands.drop(values)
        self._moved(values)

    @contextmanager
    def computing(self, step: Step) -> Iterator[None]:
        """See `Demands.computing`."""
        own = step.computed(self.demands.placed)
        self._moved(own)
        with self.demands.computing(step):
            yield
        self._moved(own)

    def _moved(self, values: Collection[SSAValue]) -> None:
        """Told of values that got a place, or lost it."""
        if self.analysis.moved(values):
            self.demands.forget_costs()

    def keep(self, name: Literal["a", "b"], dot: Operation, detail: DotDetail, size: int) -> None:
        """Keep a packed operand of `size` bytes for a whole range of programs, where that is possible."""
        operand, value = (detail.a, dot.operands[0]) if name == "a" else (detail.b, dot.operands[1])
        answer: Answer[PackCache] = No(f"operand {name} is not read from memory")
        if isinstance(operand, MemoryOperand) or operand.fill is not None:
            source = operand if isinstance(operand, MemoryOperand) else value
            answer = plan_cache(name, source, dot, size, joined=detail.joined is not None)
        cache = self.decisions.note(KEPT, dot, answer)
        if cache is not None:
            detail.kept[name] = cache
            self.caches.append(cache)
            self.new_buffer(cache.panels)
            self.new_buffer(cache.state)

    def combined(self, atomic: Operation) -> Answer[Combining]:
        """How an atomic is combined; sums that a thread keeps have memory for its whole range of programs."""
        answer = plan_combining(atomic, self.analysis)
        if isinstance(answer, Yes) and answer.plan.kept is not None:
            self.sums.append(answer.plan)
            self.new_buffer(answer.plan.kept)
        return answer

    def new_buffer(self, buffer: Buffer) -> Buffer:
        """Note a buffer as one of the function's."""
        self.buffers.append(buffer)
        return buffer


class Collector:
    """Makes the steps of one block.

    Args:
        context: of the function.
        block: the block.
        targets: where the terminator's tile operands go, by operand number (None: nowhere); empty for function bodies.
        own: for loop bodies, the carried argument that shares each target's buffer.
    """

    def __init__(
        self,
        context: FunctionContext,
        block: Block,
        targets: dict[int, Buffer] | None = None,
        own: dict[int, SSAValue] | None = None,
    ) -> None:
        self.context = context
        self.block = block
        self.targets, self.own = targets or {}, own or {}
        self.steps: list[Step] = []
        self.writer: dict[SSAValue, Step] = {}
        self.placed: dict[SSAValue, Buffer] = {}
        self.overwrites: list[tuple[Step, SSAValue, int]] = []
        self.position = 0.0
        self.positions: dict[Operation, float] = {}
        for number, op in enumerate(operations(block)):
            self.position = self.positions[op] = float(number)
            self._collect(op)

    # -- making steps --------------------------------------------------------------------------------

    def add(self, step: Step) -> Step:
        """Append a step; it writes the results of its operation."""
        self.steps.append(step)
        if step.op is not None:
            for result in step.op.results:
                self.writer[result] = step
        return step

    def place(self, value: SSAValue, buffer: Buffer | None = None) -> Buffer:
        """Give a value a place from here on, in this block."""
        self.placed[value] = made = self.context.place(value, buffer)
        return made

    def materialize(self, value: SSAValue, buffer: Buffer | None = None, *, at: float | None = None) -> Step:
        """A step that computes a lazy value into scratch; `buffer` given means a copy there, not the value's place."""
        sink = MaterializeSink(shape_of(value.type), [value])
        step = self.add(GroupStep(self.position if at is None else at, sinks=[sink]))
        if buffer is None:
            buffer = self.place(value)
            self.writer[value] = step
        sink.targets = [buffer]
        return step

    def force(self, value: SSAValue) -> Buffer:
        """The buffer of a value needed as a whole; it is materialized where it is defined, before all other uses."""
        found = self.context.demands.placed.get(value)
        if found is not None:
            return found
        op = defining_op(value)
        self.materialize(value, at=self.positions.get(op, -1.0) if op is not None else -1.0)
        return self.context.demands.placed[value]

    # -- operations ----------------------------------------------------------------------------------

    def _collect(self, op: Operation) -> None:
        if isinstance(op, _IGNORED):
            return
        if is_ragged(op):
            self._ragged(op)
        elif is_lazy(op):
            self._lazy(op)
        elif isinstance(op, _REGIONS):
            self._region(op)
        elif op.has_trait(IsTerminator):
            self._end(op)
        else:
            handler = _HANDLERS.get(type(op)) or (Collector._own if is_collective(op) else None)
            if handler is None:
                raise CompilationError(refusal(op), location_of(op))
            handler(self, op)

    def _lazy(self, op: Operation) -> None:
        result = op.results[0]
        if isinstance(op, LoadOp):
            self.context.where[op] = (self.block, self.position)
        if not is_tile(result):
            step = self.add(ScalarStep(self.position, op, needs=list(op.operands)))
            step.reads, step.writes = isinstance(op, LoadOp), is_volatile(op)
            return
        if isinstance(op, GatherOp):
            self.force(op.operands[0])
        if op in self.context.must_place or is_volatile(op):
            self.materialize(result).writes = is_volatile(op)

    def _ragged(self, op: Operation) -> None:
        """A reshape that no index expresses: its operand is materialized, row after row, to the place of its result."""
        if op.results[0].uses:
            self._group(MaterializeSink(shape_of(op.operands[0].type), list(op.operands), op))

    def _scalar(self, op: Operation) -> None:
        self.add(ScalarStep(self.position, op, needs=list(op.operands)))

    def _group(self, sink: Sink, *, writes: bool = False) -> Step:
        """A step of one sink whose tile results get buffers."""
        assert sink.op is not None
        if not sink.targets:
            for result in sink.op.results:
                wanted = is_tile(result) and result.uses
                sink.targets.append(self.place(result) if wanted else None)
        return self.add(GroupStep(self.position, sink.op, [sink], writes=writes))

    def _write(self, op: Operation) -> None:
        """A store, an atomic or a check, of which the records are no root."""
        if is_tile(op.operands[0]):
            roots = [operand for operand in op.operands if is_tile(operand) or not isinstance(op, CheckOp)]
            shape = shape_of(op.operands[0].type)
            sink = StoreSink(shape, roots, op) if isinstance(op, StoreOp) else OwnSink(shape, roots, op)
            step = self._group(sink, writes=True)
            step.detail = self.context.combined(op) if is_atomic(op) else None
        else:
            self.add(ScalarStep(self.position, op, needs=list(op.operands), writes=True))

    def _reduce(self, op: ReduceOp) -> None:
        self._group(ReduceSink(shape_of(op.operands[0].type), list(op.operands), op, property_int(op, "axis")))

    def _scan(self, op: ScanOp) -> None:
        targets: list[Buffer | None] = [self.place(result) for result in op.results]
        operands, axis = list(op.operands), property_int(op, "axis")
        self._group(ScanSink(shape_of(operands[0].type), operands, op, axis, targets))

    def _own(self, op: Operation) -> None:
        """An operation that its emitter makes of whole tiles of one shape, in a nest where nothing else is."""
        targets: list[Buffer | None] = [self.place(result) for result in op.results]
        self._group(OwnSink(shape_of(op.operands[0].type), list(op.operands), op, targets=targets))

    def _debug(self, op: Operation) -> None:
        if not any(map(is_tile, op.operands)):
            self.add(ScalarStep(self.position, op, needs=list(op.operands), writes=True))
            return
        for operand in op.operands:
            if is_tile(operand):
                self._group(OwnSink(shape_of(operand.type), [operand], op, targets=[None]), writes=True)
            else:
                self.add(ScalarStep(self.position, op, needs=[operand], writes=True, detail=operand))

    # -- dot -----------------------------------------------------------------------------------------

    def _dot(self, op: Operation) -> None:
        a, b, joined = self._dot_operands(op)
        result, c = op.results[0], op.operands[2]
        target = self._dot_target(result) or extended(self.context.isa, op, self.context.demands.placed.get(c))
        if target is None:
            target = self.context.new_buffer(accumulator(self.context.isa, op))
        carried = [(arg, number) for number, arg in self.own.items() if self.targets.get(number) is target]
        fresh = constant_of(c) == 0
        first: Step | None = None
        if not fresh and self.context.demands.placed.get(c) is not target:
            first = self.materialize(c, target, at=self.position - 0.25)
        if isinstance(self.block.parent_op(), ForOp | WhileOp):
            self.context.decisions.note(ACCUMULATOR, op, accumulates(op, fresh, first))
        needs = list(op.operands[:2]) + ([] if fresh or first else [c])
        detail = DotDetail(a, b, target, fresh)
        self._packed(op, detail, joined)
        step = DotStep(self.position, op, needs=needs, detail=detail)
        step.after = [first] if first else []
        self.place(result, target)
        self.add(step)
        if carried:
            self.overwrites.append((first or step, *carried[0]))

    def _packed(self, op: Operation, detail: DotDetail, joined: Answer[KStrips]) -> None:
        """Scratch for packed operands; packed B is kept between programs where that is possible."""
        plan = dot_plan(self.context.isa, op)
        note = self.context.decisions.note
        note(DOT, op, Yes(plan, describe(plan)))
        detail.joined = note(K_STRIPS, op, joined)
        capacity = plan.k * (detail.joined.factor if detail.joined is not None else 1)
        sizes = {"a": plan.a_bytes(capacity), "b": plan.b_bytes(capacity)}
        if plan.thin:
            note(KEPT, op, No("for so few rows operand b is read where it lies"))
        elif not a_in_place(plan, detail.a):
            self.context.keep("a", op, detail, sizes["a"])
        if not plan.thin:
            self.context.keep("b", op, detail, sizes["b"])
            if plan.b_in_place and "b" not in detail.kept:
                found = b_in_place(plan, detail.b, masks=self.context.isa.has_masks)
                note(UNPACKED, op, found)
                detail.in_place = isinstance(found, Yes)
        dims = [note(DEAD_ROWS, op, answer) for answer in dead_dims(op, plan, detail.a, detail.b)]
        detail.dead = {dim for dim in dims if dim is not None}
        for name, size in sizes.items():
            if name not in detail.kept and not (name == "b" and detail.in_place and rows_exist(detail.b)):
                detail.packed[name] = self.context.new_buffer(Buffer((size,), "i8", (1,), size))

    def _dot_operands(self, op: Operation) -> tuple[Operand, Operand, Answer[KStrips]]:
        """Operands of a dot, and how the iterations of the loop around it are joined.

        One that is not read from memory is computed where it is packed if the iterations can be joined then, or if what
        is packed is kept; else before.
        """
        context = self.context
        a, b = (_in_memory(context, value) or _filled(self, value) for value in op.operands[:2])
        if a is None or b is None:
            answer: Answer[KStrips] = No(f"operand {'a' if a is None else 'b'} is not read from memory")
        else:
            answer = plan_k_strips(op, a, b, dot_plan(context.isa, op))
        if isinstance(answer, No):
            a = a if is_ready(context.isa, op, "a", a) else None
            b = b if is_ready(context.isa, op, "b", b) else None
        (x, x_flipped), (y, y_flipped) = (strip_views(value) for value in op.operands[:2])
        a, b = a or scratch_operand(self.force(x), x_flipped), b or scratch_operand(self.force(y), y_flipped)
        return a, b, answer

    def _dot_target(self, result: SSAValue) -> Buffer | None:
        """The buffer in which a dot should leave its result, if it is that of a carried value or of the next dot."""
        uses = list(result.uses)
        if len(uses) != 1:
            return None
        user, number = uses[0].operation, uses[0].index
        if user.parent is not self.block:
            return None
        if user.has_trait(IsTerminator):
            target = self.targets.get(number)
            dot = defining_op(result)
            fits = target is not None and dot is not None and target.elem == accumulator(self.context.isa, dot).elem
            usable = fits and number in self.own and (self.block, number) not in self.context.must_place
            return target if usable else None
        return self._dot_target(user.results[0]) if isinstance(user, DotOp) and number == 2 else None

    # -- regions and ends ------------------------------------------------------------------------------

    def _region(self, op: Operation) -> None:
        """A step for an operation with regions: tiles that go in are materialized to the carried buffers first."""
        writes = self.context.captured.writes_memory(op)
        step = Step(self.position, op, writes=writes, reads=True)
        outside = self.context.captured.tiles(op)
        loop, call = isinstance(op, ForOp | WhileOp), isinstance(op, CallOp)
        for value, users in outside.items():
            if loop and any(isinstance(user, (DotOp, TransOp, GatherOp)) for user in users):
                self._force_operand(value, users)
            if writes:
                self._check_loads(value)
        # First values of carried tiles are materialized to their buffers by steps of their own.
        step.needs = [value for value in op.operands if call or not is_tile(value)] + list(outside)
        step.needs += self.context.captured.scalars(op)
        if call:
            for value in op.operands:
                if is_tile(value):
                    self.force(value)
            for result in op.results:
                if is_tile(result):
                    self.place(result)
        else:
            step.detail = self._carry(op, step)
        self.add(step)

    def _force_operand(self, value: SSAValue, users: list[Operation]) -> None:
        """A dot operand computed outside of the loop goes to scratch once, unless it can be read in place."""
        source, _ = strip_views(value)
        if source in self.context.demands.placed:
            return
        answer = memory_operand(source, self.context.demands.placed, self.context.analysis)
        found = answer.plan if isinstance(answer, Yes) else None
        in_place = found is not None and not any(found.bounds) and not found.conditions
        if not in_place and any(among(users, DotOp, GatherOp)):
            self.force(source)

    def _check_loads(self, value: SSAValue) -> None:
        late = [load for load in self.context.demands.loads(value) if load not in self.context.must_place]
        if late:
            raise Replan(late)

    def _carry(self, op: Operation, step: Step) -> dict[int, Buffer]:
        """Buffers of the tile values that an operation with regions carries or results in, by result number."""
        if isinstance(op, IfOp):
            return {n: self.place(r) for n, r in enumerate(op.results) if is_tile(r)}
        firsts = op.firsts if isinstance(op, LoopOp) else ()
        carried: dict[int, Buffer] = {}
        for number, first in enumerate(firsts):
            if not is_tile(first):
                continue
            carried[number] = buffer = self._carried_buffer(op, number, first)
            if self.context.demands.placed.get(first) is buffer:
                step.needs.append(first)
            else:
                step.after.append(self.materialize(first, buffer, at=self.position - 0.5))
        for number, result in enumerate(op.results):
            if is_tile(result):
                self.place(result, carried[number] if isinstance(op, ForOp) else None)
        return carried

    def _carried_buffer(self, op: Operation, number: int, first: SSAValue) -> Buffer:
        """The buffer of a carried tile: that of its first value if nobody else wants that one, else a new one."""
        found = self.context.demands.placed.get(first)
        same_block = isinstance(first, OpResult) and first.owner.parent is self.block
        if found is not None and same_block and len(list(first.uses)) == 1:
            return found
        elem = ir_name(element_type(first.type))
        if isinstance(op, ForOp):
            dot = accumulating_dot(op, number)
            if dot is not None:
                made = accumulator(self.context.isa, dot)
                if found is not None and found.strides == made.strides and _hands_through(self, first, op, number):
                    return found
                if made.elem == elem:
                    return self.context.new_buffer(made)
        if not isinstance(op, ForOp) or self.context.hands_tiles:
            return self.context.new_buffer(tile_buffer(first.type))
        fastest = loaded_along(op.yielded[number], self.context.demands.placed, self.context.analysis)
        return self.context.new_buffer(tile_buffer(first.type, fastest))

    def _detour(self, value: SSAValue, target: Buffer) -> Step:
        """Write a carried tile by way of a buffer of its own; gives the step that writes `target`."""
        source = self.context.demands.placed.get(value)
        if source is None:
            self.force(value)
            return self.materialize(value, target)
        if source not in self.targets.values():
            return self.materialize(value, target)
        aside = self.context.new_buffer(tile_buffer(value.type))
        first = self.materialize(value, aside)
        sink = CopySink(aside.shape, [], targets=[target], source=aside)
        step = self.add(GroupStep(self.position, sinks=[sink]))
        step.after = [first]
        return step

    def _end(self, op: Operation) -> None:
        """The terminator: tile operands are written to their targets, with a detour where old values are still read."""
        after: list[Step] = []
        for number, value in enumerate(op.operands):
            if not is_tile(value):
                continue
            target = self.targets.get(number)
            if target is None:
                raise UnsupportedError(f"{op.name} with a tile operand")
            own = self.own.get(number)
            if value is own or self.context.demands.placed.get(value) is target:
                continue
            if (self.block, number) in self.context.must_place:
                step = self._detour(value, target)
            else:
                step = self.materialize(value, target)
            if own is not None:
                self.overwrites.append((step, own, number))
            after.append(step)
        step = EndStep(self.position, op, needs=[value for value in op.operands if not is_tile(value)])
        step.after = after
        self.add(step)


_HANDLERS: Mapping[type[Operation], Callable[[Collector, Any], None]] = {
    **dict.fromkeys((StoreOp, AtomicRMWOp, AtomicCASOp, AtomicLoadOp, AtomicStoreOp, CheckOp), Collector._write),
    ReduceOp: Collector._reduce,
    ScanOp: Collector._scan,
    DotOp: Collector._dot,
    PrintOp: Collector._debug,
    AssertOp: Collector._debug,
    GetProgramIdOp: Collector._scalar,
    GetNumProgramsOp: Collector._scalar,
    UnsplatOp: Collector._scalar,
}
PLANNED = frozenset({*_HANDLERS, *_REGIONS, *_IGNORED})


class Replan(Exception):
    """Planning must start again.

    Args:
        reasons: loads to be taken at their place, and carried tiles, as (block, operand number of its terminator), that
            cannot be overwritten in place.
    """

    def __init__(self, reasons: Sequence[object]) -> None:
        super().__init__()
        self.reasons = reasons


def _in_memory(context: FunctionContext, value: SSAValue) -> MemoryOperand | None:
    """An operand that is read from where it lies."""
    answer = memory_operand(value, context.demands.placed, context.analysis)
    if isinstance(answer, Yes) and answer.plan.load in context.must_place:
        answer = No("memory may change between the load and the dot", answer.plan.load)
    return context.decisions.note(IN_PLACE, defining_op(strip_views(value)[0]), answer)


def _filled(collector: Collector, value: SSAValue) -> ScratchOperand | None:
    """An operand that is computed where it is packed, from nothing that this block computes as a whole."""
    context, (source, flipped) = collector.context, strip_views(value)
    demands, op = context.demands, defining_op(source)
    if source in demands.placed or op is None or not is_lazy(op) or len(shape_of(source.type)) != 2:
        return None
    if any(load in context.must_place for load in demands.loads(source)):
        return None
    if any(
        is_tile(leaf) and (leaf in collector.placed or leaf.owner is collector.block) for leaf in demands.leaves(source)
    ):
        return None
    fastest = loaded_along(source, demands.placed, context.analysis)
    buffer = context.new_buffer(tile_buffer(source.type, fastest))
    fill = GroupStep(collector.position, sinks=[MaterializeSink(buffer.shape, [source], targets=[buffer])])
    return scratch_operand(buffer, flipped, fill)


def _hands_through(collector: Collector, first: SSAValue, loop: Operation, number: int) -> bool:
    """Whether a loop in a loop goes on with what that one carries, and leaves it the result in the same place."""
    uses, block = list(loop.results[number].uses), collector.block
    outer = [n for n, argument in collector.own.items() if argument is first]
    ends = [use.index for use in uses if use.operation is block.last_op]
    alone = len(list(first.uses)) == 1 and len(uses) == 1 and outer == ends
    return alone and (block, ends[0]) not in collector.context.must_place
