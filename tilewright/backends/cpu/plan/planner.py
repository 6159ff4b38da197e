"""Steps into groups, groups into an order, shared work into scratch: the loop plan of a function.

For every block: collect steps in program order, merge sinks with equal iteration spaces that do not depend on each
other into groups, sort topologically, then decide which values computed by several groups are kept in scratch (an exp
is, a sum of two loads is not). Regions are planned after the block that holds them, under its placements.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.captured import Captured
from tilewright.analysis.distinct import Bounds, common, distinct
from tilewright.analysis.index import Coord, Index, identity
from tilewright.analysis.origins import Origins
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.collect import Collector, FunctionContext, Replan
from tilewright.backends.cpu.plan.demand import Demands
from tilewright.backends.cpu.plan.dependence import Accesses, Address, Dependents, Place, address_of
from tilewright.backends.cpu.plan.direct_epilogue_store import store_directly
from tilewright.backends.cpu.plan.dot_step import begin_afresh
from tilewright.backends.cpu.plan.fuse_rows import fuse_rows
from tilewright.backends.cpu.plan.lanes import survey, vector_dim
from tilewright.backends.cpu.plan.launches import Launches
from tilewright.backends.cpu.plan.prefetch_rows import prefetch_rows
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.reuse import share_work
from tilewright.backends.cpu.plan.scan_forwarding import is_total, leave_in_registers
from tilewright.backends.cpu.plan.scratch import allocate
from tilewright.backends.cpu.plan.steps import (
    BlockPlan,
    Buffer,
    DotStep,
    EndStep,
    FunctionPlan,
    GroupStep,
    MaterializeSink,
    OwnSink,
    ScalarStep,
    ScanSink,
    Step,
    StoreSink,
    tile_buffer,
)
from tilewright.backends.cpu.plan.strips import plan_strips
from tilewright.backends.cpu.plan.subjects import APART_AT_LAUNCH, FUSION, STRIPS
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.errors import InternalError
from tilewright.base.order import reached
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.function import FuncOp
from tilewright.ops.gather import GatherOp


def plan_function(function: FuncOp, isa: CpuFeatures, decisions: Decisions) -> FunctionPlan:
    """Plan one function; twice, if the launch has to tell whether elements that it works on in place lie apart.

    Args:
        function: a `tt.func` whose carried offsets are scalars (`carried_offsets`).
        isa: the target; accumulators of dots are laid out for it.
        decisions: of the function; the plan keeps them.
    """
    plan = _planned(function, isa, decisions, some=function.is_kernel)
    if plan.conditions:
        plan.otherwise = _planned(function, isa, Decisions(), some=False)
        tests = f"{len(plan.conditions)} test" + "s" * (len(plan.conditions) > 1)
        decisions.note(APART_AT_LAUNCH, function, Yes(plan, f"{tests} of arguments choose between two plans"))
    return plan


def _planned(function: FuncOp, isa: CpuFeatures, decisions: Decisions, *, some: bool) -> FunctionPlan:
    """A plan, for all launches or for those in which its conditions hold."""
    must_place: set[object] = set()
    captured, facts = Captured(function), ElementFacts(function)
    while True:
        context = FunctionContext(isa, captured, facts, must_place, Launches(some))
        arguments: dict[SSAValue, Buffer] = {
            argument: context.place(argument) for argument in function.body.blocks[0].args if is_tile(argument)
        }
        outputs = list(function.function_type.outputs)
        returns = {n: context.new_buffer(tile_buffer(t)) for n, t in enumerate(outputs) if shape_of(t)}
        try:
            blocks = [plan_block(context, block, returns) for block in function.body.blocks]
        except Replan as again:
            if must_place.issuperset(again.reasons):
                raise InternalError("planning does not settle") from again
            must_place.update(again.reasons)
            continue
        if function.is_kernel and len(blocks) == 1:
            prefetch_rows(blocks[0], facts, context.decisions)
        decisions.extend(context.decisions)
        plan = FunctionPlan(
            function,
            blocks,
            facts,
            context.buffers,
            arguments,
            returns,
            context.caches,
            context.sums,
            decisions=decisions,
            conditions=list(context.launches.conditions),
        )
        allocate(plan)
        return plan


def plan_block(
    context: FunctionContext,
    block: Block,
    targets: dict[int, Buffer] | None = None,
    own: dict[int, SSAValue] | None = None,
) -> BlockPlan:
    """Plan a block and the regions in it; `targets` and `own` as for `Collector`."""
    collector = Collector(context, block, targets, own)
    order = _Grouping(collector).ordered()
    strips = _strips(context, block, order, own or {})
    if strips is None:
        share_work(context, order, collector.placed)
    leave_in_registers(order)
    for step in order:
        if isinstance(step.op, ForOp | IfOp | WhileOp):
            _plan_regions(context, step)
    begin_afresh(order)
    store_directly(context, order)
    order = fuse_rows(context, block, order)
    # A block of a function with several keeps its placements: later blocks may use its values.
    if block.parent_op() is None or not isinstance(block.parent_op(), FuncOp):
        context.drop(collector.placed)
    return BlockPlan(block, order, collector.placed, strips)


def _strips(context: FunctionContext, block: Block, order: list[Step], own: dict[int, SSAValue]) -> GroupStep | None:
    """The pass of a loop's body, if the loop may run strip by strip."""
    loop = block.parent_op()
    kinds = GroupStep | ScalarStep | EndStep  # dots have planners of their own, and so have loops in the loop
    if not own or loop is None or not all(isinstance(step, kinds) for step in order):
        return None
    return context.decisions.note(STRIPS, loop, plan_strips(context, block, order, own))


