"""Software pipelining: loads that feed the products of a loop are copied to shared memory some iterations ahead.

A loop gets a ring of n buffers for each such load. Copies run n - 1 iterations ahead of the products; the part of the
body that computes their addresses and masks is written once more for the iteration ahead, with carried values of its
own:

    for d in 0 .. n - 2:  copy iteration d to buffer d; commit                                (straight-line code)
    loop:
        async_wait n - 2          the copies of this iteration have landed
        ... body with loads from buffer `index` ...
        copy iteration + n - 1 to buffer `index - 1`, which the iteration before has read; commit
        index = index + 1 mod n
    async_wait 0

Blocks of descriptors are copied by the copy engine instead: the loop waits for the barrier of a stage, which counts the
bytes that arrive there.

Where every product of the loop is a wgmma that sums into a carried accumulator, one iteration's products stay in flight
while the next are started; the copies then follow the wait for the iteration before. An operand that an iteration
computes (one that is converted, say) gets a ring of its own then: it is computed while the products of the iteration
before are under way. Products that need results of others run beside what is computed (`overlap`). Barriers of the
block are placed later, by `barriers`, which understands rings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.backends.nvidia.arch import MOST_REGISTERS, Arch
from tilewright.backends.nvidia.plan.allocate import scratch_bytes
from tilewright.backends.nvidia.plan.building import Builder, make_barrier, read_load, ring_type, transposed
from tilewright.backends.nvidia.plan.descriptors import block_bytes, copy_blocks
from tilewright.backends.nvidia.plan.operands import fragments_read, stage_operands
from tilewright.backends.nvidia.plan.overlap import OVERLAPPED, Overlap, plan_overlap, start_early, wait_for, wait_late
from tilewright.backends.nvidia.plan.prefetch import Prefetch, address_slice, loop_of, plan_prefetches, ring_bytes
from tilewright.backends.nvidia.plan.subjects import ASYNC_DOT, RING
from tilewright.backends.nvidia.tgir.ops import (
    AsyncCommitOp,
    AsyncCopyOp,
    AsyncWaitOp,
    FenceAsyncSharedOp,
    LocalAllocOp,
    LocalStoreOp,
    MemDescIndexOp,
    TmaLoadOp,
    WaitBarrierOp,
    WarpGroupDotOp,
    WarpGroupDotWaitOp,
)
from tilewright.backends.nvidia.tgir.types import (
    MemDescType,
    layout_of,
    memdesc_bytes,
    memdesc_count,
    with_layout,
)
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import bit_width, element_type, i1, shape_of, tile_type
from tilewright.ir.values import users_of
from tilewright.ir.walk import among, every, walk
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.control import ForOp, WhileOp
from tilewright.ops.function import FuncOp
from tilewright.passes.rewriting import erase, loop_carrying, replace

_USUAL_WARPS, _USUAL_REGISTERS = 4, 128  # of a block that multiplies
SPLIT = "tw.split"  # of a loop that roles have between them, and that is pipelined so


def pipeline_loops(module: ModuleOp, num_stages: int, arch: Arch, decisions: Decisions) -> None:
    """Pipeline the innermost loops of a laid-out module, in place.

    Blocks of descriptors that no loop copies ahead are copied where they are needed; fences stand where wgmma reads
    what was stored.

    Args:
        module: laid-out tile IR without barriers.
        num_stages: buffers of a ring; fewer where shared memory is too small. 1 for no pipelining.
        arch: what the target has.
        decisions: of the compilation.
    """
    for function in FuncOp.all_of(module):
        stage_operands(function)
        for loop in [op for op in every(function, ForOp, WhileOp) if SPLIT not in op.attributes]:
            _pipeline(loop, function, num_stages, arch, decisions)
        copy_blocks(function)
        fence_operands(function)


def asked_stages(loop: ForOp, usual: int) -> int:
    """Buffers that a loop asks for (`tl.range(..., num_stages=)`), else the usual number."""
    asked = loop.attributes.get("tt.num_stages")
    return int(asked.value.data) if isinstance(asked, IntegerAttr) else usual


def _pipeline(loop: ForOp | WhileOp, function: FuncOp, num_stages: int, arch: Arch, decisions: Decisions) -> None:
    """Pipeline one loop if there is something to copy ahead; note why, or why not."""
    answers = plan_prefetches(loop, function)
    prefetches = [answer.plan for _, answer in answers if isinstance(answer, Yes)]
    room = _ring_stages(loop, function, prefetches, num_stages, arch)
    for load, answer in answers:
        decisions.note(RING, load, _with_room(answer, room))
    if isinstance(room, No) or not isinstance(loop, ForOp):
        for dot in _products(loop):
            decisions.note(ASYNC_DOT, dot, No("no load of the loop is copied ahead"))
        return
    blocks = sum(p.is_block for p in prefetches)
    barrier = make_barrier(function, room.plan, blocks) if blocks else None
    computed = computed_operands(loop, prefetches)
    taken = taken_beside(loop, function, prefetches) + room.plan * ring_bytes(prefetches)
    more = (room.plan - 1) * sum(memdesc_bytes(op.result.type) for op in computed)
    fits = taken + more <= arch.shared_limit and blocks_of(arch, taken + more) >= blocks_of(arch, taken)
    replaced = {buffer for p in prefetches for buffer in p.buffers}
    overlap = plan_overlap(loop.body.block, replaced, arch, taken, MOST_REGISTERS)
    made = overlap.plan if isinstance(overlap, Yes) else None
    Pipeliner(loop, prefetches, room.plan, decisions, barrier, computed if fits else [], made).run()


def blocks_of(arch: Arch, shared_bytes: int) -> int:
    """Blocks of usual size that share a multiprocessor: another hides more than a ring does."""
    return arch.blocks_per_multiprocessor(_USUAL_WARPS, _USUAL_REGISTERS, shared_bytes)


def _ring_stages(
    loop: ForOp | WhileOp, function: FuncOp, prefetches: Sequence[Prefetch], num_stages: int, arch: Arch
) -> Answer[int]:
    """How many buffers each ring of a loop has."""
    if not prefetches or not isinstance(loop, ForOp):
        return No("nothing of the loop can be copied ahead")
    wanted = asked_stages(loop, num_stages)
    if wanted < 2:
        return No("num_stages is 1", instead="num_stages=2 or more")
    if not arch.has_cp_async:
        return No("the target has no asynchronous copies")
    fitting = (arch.shared_limit - taken_beside(loop, function, prefetches)) // ring_bytes(prefetches)
    if fitting < 2:
        return No("shared memory has no room for two buffers", instead="smaller blocks")
    if fitting < wanted:
        return Yes(fitting, f"{fitting} buffers; shared memory has no room for {wanted}")
    return Yes(wanted, f"{wanted} buffers")


def taken_beside(loop: Operation, function: FuncOp, prefetches: Sequence[Prefetch]) -> int:
    """Bytes of shared memory that a loop needs beside its rings."""
    replaced = {buffer for p in prefetches for buffer in p.buffers}
    others = [op for op in every(function, LocalAllocOp) if op not in replaced]
    taken = sum(memdesc_bytes(op.result.type) * memdesc_count(op.result.type) for op in others)
    taken += max(scratch_bytes(op) for op in walk(loop))
    loads = {p.load for p in prefetches}
    return taken + sum(block_bytes(op) for op in walk(loop) if op not in loads)


def computed_operands(loop: ForOp, prefetches: Sequence[Prefetch]) -> list[LocalAllocOp]:
    """Buffers of operands that every iteration computes for its products alone."""
    replaced = {buffer for p in prefetches for buffer in p.buffers}
    made = [op for op in among(loop.body.block.ops, LocalAllocOp) if op.src and op not in replaced]
    return [op for op in made if all(isinstance(use.operation, WarpGroupDotOp) for use in op.result.uses)]


def _with_room(answer: Answer[Prefetch], room: Answer[int]) -> Answer[Prefetch]:
    """The answer for a load, given that for the rings of its loop."""
    if isinstance(answer, No):
        return answer
    if isinstance(room, No):
        return room
    return Yes(answer.plan, f"{room.what} of {memdesc_bytes(answer.plan.ring)} bytes, {_copier(answer.plan)}")


def _copier(prefetch: Prefetch) -> str:
    means = "by the copy engine" if prefetch.is_block else "by cp.async"
    return f"{means}, read by products where they are" if prefetch.alloc is not None else means


def _products(loop: Operation) -> list[WarpGroupDotOp]:
    """The wgmma products for which a loop is the innermost."""
    return [op for op in every(loop, WarpGroupDotOp) if loop_of(op) is loop]


# --- the loop -----------------------------------------------------------------------------------------------------


class Pipeliner:
    """Rewrites one loop.

    Args:
        loop: the loop.
        prefetches: the loads to copy ahead.
        stages: buffers of each ring.
        decisions: of the compilation.
        barrier: what the copy engine signals, a stage for each buffer; None if it copies nothing.
        computed: buffers of operands that an iteration computes, for each of which there is room for a ring.
        overlap: how products that need results of others run beside each other, if they do.
    """

    def __init__(
        self,
        loop: ForOp,
        prefetches: Sequence[Prefetch],
        stages: int,
        decisions: Decisions,
        barrier: SSAValue | None = None,
        computed: Sequence[LocalAllocOp] = (),
        overlap: Overlap | None = None,
    ) -> None:
        self.loop, self.prefetches, self.stages, self.barrier = loop, prefetches, stages, barrier
        self.decisions, self.computed, self.overlap = decisions, computed, overlap
        self.by_threads = not all(p.is_block for p in prefetches)  # some copies are cp.async
        self.ahead = stages - 1
        self.body = loop.body.block
        found = address_slice(chain.from_iterable(p.address for p in prefetches), self.body)
        assert not isinstance(found, No), "a load was chosen whose address cannot be computed ahead"
        self.slice = [op for op in self.body.ops if op in found[0]]
        self.carried = sorted(found[1])

    def run(self) -> None:
        """Replace the loop."""
        outside = Builder(self.loop)
        asynchronous = self._asynchronous()
        if self.overlap is not None:
            start_early(self.body, self.overlap)
        self._settle([dot for dot in asynchronous if fragments_read(dot) is not None], outside)
        rings = [outside.make(LocalAllocOp, ring_type(p.ring, self.stages)) for p in self.prefetches]
        if self.barrier is not None:
            outside.effect(FenceAsyncSharedOp)  # whatever lay in their memory before
        reach = outside.mul(self.loop.step, outside.number(self.ahead, self.loop.step.type))
        first = self._prologue(outside, rings)
        index = self._carry(first, outside)
        stored = self._dot_of_stored()
        self._wait_for_copies(rings, index, fenced=stored is not None)
        stages = self._read(rings, index)
        if asynchronous:
            self._store_in_rings(index)
        place = self._start_dots(asynchronous) if self.overlap is None else wait_late(self.body, self.overlap)
        if stored is not None and not asynchronous:
            self._start_dots([stored], pendings=0)
            place = stored  # copies are started while it runs
        self._copy_ahead(place or max(stages, key=list(self.body.ops).index), rings, index, reach)
        self._finish(asynchronous if self.overlap is None else self.overlap.sums)

    # -- copies ------------------------------------------------------------------------------------------

    def _prologue(self, b: Builder, rings: Sequence[SSAValue]) -> list[SSAValue]:
        """Copies of the first iterations, if there are so many; gives the carried values after them."""
        loop, values = self.loop, [self.loop.iter_args[i] for i in self.carried]
        runs = b.compare("ult" if loop.unsignedCmp is not None else "slt", loop.lb, loop.ub)
        length = b.sub(loop.ub, loop.lb)
        counter = loop.lb
        for iteration in range(self.ahead):
            valid = runs
            if iteration:
                distance = b.sub(counter, loop.lb)
                valid = b.both(runs, b.compare("ult", distance, length))
            values = self._copy(b, rings, b.number(iteration), values, counter, valid)
            counter = b.add(counter, loop.step)
        return values

    def _copy(
        self,
        b: Builder,
        rings: Sequence[SSAValue],
        index: SSAValue,
        values: Sequence[SSAValue],
        counter: SSAValue,
        valid: SSAValue,
    ) -> list[SSAValue]:
        """Copy what one iteration loads to buffer `index` of every ring, as one group.

        Args:
            b: where.
            rings: of the loads.
            index: of the buffer.
            values: what the iteration has for the carried values of the addresses.
            counter: of the iteration.
            valid: whether there is such an iteration.

        Returns:
            The carried values of the iteration after it.
        """
        arguments = [self.body.args[i + 1] for i in self.carried]
        known: dict[SSAValue, SSAValue] = {self.body.args[0]: counter, **dict(zip(arguments, values, strict=True))}
        b.clone(self.slice, known)
        for prefetch, ring in zip(self.prefetches, rings, strict=True):
            buffer = b.make(MemDescIndexOp, prefetch.ring, ring, index)
            if self.barrier is not None and prefetch.is_block:
                desc, *indices = (known.get(value, value) for value in prefetch.address)
                operands = [desc, buffer, self.barrier, index, valid, *indices]
                copy = b.effect(TmaLoadOp, operands, cachePolicy=prefetch.policy)
                copy.location = prefetch.load.location
            else:
                self._copy_load(b, prefetch, buffer, known, valid)
        if self.by_threads:
            b.effect(AsyncCommitOp)
        end = self.body.last_op
        assert end is not None
        return [known.get(end.operands[i], end.operands[i]) for i in self.carried]

    @staticmethod
    def _copy_load(
        b: Builder, prefetch: Prefetch, buffer: SSAValue, known: Mapping[SSAValue, SSAValue], valid: SSAValue
    ) -> None:
        pointers, *masks = (known.get(value, value) for value in prefetch.address)
        type_ = with_layout(tile_type(shape_of(pointers.type), i1), layout_of(pointers))
        mask = b.make(SplatOp, type_, valid)
        if masks:
            mask = b.both(masks[0], mask)
        if prefetch.order is not None:
            pointers, mask = (transposed(b, value, prefetch.order) for value in (pointers, mask))
        b.effect(AsyncCopyOp, [pointers, buffer, mask]).location = prefetch.load.location

    def _copy_ahead(self, after: Operation, rings: Sequence[SSAValue], index: SSAValue, reach: SSAValue) -> None:
        """In the loop, copy a later iteration to the buffer that the iteration before this one has read."""
        loop, following = self.loop, after.next_op
        assert following is not None
        b = Builder(following)
        counter = self.body.args[0]
        valid = b.compare("ugt", b.sub(loop.ub, counter), reach)
        free = b.sub(index, b.number(1))
        free = b.choose(b.compare("eq", index, b.number(0)), b.number(self.stages - 1), free)
        count = len(self.carried)
        values = list(self.body.args[-1 - count : -1])
        following_values = self._copy(b, rings, free, values, b.add(counter, reach), valid)
        end = self.body.last_op
        assert end is not None
        kept = len(end.operands) - 1 - count
        end.operands = [*end.operands[:kept], *following_values, end.operands[-1]]

    # -- the body ----------------------------------------------------------------------------------------

    def _carry(self, first: Sequence[SSAValue], outside: Builder) -> SSAValue:
        """Make the loop carry what the copies need, and the number of the buffer to read, which is returned."""
        old, end = self.loop, self.body.last_op
        assert end is not None
        extra = [*first, outside.number(0)]
        arguments = [self.body.insert_arg(value.type, len(self.body.args)) for value in extra]
        index = arguments[-1]
        b = Builder(end)
        following = b.add(index, b.number(1))
        wraps = b.compare("eq", following, b.number(self.stages))
        wrapped = b.choose(wraps, b.number(0), following)
        # The ahead values are yielded as they are until the copies are written.
        end.operands = [*end.operands, *arguments[:-1], wrapped]
        made = loop_carrying(old, [*old.iter_args, *extra])
        replace(old, made.results[: len(old.results)])
        self.loop = made
        return index

    def _wait_for_copies(self, rings: Sequence[SSAValue], index: SSAValue, *, fenced: bool) -> None:
        """At the head of an iteration; `fenced` says that a fence follows before products read what was copied."""
        first = self.body.first_op
        assert first is not None
        b = Builder(first)
        if self.barrier is not None:
            pairs = zip(self.prefetches, rings, strict=True)
            filled = [b.make(MemDescIndexOp, p.ring, ring, index) for p, ring in pairs if p.is_block]
            b.effect(WaitBarrierOp, [self.barrier, index, *filled])
        if self.by_threads:
            b.effect(AsyncWaitOp, num=self.ahead - 1)
        copied = [buffer.result for p in self.prefetches for buffer in p.buffers if not p.is_block]
        if not fenced and any(map(feeds_wgmma, copied)):
            # cp.async writes through the generic proxy (PTX ISA, wgmma, "Async Proxy").
            b.effect(FenceAsyncSharedOp)

    def _read(self, rings: Sequence[SSAValue], index: SSAValue) -> list[Operation]:
        """Read the buffers where the loads were; gives an operation at each place."""
        places = []
        for prefetch, ring in zip(self.prefetches, rings, strict=True):
            b = Builder(prefetch.load)
            stage = b.make(MemDescIndexOp, prefetch.ring, ring, index)
            for buffer in prefetch.buffers:
                same = buffer is prefetch.alloc
                view = stage if same else b.make(MemDescIndexOp, buffer.result.type, ring, index)
                replace(buffer, [view])
            read_load(b, prefetch, stage)
            last = prefetch.load.prev_op
            assert last is not None
            places.append(last)
            erase(prefetch.load)
        return places

    def _store_in_rings(self, index: SSAValue) -> None:
        """Put what an iteration computes for its products where those of the iteration before do not read."""
        for alloc in self.computed:
            ring = Builder(self.loop).make(LocalAllocOp, ring_type(alloc.result.type, self.stages))
            b = Builder(alloc)
            buffer = b.make(MemDescIndexOp, alloc.result.type, ring, index)
            b.effect(LocalStoreOp, [alloc.operands[0], buffer])
            replace(alloc, [buffer])

    # -- products ----------------------------------------------------------------------------------------

    def _asynchronous(self) -> list[WarpGroupDotOp]:
        """The products of the loop, if all of them may stay in flight until the next iteration; else none."""
        answers = self._answers()
        for dot, answer in answers:
            self.decisions.note(ASYNC_DOT, dot, answer if self.overlap is None else Yes(dot, OVERLAPPED))
        return [dot for dot, answer in answers if isinstance(answer, Yes)]

    def _answers(self) -> list[tuple[WarpGroupDotOp, Answer[WarpGroupDotOp]]]:
        """Whether each product of the loop stays in flight: all do, or none."""
        dots = every(self.body, WarpGroupDotOp)
        rings = {buffer for p in self.prefetches for buffer in p.buffers} | set(self.computed)
        answers = [self._may_stay_in_flight(op, rings) for op in dots]
        bad = next((dot for dot, answer in zip(dots, answers, strict=True) if isinstance(answer, No)), None)
        if bad is not None:
            no = No("another dot of the loop must be waited for", bad)
            answers = [no if isinstance(answer, Yes) else answer for answer in answers]
        return list(zip(dots, answers, strict=True))

    def _may_stay_in_flight(self, dot: WarpGroupDotOp, rings: set[LocalAllocOp]) -> Answer[WarpGroupDotOp]:
        """Whether only the next iteration's product uses a result, and operands stay where they are until then."""
        if dot.parent_block() is not self.body:
            return No("it stands under a condition", dot.parent_op())
        if bit_width(element_type(dot.d.type)) != 32:
            return No("its sum has elements of 16 bits", instead="an f32 accumulator")
        if dot.maxNumImpreciseAcc is not None:
            return No("max_num_imprecise_acc cuts it into parts")
        uses = list(dot.d.uses)
        if len(uses) != 1 or uses[0].operation is not self.body.last_op:
            user = next((use.operation for use in uses if use.operation is not self.body.last_op), None)
            return No(
                "its result is used in the same iteration", user, "acc = tl.dot(a, b, acc), and use acc after the loop"
            )
        argument = self.body.args[uses[0].index + 1]
        if dot.c is not argument or len(list(argument.uses)) != 1:
            return No("the sum of the iteration before is not handed to it as it is", instead="acc = tl.dot(a, b, acc)")
        for value, name in ((dot.a, "a"), (dot.b, "b")):
            owner = value.owner if isinstance(value.owner, Operation) else None
            outside = owner is not None and owner.parent_block() is not self.body
            if not isinstance(value.type, MemDescType):
                return No(f"operand {name} is computed in registers", owner, "operands that are loaded as they are")
            if not (outside or owner in rings):
                return No(f"the buffer of operand {name} is overwritten in the next iteration", owner)
        return Yes(dot, "it goes on while the next iteration is started")

    def _dot_of_stored(self) -> WarpGroupDotOp | None:
        """The product of the loop, if there is one only, that reads what the same iteration stores, from shared memory.

        The fence between store and product waits for copies, too: they are better started behind it.
        """
        dots = _products(self.loop)
        stored = [op.result for op in self.body.ops if isinstance(op, LocalAllocOp) and op.src]
        copied = {buffer for p in self.prefetches for buffer in p.buffers}
        stored = [buffer for buffer in stored if buffer.owner not in copied]
        if len(dots) != 1 or dots[0].parent_block() is not self.body or dots[0].maxNumImpreciseAcc is not None:
            return None
        operands = (dots[0].a, dots[0].b)
        in_memory = all(isinstance(value.type, MemDescType) for value in operands)
        wide = bit_width(element_type(dots[0].d.type)) == 32
        return dots[0] if in_memory and wide and any(value in stored for value in operands) else None

    def _settle(self, dots: Sequence[WarpGroupDotOp], outside: Builder) -> None:
        """Give sums registers of their own before the loop, by a wait for nothing.

        What addresses of fragments share with those of the code after the loop would else be computed once more where
        the loop is left out, and first values of sums with it; then the assembler makes products serial (C7515).
        """
        for dot in dots:
            argument = dot.c
            assert isinstance(argument, BlockArgument)
            index = argument.index + 2
            first = self.loop.operands[index]
            wait = outside.effect(WarpGroupDotWaitOp, [first], [first.type], pendings=0)
            self.loop.operands[index] = wait.results[0]

    @staticmethod
    def _start_dots(dots: Sequence[WarpGroupDotOp], pendings: int | None = None) -> Operation | None:
        """Let products go on while those before are waited for, or all but `pendings`; gives the wait."""
        if not dots:
            return None
        following = dots[-1].next_op
        assert following is not None
        for dot in dots:
            dot.properties["isAsync"] = BoolAttr.from_bool(True)
        return wait_for(Builder(following), [dot.d for dot in dots], len(dots) if pendings is None else pendings)

    def _finish(self, dots: Sequence[WarpGroupDotOp]) -> None:
        """After the loop: no product and no copy is under way any more."""
        following = self.loop.next_op
        assert following is not None
        b = Builder(following)
        end = self.body.last_op
        assert end is not None
        if dots:
            waits = among((user for dot in dots for user in users_of(dot.d)), WarpGroupDotWaitOp)
            sums = {*(dot.d for dot in dots), *(result for wait in waits for result in wait.results)}
            results = [r for r, value in zip(self.loop.results, end.operands, strict=True) if value in sums]
            wait_for(b, results, 0)
        if self.by_threads:
            b.effect(AsyncWaitOp, num=0)


# --- fences -------------------------------------------------------------------------------------------------------


def feeds_wgmma(buffer: SSAValue) -> bool:
    """Whether a product reads a buffer through the asynchronous proxy."""
    return any(among(users_of(buffer), WarpGroupDotOp))


def fence_operands(function: Operation) -> None:
    """Put a fence after every ordinary store to a buffer that wgmma reads: the two go through different proxies."""
    for op in list(walk(function)):
        if isinstance(op, LocalStoreOp):
            stored = op.dst
        elif isinstance(op, LocalAllocOp) and op.src:
            stored = op.result
        else:
            continue
        following = op.next_op
        if feeds_wgmma(stored) and following is not None:
            Builder(following).effect(FenceAsyncSharedOp)


__all__ = [
    "SPLIT", "Pipeliner", "asked_stages", "blocks_of", "computed_operands", "pipeline_loops", "taken_beside",
    "wait_for",
]  # fmt: skip
