"""Roles: a warp group of its own copies what a loop multiplies, and the warps that multiply do nothing else.

The block gets four warps more. One thread of them runs the loop for its addresses alone, ahead of the others by as many
stages as there are:

    %full, %empty = barriers of n stages         %ring = n buffers
    if warp >= 8 {                               else {
      one thread: for k ... (stage, parity)        for k ... (stage, parity)
        wait until empty[stage]                      wait until full[stage]
        copy -> ring[stage], told to full[stage]     products of ring[stage], one iteration in flight
                                                     each warp arrives at empty[stage of the iteration before]
    }                                            }

Both loops count their iterations alike, through all loops around: stage and parity are values that they carry. The
copying loop is what `address_slice` finds; scalars in front of the loops are computed by all warps. Loops with products
that follow each other, as blocks of keys with and without a mask, go through the same channels one after the other.

Where operands have to be turned for their products (`turning`), four warps more do that, between a ring that is copied
to and one that is read.

What is copied runs ahead of all that the kernel does to memory meanwhile, so nothing of it may write what is loaded.
Where something stands against it the loop is pipelined as any other (`pipeliner`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.analysis.origins import may_meet
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import MAX_THREADS, WARP, Arch
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.allocate import scratch_bytes
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.channels import (
    Channel,
    ChannelPlan,
    Position,
    channels_of,
    following,
    like,
    product_ranks,
)
from tilewright.backends.nvidia.plan.consumer import Consumer, multiply
from tilewright.backends.nvidia.plan.crew import GROUP, LARGE, Crew, crew_of
from tilewright.backends.nvidia.plan.operands import fragments_read, stage_operands
from tilewright.backends.nvidia.plan.pace import products_of_a_function
from tilewright.backends.nvidia.plan.persistence import Persistence, plan_persistence
from tilewright.backends.nvidia.plan.pipeliner import SPLIT, asked_stages, computed_operands, taken_beside
from tilewright.backends.nvidia.plan.prefetch import (
    Prefetch,
    address_slice,
    changed_by,
    loop_of,
    may_write,
    plan_prefetches,
    ring_bytes,
    turned_on_the_way,
)
from tilewright.backends.nvidia.plan.rotation import registers_of
from tilewright.backends.nvidia.plan.subjects import PERSISTENT, RING, ROLES
from tilewright.backends.nvidia.tgir.ops import (
    ElectOp,
    EnterRoleOp,
    LocalAllocOp,
    TmaStoreSlicesOp,
    WarpGroupDotOp,
    WarpIdOp,
)
from tilewright.backends.nvidia.tgir.types import memdesc_bytes, tile_words
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.types import i1, i32, shape_of
from tilewright.ir.walk import among, ancestors, every, read_by, walk
from tilewright.ops.control import ForOp, IfOp, LoopOp, YieldOp
from tilewright.ops.debug import BarrierOp
from tilewright.ops.descriptor import DescriptorStoreOp, MakeTensorDescOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import StoreOp
from tilewright.passes.rewriting import move_before

_SLACK = 2048  # bytes of shared memory for barriers and what alignment leaves
_STORES = (StoreOp, DescriptorStoreOp, TmaStoreSlicesOp)  # what they write is at their first operand
_MATH_BARRIER = 1  # of the hardware's; 0 is that of all warps


@dataclass(frozen=True, slots=True)
class Level:
    """A loop that both roles have.

    Args:
        loop: the loop.
        slice: operations of its body that addresses need.
        carried: numbers of the values that it carries for them.
        needed: values of which all that is made.
    """

    loop: ForOp
    slice: Sequence[Operation]
    carried: Sequence[int]
    needed: Sequence[SSAValue]


@dataclass(frozen=True, slots=True)
class Part:
    """A loop with products.

    Args:
        level: the loop.
        channels: what is copied, in the order in which it is needed; the same buffers for all parts.
        computed: buffers of operands that an iteration computes, for which there is room for rings as well.
    """

    level: Level
    channels: Sequence[ChannelPlan]
    computed: Sequence[LocalAllocOp]


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How a kernel is divided.

    Args:
        around: the loops around those with products, outermost first.
        parts: the loops with products, one after the other.
        stages: of the rings.
        crew: who does it.
    """

    around: Sequence[Level]
    parts: Sequence[Part]
    stages: int
    crew: Crew

    @property
    def prefetches(self) -> list[Prefetch]:
        """All loads that are copied."""
        channels = [channel for part in self.parts for channel in part.channels]
        return [prefetch for channel in channels for prefetch in channel.prefetches]