def _plan_regions(context: FunctionContext, step: Step) -> None:
    op = step.op
    assert op is not None
    tiles: dict[int, Buffer] = step.detail
    if isinstance(op, IfOp):
        step.bodies = [plan_block(context, region.block, tiles) for region in op.regions if region.blocks]
    elif isinstance(op, ForOp):
        body = op.regions[0].block
        carried = {n: body.args[n + 1] for n in tiles}
        for number, argument in carried.items():
            context.place(argument, tiles[number])
        step.bodies = [plan_block(context, body, tiles, dict(carried))]
    else:
        before, after = (region.block for region in op.regions)
        for number, buffer in tiles.items():
            context.place(before.args[number], buffer)
        passed = {n: context.demands.placed[r] for n, r in enumerate(op.results) if is_tile(r)}
        for number, buffer in passed.items():
            context.place(after.args[number], buffer)
        # The condition is operand 0 of the terminator of the first region.
        first = plan_block(context, before, {n + 1: b for n, b in passed.items()})
        step.bodies = [first, plan_block(context, after, tiles)]


@dataclass(eq=False, slots=True)
class _Group:
    """Steps that share a loop nest; sets of steps have a bit for the number of each.

    Args:
        first: the first of them.
        hard, needed: what they depend on in a way that a common loop would break, and in any way.
        axes: that they reduce.
        accesses: of memory, once somebody asked.
    """

    first: Step
    hard: int
    needed: int
    axes: set[int]
    accesses: Accesses | None = None