def split_into_roles(
    module: ModuleOp, options: CudaOptions, arch: Arch, decisions: Decisions, *, hands_on: bool = True
) -> bool:
    """Divide the kernels of a laid-out module between roles where that is asked for or pays, in place.

    Args:
        module: laid-out tile IR before pipelining.
        options: compile options.
        arch: what the target has.
        decisions: of the compilation.
        hands_on: whether what assembles the kernel lets warps hand registers on.
    """
    changed = False
    for function in FuncOp.all_of(module):
        if options.num_stages > 1 and arch.has_tma:
            stage_operands(function)
            loops = [op for op in every(function, ForOp) if _multiplies(op)]
            follow = len({loop.parent_block() for loop in loops}) == 1
            for group in [loops] if follow else [[loop] for loop in loops]:
                copied = _prefetches(function, group)
                answer: Answer[RolePlan] | None
                answer = _persistent(function, copied, loops, options, arch, hands_on, decisions)
                answer = answer or _answer(function, copied, loops, options, arch, hands_on)
                if answer is not None and (plan := decisions.note(ROLES, group[0], answer)) is not None:
                    for prefetch in plan.prefetches:
                        size = memdesc_bytes(prefetch.ring)
                        what = f"{plan.stages} buffers of {size} bytes, by a warp group of its own"
                        decisions.note(RING, prefetch.load, Yes(prefetch, what))
                    _Splitter(function, plan, decisions).run()
                    changed = True
    return changed


def _multiplies(loop: ForOp) -> bool:
    return any(loop_of(dot) is loop for dot in every(loop, WarpGroupDotOp))


def _around(loop: Operation) -> list[Operation]:
    """The operations in a function that hold another, outermost first."""
    return list(takewhile(lambda parent: not isinstance(parent, FuncOp), ancestors(loop)))[::-1]


# --- choice -------------------------------------------------------------------------------------------------------


def _answer(
    function: FuncOp,
    prefetches: Mapping[ForOp, Sequence[Prefetch]],
    loops: Sequence[ForOp],
    options: CudaOptions,
    arch: Arch,
    hands_on: bool,
) -> Answer[RolePlan] | None:
    """Whether loops with products, one after the other, are divided; None where nobody asks and it is not worth it."""
    group = list(prefetches)
    if not _wanted(prefetches, options, hands_on):
        return None
    if len(group) < len(loops):
        return No("the kernel has several loops with products", next(op for op in loops if op is not group[0]))
    every = list(chain.from_iterable(prefetches.values()))
    crew = crew_of(options, every, hands_on=hands_on)
    for loop in group:
        no = _unfit(loop, prefetches[loop], crew) or _spilling(loop, crew)
        if no is not None:
            return no
    no = _changed(function, [*_around(group[0]), group[-1]][0], [p.load.operands[0] for p in every])
    if no is not None:
        return no
    channels = _shared(group, prefetches)
    if isinstance(channels, No):
        return channels
    levels = _levels(function, group, prefetches)
    if isinstance(levels, No):
        return levels
    return _with_room(function, group, levels, channels, crew, options, arch)


def _prefetches(function: FuncOp, group: Sequence[ForOp]) -> dict[ForOp, list[Prefetch]]:
    """What each loop copies ahead."""
    planned = {loop: plan_prefetches(loop, function) for loop in group}
    return {
        loop: [turned_on_the_way(answer.plan) for _, answer in planned[loop] if isinstance(answer, Yes)]
        for loop in group
    }


def _wanted(prefetches: Mapping[ForOp, Sequence[Prefetch]], options: CudaOptions, hands_on: bool) -> bool:
    """Whether somebody asks for roles in some loops, or it is worth it."""
    asked = any("tt.warp_specialize" in op.attributes for loop in prefetches for op in (*_around(loop), loop))
    return asked or any(_pays(loop, copied, options, hands_on) for loop, copied in prefetches.items())


def _persistent(
    function: FuncOp,
    prefetches: Mapping[ForOp, Sequence[Prefetch]],
    loops: Sequence[ForOp],
    options: CudaOptions,
    arch: Arch,
    hands_on: bool,
    decisions: Decisions,
) -> Yes[RolePlan] | None:
    """How the loops of a plain kernel are divided if blocks run one program after the other; None if they do not."""
    group = list(prefetches)
    if len(group) < len(loops) or _around(group[0]) or options.block_warps != tuning.ROLE_WARPS or not arch.has_wgmma:
        return None
    copied = max(map(ring_bytes, prefetches.values()))
    if copied < tuning.ROLE_BYTES or not all(each.is_block for each in chain.from_iterable(prefetches.values())):
        return None
    shared = arch.shared_limit if _wanted(prefetches, options, hands_on) else copied * options.num_stages
    stays = plan_persistence(function, group, shared, options, arch)
    if isinstance(stays, Yes):
        made = Persistence(function, group[0])
        answer = _answer(function, prefetches, loops, options, arch, hands_on)
        if isinstance(answer, Yes):
            decisions.note(PERSISTENT, group[0], stays)
            return answer
        made.undo()
        assert answer is not None
        stays = answer
    decisions.note(PERSISTENT, group[0], stays)
    return None


def _pays(loop: ForOp, prefetches: Sequence[Prefetch], options: CudaOptions, hands_on: bool) -> bool:
    """Whether a loop is divided unasked: under another one, or with products that can run beside each other."""
    size, warps = ring_bytes(p for p in prefetches if p.is_block), options.block_warps
    if loop_of(loop) is not None and size >= tuning.ROLE_BYTES and warps == tuning.ROLE_WARPS:
        return True
    ranks = product_ranks(loop.body.block)
    if not hands_on or 1 not in ranks.values():
        return False
    if warps == LARGE:
        asked = registers_of({dot: ranks[dot] for dot in among(ranks, WarpGroupDotOp)})
        return size >= tuning.ROLE_BYTES and asked <= crew_of(options, prefetches).held
    if warps != tuning.ROLE_WARPS or size < tuning.ROLE_BYTES:
        return False
    turns = any(prefetch.copied is not None for prefetch in prefetches)
    return turns or products_of_a_function(loop) >= tuning.ROTATED_PRODUCTS


def _spilling(loop: ForOp, crew: Crew) -> No | None:
    """Why registers do not suffice for the results of all products, which is what the loop has at once."""
    dots = every(loop, WarpGroupDotOp)
    needed = sum(tile_words(dot.d.type) for dot in dots) + tuning.ROLE_REGISTERS
    if needed <= crew.held:
        return None
    why = f"results of products would take {needed} registers a thread, of {crew.held}"
    return No(why, instead="smaller blocks, or nvidia-cuda-nvcc, whose ptxas lets warps hand registers on")


def _unfit(loop: ForOp, prefetches: Sequence[Prefetch], crew: Crew) -> No | None:
    """Why a loop cannot be divided, but for its addresses, shared memory, and what else the kernel does."""
    if crew.warps % GROUP:
        return No("roles are groups of four warps", instead="num_warps=4 or 8")
    if crew.total * WARP > MAX_THREADS:
        more = crew.total - crew.warps
        return No(f"a block of {crew.warps} warps has no room for {more} more", instead="num_warps=4 or 8")
    if not any(p.is_block for p in prefetches):
        return No("no load of the loop is made by the copy engine", instead="TensorDescriptor arguments")
    pointers = next((p.load for p in prefetches if not p.is_block), None)
    if pointers is not None:
        return No(f"{describe_op(pointers)} through pointers is copied by all threads", pointers, "a TensorDescriptor")
    dots = every(loop, WarpGroupDotOp)
    turned = next((op for op in dots if fragments_read(op) is not None), None)
    if turned is not None:
        return No("fragments of an operand are read ahead, between two iterations", turned)
    holder = next((op for op in _around(loop) if not isinstance(op, ForOp)), None)
    return None if holder is None else No("it stands under a condition", holder)