class _Grouping:
    """Merges and orders the steps of a block."""

    def __init__(self, collector: Collector) -> None:
        self.steps = sorted(collector.steps, key=lambda step: step.position)
        self.context = collector.context
        self.demands: Demands = collector.context.demands
        self.collector = collector
        self.number = {step: n for n, step in enumerate(self.steps)}
        self.leader = {step: step for step in self.steps}
        self.members: dict[Step, list[Step]] = {step: [step] for step in self.steps}
        self.writers = [step for step in self.steps if step.writes]
        self.written_at = [step.position for step in self.writers]
        self.hard: dict[Step, set[Step]] = {}
        self.soft: dict[Step, set[Step]] = {}
        self.together: list[tuple[Step, Step, Operation]] = []
        self.leaves: dict[Step, set[SSAValue]] = {}
        self.loads: dict[Step, set[Operation]] = {}
        self.elsewhere: dict[Step, set[SSAValue]] = {}
        self.addresses: dict[tuple[Operation, Index], Address] = {}
        self.origins = Origins()
        self.changing: dict[frozenset[SSAValue] | None, int] = {}
        self.lying_apart: dict[tuple[Place, frozenset[tuple[Coord, tuple[Poly, ...]]]], bool] = {}
        for step in self.steps:
            self._survey(step)
        late: list[Operation] = []
        earlier = 0  # writers before the step
        readers: list[Step] = []  # that read memory since the last of them
        for step in self.steps:
            self._connect(step, earlier, readers, late)
            if step.writes:
                earlier, readers = earlier + 1, []
            elif step.reads or self.loads[step]:
                readers.append(step)
        if late:
            raise Replan(self._outermost(late))
        for writer, argument, number in collector.overwrites:
            self._overwrite(writer, argument, number)

    # -- dependences ---------------------------------------------------------------------------------

    def _survey(self, step: Step) -> None:
        """What a step reads: scalars and placed values, and loads that it performs."""
        leaves: set[SSAValue] = set()
        loads: set[Operation] = set()
        values = [root for root, _ in step.roots()] + step.needs
        with self.context.computing(step):
            for value in values:
                leaves |= self.demands.leaves(value)
                loads |= self.demands.loads(value)
        self.leaves[step], self.loads[step] = leaves, loads

    def _connect(self, step: Step, earlier: int, readers: list[Step], late: list[Operation]) -> None:
        """Direct dependences of a step: values, memory, explicit ones.

        Args:
            step: the step.
            earlier: number of the writers before it.
            readers: what reads memory between the last of them and the step; who read before that came first anyway.
            late: takes the loads that must be performed at their own place.
        """
        hard: set[Step] = set(step.after)
        soft: set[Step] = set()
        for leaf in self.leaves[step]:
            writer = self.collector.writer.get(leaf)
            if writer is None or writer is step:
                continue
            materialize = writer.is_only(MaterializeSink, ScanSink)
            (soft if materialize and self._same_index(step, leaf) else hard).add(writer)
        if (step.writes or step.reads) and earlier:
            last = self.writers[earlier - 1]
            (soft if _is_store(step) and _is_store(last) else hard).add(last)
        for load in self.loads[step]:
            self._order_load(step, load, earlier, hard, late)
        if step.writes:
            for other in readers:
                (soft if _is_store(step) and isinstance(other, GroupStep) else hard).add(other)
        hard.discard(step)
        soft -= hard | {step}
        self.hard[step], self.soft[step] = hard, soft
        if _is_store(step):
            self._check_store(step, late)

    def _order_load(self, step: Step, load: Operation, earlier: int, hard: set[Step], late: list[Operation]) -> None:
        """A lazy load runs after the writes that precede it, and must not run after the ones that follow it."""
        block, position = self.context.where[load]
        if block is not self.collector.block:
            written = any(writer.changes_memory for writer in self.writers[:earlier])
            if written and load not in self.context.must_place:
                late.append(load)
            return
        before = bisect.bisect_left(self.written_at, position, 0, earlier)
        start = bisect.bisect_right(self.written_at, position, 0, earlier)
        later = self._changing(load) & (1 << earlier) - (1 << start) if start < earlier else 0
        crossed = [self.writers[n] for n in range(start, earlier) if later >> n & 1] if later else []
        if before:
            hard.add(self.writers[before - 1])
        if crossed and not (_is_store(step) and all(_is_store(w) and w.shape == step.shape for w in crossed)):
            late.append(load)
        else:
            self.together += [(step, writer, load) for writer in crossed]

    def _changing(self, load: Operation) -> int:
        """The writers that may change what a load gives, as bits: a store to another array does not."""
        origins = self.origins[load.operands[0]]
        if origins not in self.changing:
            changing = [
                n for n, writer in enumerate(self.writers) if writer.changes_memory and self._meets(writer, load)
            ]
            self.changing[origins] = sum(1 << number for number in changing)
        return self.changing[origins]

    def _meets(self, writer: Step, load: Operation) -> bool:
        """Whether a step writes anything but other arrays than that of a load."""
        addresses = [store.op.operands[0] for store in writer.stores]
        return not _is_store(writer) or any(self.origins.may_meet(one, load.operands[0]) for one in addresses)

    def _outermost(self, loads: list[Operation]) -> list[Operation]:
        """Those loads that no other of them performs to know its address: these will be performed with that one."""
        inner = {load for outer in loads for operand in outer.operands for load in self.demands.loads(operand)}
        return [load for load in dict.fromkeys(loads) if load not in inner]

    def _check_store(self, step: Step, late: list[Operation]) -> None:
        """A store must not overwrite what its own loop nest loads later for other elements."""
        if not self.loads[step]:
            return
        op = step.sinks[0].op
        assert op is not None
        stored = self._address(op, identity(step.shape), step.shape)
        meeting: dict[Operation, None] = {}
        for load, index in self._loaded(step):
            loaded = self._address(load, index, step.shape)
            if not loaded.may_share(stored):
                continue
            place = stored.place if stored.place == loaded.place else None
            if place is None or not self._lie_apart(place, common(stored.bounds, loaded.bounds)):
                meeting[load] = None
        late += self._combined(op, meeting) or meeting

    def _combined(self, store: Operation, loads: Collection[Operation]) -> list[Operation]:
        """The stored value where several loads serve it alone: it has one place in scratch, they would have many."""
        value = defining_op(store.operands[1])
        if len(loads) < 2 or value is None or value.parent_block() is not self.collector.block or not is_lazy(value):
            return []
        beside = {
            load for other in store.operands if other is not value.results[0] for load in self.demands.loads(other)
        }
        serves = self.demands.loads(value.results[0]).issuperset(loads) and beside.isdisjoint(loads)
        return [value] if serves else []

    def _same_index(self, step: Step, value: SSAValue) -> bool:
        """Whether a step reads `value`, which another materializes, only at the index of its own iteration."""
        return isinstance(step, GroupStep) and value not in self._elsewhere(step)

    def _elsewhere(self, step: Step) -> set[SSAValue]:
        """Values of which a step reads elements at other indices than its own, in one walk for all of them."""
        if step not in self.elsewhere:
            found = self.elsewhere[step] = set()
            with self.context.computing(step):
                for root, shape in step.roots():
                    wanted = identity(shape)
                    for other, index in self.demands.walk(root, wanted) if is_tile(root) else ():
                        if index != wanted:
                            found.add(other)
                        op = defining_op(other)
                        if isinstance(op, GatherOp):
                            found.add(op.operands[0])
        return self.elsewhere[step]

    def _overwrite(self, writer: Step, argument: SSAValue, number: int) -> None:
        """`writer` overwrites the buffer of a carried tile: everything that reads the old value comes first."""
        for step in self.steps:
            if argument not in self.leaves[step]:
                continue
            own = step is writer
            if own or writer in step.after:
                if isinstance(step, DotStep):
                    clash = any(argument in self.demands.leaves(value) for value in step.op.operands[:2])  # type: ignore[union-attr]
                else:
                    clash = not self._same_index(step, argument)
            else:
                clash = self._reaches(step, writer)
            if clash:
                raise Replan([(self.collector.block, number)])
            if not own and writer not in step.after:
                aligned = isinstance(writer, GroupStep) and self._same_index(step, argument)
                (self.soft if aligned else self.hard)[writer].add(step)

    def _reaches(self, start: Step, goal: Step) -> bool:
        """Whether `start` depends on `goal`."""

        def before(step: Step) -> Iterator[Step]:
            return (self.leader[other] for one in self.members[step] for other in self.hard[one] | self.soft[one])

        return any(goal in self.members[step] for step in reached([self.leader[start]], before))

    # -- grouping ------------------------------------------------------------------------------------

    def _merge(self) -> None:
        groups: list[_Group] = []
        dependents = Dependents([[self.number[d] for d in self.hard[s] | self.soft[s]] for s in self.steps])
        for step in self.steps:
            if not isinstance(step, GroupStep) or any(isinstance(sink, OwnSink) for sink in step.sinks):
                continue
            own = self._group_of(step)
            host = None if step.scans else self._host(own, groups[-tuning.FUSION_LOOK_BACK :], dependents)
            if host is None:
                groups.append(own)
                continue
            self.members[host.first].extend(self.members.pop(step))
            self.leader[step] = host.first
            host.hard |= own.hard
            host.needed |= own.needed
            host.axes |= own.axes
            self._accesses(host).include(self._accesses(own))
            dependents.merge(self.number[host.first], self.number[step])

    def _group_of(self, step: Step) -> _Group:
        hard = sum(1 << self.number[other] for other in self.hard[step])
        needed = hard | sum(1 << self.number[other] for other in self.soft[step])
        return _Group(step, hard, needed, {sink.axis for sink in step.sinks if sink.axis >= 0})

    def _host(self, own: _Group, groups: list[_Group], dependents: Dependents) -> _Group | None:
        """The last of some groups that a step can join; why not is told of the last one of its shape."""
        step = own.first
        found: Answer[_Group] | None = None
        for group in reversed([group for group in groups if group.first.shape == step.shape]):
            if group.first.scans and not self._joins_scan(step, group.first):
                continue
            answer = self._can_join(own, group, dependents)
            if isinstance(answer, Yes):
                return self.context.decisions.note(FUSION, step.place, answer)
            first_values = group.first.is_only(MaterializeSink)  # of what a loop carries
            found = found or (None if first_values else answer)
        if found is not None:
            self.context.decisions.note(FUSION, step.place, found)
        return None

    def _joins_scan(self, step: Step, scan: Step) -> bool:
        """Whether a step may run in the loop of a scan: it stores what that makes, or combines what that combines."""
        return is_total(step, scan) or (scan in self.soft[step] and self._stored_alike(step, scan))

    def _stored_alike(self, step: Step, scan: Step) -> bool:
        """Whether a step only stores, and along the dim along which a scan has its lanes."""
        if not _is_store(step):
            return False
        votes = [survey(one, self.demands.placed, self.context.analysis)[0] for one in (step, scan)]
        return vector_dim(step.shape, votes[0]) == vector_dim(step.shape, votes[1])

    def _can_join(self, step: _Group, host: _Group, dependents: Dependents) -> Answer[_Group]:
        """Whether a step can run in the loop of a group over the same shape."""
        place = host.first.place
        if len(step.axes | host.axes) > 1:
            return No("they reduce along different dims", place)
        if self._separated(step, host, dependents) or self._separated(host, step, dependents):
            return No("it needs a result that is whole only after that loop", place)
        if self._accesses(host).may_meet(self._accesses(step), self._lie_apart):
            return No("what it stores might be loaded or stored at another place of that loop", place)
        extents = "x".join(map(str, step.first.shape))
        return Yes(host, f"with {_described(host.first)} over {extents}")

    def _separated(self, later: _Group, earlier: _Group, dependents: Dependents) -> bool:
        """Whether one of `later` depends on one of `earlier` in a way that a common loop would break."""
        at = self.number[earlier.first]
        members = dependents.members(at)
        if later.hard & members:
            return True
        others = later.needed & ~members & ~dependents.members(self.number[later.first])
        return others & dependents.of(at) != 0

    def _accesses(self, group: _Group) -> Accesses:
        """What the members of a group store and load; stores in one loop nest must not meet other accesses."""
        if group.accesses is None:
            group.accesses = Accesses()
            for step in self.members[group.first]:
                for sink in step.sinks:
                    if isinstance(sink, StoreSink):
                        stored = self._address(sink.op, identity(sink.shape), sink.shape)
                        group.accesses.add(stored, store=True)
                for load, index in self._loaded(step):
                    group.accesses.add(self._address(load, index, step.shape), store=False)
        return group.accesses

    def _loaded(self, step: Step) -> list[tuple[Operation, Index]]:
        """The loads of a step, each with the index at which it is wanted."""
        if not self.loads[step]:
            return []
        found: dict[tuple[Operation, Index], None] = {}
        with self.context.computing(step):
            for root, shape in step.roots():
                for value, index in self.demands.walk(root, identity(shape)) if is_tile(root) else ():
                    op = defining_op(value)
                    if op in self.loads[step]:
                        found[op, index] = None
        return list(found)

    def _address(self, op: Operation, index: Index, shape: tuple[int, ...]) -> Address:
        """Where a load or store goes, at an index in an iteration space, as far as that is known."""
        if (op, index) not in self.addresses:
            self.addresses[op, index] = address_of(op, index, shape, self.context.analysis, self.origins)
        return self.addresses[op, index]

    def _lie_apart(self, place: Place, bounds: Bounds) -> bool:
        """Whether the elements of a place have an address each; where the launch can tell, this plan is for those."""
        key = (place, frozenset(bounds.items()))
        if key not in self.lying_apart:
            answer = distinct(dict(place.coords), place.shape, place.size, bounds)
            self.lying_apart[key] = isinstance(answer, Yes) and self.context.launches.have(answer.plan)
        return self.lying_apart[key]

    # -- order ---------------------------------------------------------------------------------------

    def ordered(self) -> list[Step]:
        """The merged steps in an order that respects all dependences."""
        self._merge()
        late = [load for step, writer, load in self.together if self.leader[step] is not self.leader[writer]]
        if late:
            raise Replan(late)
        waiting: dict[Step, set[Step]] = {}
        followers: dict[Step, list[Step]] = {}
        for host, members in self.members.items():
            before = {self.leader[d] for m in members for d in self.hard[m] | self.soft[m]} - {host}
            waiting[host] = before
            for other in before:
                followers.setdefault(other, []).append(host)
        ready = [(self.number[host], host) for host, before in waiting.items() if not before]
        heapq.heapify(ready)
        out: list[Step] = []
        while ready:
            _, host = heapq.heappop(ready)
            out.append(_merged(host, sorted(self.members[host], key=lambda m: self.number[m])))
            for follower in followers.get(host, ()):
                waiting[follower].discard(host)
                if not waiting[follower]:
                    heapq.heappush(ready, (self.number[follower], follower))
        if len(out) != len(waiting):
            raise InternalError("the steps of a block depend on each other in a circle")
        return out


def _described(step: Step) -> str:
    """A group in a sentence, by its first sink."""
    op = step.sinks[0].op
    return f"{describe_op(op)}" if op is not None else "the pass that keeps a tile"


def _merged(host: Step, members: list[Step]) -> Step:
    """One step with the sinks of all members."""
    if len(members) > 1:
        host.sinks = [sink for member in members for sink in member.sinks]
        host.writes = any(member.writes for member in members)
    return host


def _is_store(step: Step) -> bool:
    """Whether a step only stores tiles."""
    return step.is_only(StoreSink)