def _changed(function: FuncOp, last: Operation, bases: Sequence[SSAValue]) -> No | None:
    """The operation that copies cannot run ahead of: all but those behind the `last` loop of the kernel count."""
    for top in function.body.block.ops:
        for op in walk(top):
            if isinstance(op, LoopOp) or not may_write(op):
                continue
            if not isinstance(op, _STORES) or any(may_meet(op.operands[0], base) for base in bases):
                return changed_by(op)
        if top is last:
            break
    return None


def _shared(group: Sequence[ForOp], prefetches: Mapping[ForOp, Sequence[Prefetch]]) -> list[list[ChannelPlan]] | No:
    """The channels of each loop, which are those of the first one with other loads."""
    first, *others = ([*channels_of(prefetches[loop], loop.body.block)] for loop in group)
    found = [first]
    for loop, channels in zip(group[1:], others, strict=True):
        made = [like(one, other) for one, other in zip(first, channels, strict=False)]
        if len(channels) != len(first) or None in made:
            return No("loops with products that follow each other copy different tiles", loop, "a loop of one kind")
        found.append([channel for channel in made if channel is not None])
    return found


def _levels(
    function: FuncOp, group: Sequence[ForOp], prefetches: Mapping[ForOp, Sequence[Prefetch]]
) -> tuple[list[Level], list[Level]] | No:
    """What the role that copies needs of each loop around those with products, outermost first, and of these."""
    wanted: list[SSAValue] = []
    around: list[Level] = []
    parts: list[Level] = []
    for loop in group:
        level = _level(loop, [value for p in prefetches[loop] for value in p.address])
        if isinstance(level, No):
            return level
        parts.append(level)
        wanted += level.needed
    for each in reversed(_around(group[0])):
        assert isinstance(each, ForOp)
        level = _level(each, wanted)
        if isinstance(level, No):
            return level
        around.insert(0, level)
        wanted += level.needed
    front = _front(function.body.block)
    for value in wanted:
        owner = value.owner
        if isinstance(owner, Operation) and owner.parent_block() is function.body.block and owner not in front:
            return No(f"addresses or bounds need {describe_op(owner)}, which all warps would have to do", owner)
    return around, parts


def _level(loop: ForOp, wanted: Sequence[SSAValue]) -> Level | No:
    """What some values need of a loop."""
    found = address_slice(wanted, loop.body.block)
    if isinstance(found, No):
        return found
    ops = [op for op in loop.body.block.ops if op in found[0]]
    carried = sorted(found[1])
    needed = [*wanted, *loop.operands[:3], *(loop.iter_args[number] for number in carried)]
    needed += [operand for op in ops for operand in read_by(op)]
    return Level(loop, ops, carried, needed)


def _front(block: Block) -> set[Operation]:
    """Descriptors, and scalars that are computed of parameters alone."""
    found: set[Operation] = set()
    for op in block.ops:
        scalar = not op.regions and not any(shape_of(result.type) for result in op.results)
        known = all(owner is block or owner in found for owner in (operand.owner for operand in op.operands))
        if isinstance(op, MakeTensorDescOp) or (op.results and scalar and known and is_without_effects(op)):
            found.add(op)
    return found


def _with_room(
    function: FuncOp,
    group: Sequence[ForOp],
    levels: tuple[Sequence[Level], Sequence[Level]],
    channels: Sequence[Sequence[ChannelPlan]],
    crew: Crew,
    options: CudaOptions,
    arch: Arch,
) -> Answer[RolePlan]:
    """The plan, with as many stages as shared memory has room for beside all else."""
    copied = [[prefetch for channel in each for prefetch in channel.prefetches] for each in channels]
    every = list(chain.from_iterable(copied))
    wanted = max(asked_stages(loop, options.num_stages) for loop in group)
    if any(channel.last > channel.first for channel in channels[0]):
        wanted += 1  # the last products of an iteration read beside the first ones of the next, which is there already
    taken = max(taken_beside(loop, function, every) for loop in group)
    taken += max(scratch_bytes(op) for op in walk(function)) + _SLACK
    stages = min(wanted, (arch.shared_limit - taken) // ring_bytes(copied[0]))
    if stages < 2:
        return No(
            "shared memory has no room for two buffers beside the rest", instead="smaller blocks, or num_stages=2"
        )
    computed = [computed_operands(loop, prefetches) for loop, prefetches in zip(group, copied, strict=True)]
    more = (stages - 1) * sum(memdesc_bytes(op.result.type) for op in chain.from_iterable(computed))
    if taken + stages * ring_bytes(copied[0]) + more > arch.shared_limit:
        computed = [[] for _ in group]
    parts = [Part(*row) for row in zip(levels[1], channels, computed, strict=True)]
    plan = RolePlan(levels[0], parts, stages, crew)
    what = f"{GROUP} warps copy, " + (f"{GROUP} turn, " if crew.turns else "")
    what += f"{crew.warps} multiply, {stages} stages between them"
    what += f", for {len(group)} loops one after the other" if len(group) > 1 else ""
    handed = [crew.copying, *([crew.turning] if crew.turns else []), crew.multiplying]
    return Yes(plan, what + (f"; {', '.join(map(str, handed[:-1]))} and {handed[-1]} registers" if handed[-1] else ""))


# --- rewriting ----------------------------------------------------------------------------------------------------


class _Splitter:
    """Divides a kernel.

    Args:
        function: the kernel.
        plan: how.
        decisions: of the compilation.
    """

    def __init__(self, function: FuncOp, plan: RolePlan, decisions: Decisions) -> None:
        self.function, self.plan, self.decisions = function, plan, decisions

    def run(self) -> None:
        """Put all but scalars and descriptors into the role that multiplies, and make the one that copies."""
        plan, crew, block = self.plan, self.plan.crew, self.function.body.block
        front, end = _front(block), block.last_op
        assert end is not None
        moved = [op for op in block.ops if op not in front and op is not end]
        b = Builder(end)
        first = [Channel.make(self.function, c, plan.stages, crew.warps, b) for c in plan.parts[0].channels]
        self.channels = [[c.of(p) for c, p in zip(first, part.channels, strict=True)] for part in plan.parts]
        b.effect(BarrierOp, space="local")  # barriers are made
        warp = b.make(WarpIdOp, i32)
        copies, rest = self._branch(b, b.compare("uge", warp, b.number(crew.first_copying)))
        self._enter(copies, crew.first_copying, crew.copying, 0)
        self._copy(copies)
        if crew.turns:
            # Behind those that multiply: what they have in shared memory meets nothing that is copied to be turned.
            b = self._end(rest)
            rest, turns = self._branch(b, b.compare("ult", warp, b.number(crew.warps)))
            self._loops(self._enter(turns, crew.warps, crew.turning, 0), plan.around, {}, self._turn)
        entry = self._enter(rest, 0, crew.multiplying, _MATH_BARRIER, crew.warps)
        for op in moved:
            move_before(op, entry.anchor)
        consumers = [
            Consumer(part.level.loop, channels, plan.stages, part.computed, crew, self.decisions)
            for part, channels in zip(plan.parts, self.channels, strict=True)
        ]
        multiply([level.loop for level in plan.around], consumers)

    def _empty_region(self) -> Region:
        block, end = Block(), YieldOp.create()
        end.location = self.plan.parts[0].level.loop.location
        block.add_op(end)
        return Region(block)

    def _branch(self, b: Builder, condition: SSAValue) -> tuple[Region, Region]:
        """Regions of those for whom a condition holds, and of the others."""
        regions = self._empty_region(), self._empty_region()
        branch = b.insert(IfOp.create(operands=[condition], result_types=[], regions=regions))
        branch.location = self.plan.parts[0].level.loop.location
        return regions

    @staticmethod
    def _end(region: Region) -> Builder:
        last = region.block.last_op
        assert last is not None
        return Builder(last)

    def _enter(self, region: Region, first: int, registers: int, barrier: int, warps: int = GROUP) -> Builder:
        b = self._end(region)
        b.effect(EnterRoleOp, first_warp=first, num_warps=warps, registers=registers, barrier=barrier)
        return b

    # -- copies ------------------------------------------------------------------------------------------

    def _copy(self, region: Region) -> None:
        """The role that copies: one thread does it."""
        b, inner = self._end(region), self._empty_region()
        elected = b.make(ElectOp, i1, warp=self.plan.crew.first_copying)
        b.insert(IfOp.create(operands=[elected], result_types=[], regions=[inner, Region()]))
        self._loops(self._end(inner), self.plan.around, {}, self._fill)

    def _loops(
        self,
        b: Builder,
        around: Sequence[Level],
        known: dict[SSAValue, SSAValue],
        inside: Callable[..., Position],
        at: Position | None = None,
    ) -> Position:
        """Write some loops in each other, and in them those with products, for what is `inside` these.

        Gives the position after them.
        """
        at = (b.number(0), b.number(0)) if at is None else at
        if around:
            level, *others = around
            return self._loop(b, level, known, at, partial(self._loops, around=others, inside=inside))
        for part, channels in zip(self.plan.parts, self.channels, strict=True):
            at = self._loop(b, part.level, known, at, partial(inside, channels=channels))
        return at

    @staticmethod
    def _loop(
        b: Builder, level: Level, known: dict[SSAValue, SSAValue], at: Position, inside: Callable[..., Position]
    ) -> Position:
        """Write a loop with what addresses need of it, and what is `inside`; gives the position after it."""
        loop, old = level.loop, level.loop.body.block
        firsts = [*(known.get(value, value) for value in (loop.iter_args[i] for i in level.carried)), *at]
        region = Region(Block(arg_types=[loop.lb.type, *(value.type for value in firsts)]))
        bounds = [known.get(value, value) for value in loop.operands[:3]]
        made = ForOp.create(
            operands=[*bounds, *firsts],
            result_types=[value.type for value in firsts],
            properties=dict(loop.properties),
            attributes={SPLIT: UnitAttr()},
            regions=[region],
        )
        b.insert(made)
        made.location = loop.location
        body, end = region.block, YieldOp.create()
        end.location = loop.location
        body.add_op(end)
        known = {**known, old.args[0]: body.args[0]}
        known |= {old.args[i + 1]: arg for i, arg in zip(level.carried, body.args[1:], strict=False)}
        within = Builder(end)
        within.clone(level.slice, known)
        after = inside(within, known=known, at=(body.args[-2], body.args[-1]))
        last = old.last_op
        assert last is not None
        end.operands = [*(known.get(last.operands[i], last.operands[i]) for i in level.carried), *after]
        return made.results[-2], made.results[-1]

    def _fill(self, b: Builder, channels: Sequence[Channel], known: dict[SSAValue, SSAValue], at: Position) -> Position:
        """Copy what one iteration multiplies, in the order in which it is needed."""
        for channel in channels:
            channel.fill(b, known, at)
        return following(b, at, self.plan.stages)

    def _turn(self, b: Builder, channels: Sequence[Channel], known: dict[SSAValue, SSAValue], at: Position) -> Position:
        """Turn what one iteration multiplies."""
        for channel in channels:
            channel.turn(b, at)
        return following(b, at, self.plan.stages)


__all__ = ["RolePlan", "split_into_roles"]
