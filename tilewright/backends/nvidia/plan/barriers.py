"""Barriers between the threads of a block, where and only where shared memory needs them.

The state is what threads may have done since they last waited for each other: reads and writes of byte ranges, and
copies and products that are still under way (they outlast barriers and count when they are waited for). An operation
that conflicts with it gets a barrier in front:

    async_wait                  the copies of the oldest group are writes now
    ttg.barrier local           <- inserted: the load conflicts with them
    local_load %ring[k]
    async_copy %ring[k + 2]     no barrier: another buffer of the ring than the one just read

Loops run to a fixpoint: their head joins what comes before them and what the last iteration leaves behind. Where an
operation of a loop conflicts only with what was done when the loop began, the barrier stands in front of that.
Operations that exchange data through scratch write it, wait for the block (if warps exchange) and read it; the waits
that they make themselves serve others as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.states import Loop, StateWalk
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.emit import families
from tilewright.backends.nvidia.plan.allocate import Allocation, allocate, waits_between
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.multibuffer import Move, Stage, after_loop, entering_loop, next_iteration, roots_of
from tilewright.backends.nvidia.plan.subjects import NO_BARRIER
from tilewright.backends.nvidia.tgir.ops import (
    ArriveBarrierOp,
    AsyncCommitOp,
    AsyncCopyOp,
    AsyncWaitOp,
    InitBarrierOp,
    LocalAllocOp,
    LocalLoadOp,
    LocalStoreOp,
    MemDescIndexOp,
    TmaLoadOp,
    TmaStoreOp,
    WaitBarrierOp,
    WaitPhaseOp,
    WarpGroupDotOp,
    WarpGroupDotWaitOp,
)
from tilewright.backends.nvidia.tgir.types import MemDescType
from tilewright.base.decision import No, Yes
from tilewright.base.errors import InternalError
from tilewright.ir.decisions import Decisions, describe_op, user_place
from tilewright.ir.walk import ancestors
from tilewright.ops.control import ConditionOp, ForOp, YieldOp
from tilewright.ops.debug import BarrierOp
from tilewright.ops.dot import DotOp
from tilewright.ops.function import FuncOp

assert families.LOADED, "the emitters tell which operations need scratch"


@dataclass(frozen=True, slots=True)
class Access:
    """A part of shared memory that threads read or write.

    Args:
        owner: the buffer or the operation whose scratch it is.
        stage: which buffer of a ring; None for all of it.
        writes: whether it is written, else read.
        by: the operation that does it.
    """

    owner: Operation
    stage: Stage | None
    writes: bool
    by: Operation


Accesses = frozenset[Access]
Groups = tuple[Accesses, ...]  # oldest first
_NOTHING: Accesses = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """What other threads may be doing.

    Args:
        done: accesses since the last barrier.
        open: asynchronous copies that form no group yet.
        copies: groups of copies under way.
        products: what products under way read, a group each.
    """

    done: Accesses = _NOTHING
    open: Accesses = _NOTHING
    copies: Groups = ()
    products: Groups = ()

    def joined(self, other: State) -> State:
        """What may be the case where two ways meet."""
        return State(
            self.done | other.done,
            self.open | other.open,
            _joined(self.copies, other.copies),
            _joined(self.products, other.products),
        )

    def moved(self, loop: Operation, move: Move) -> State:
        """The state with the stages of all accesses renamed at the border of a loop."""

        def of(accesses: Accesses) -> Accesses:
            return frozenset(Access(a.owner, move(loop, a.owner, a.stage), a.writes, a.by) for a in accesses)

        return State(of(self.done), of(self.open), tuple(map(of, self.copies)), tuple(map(of, self.products)))


def _joined(first: Groups, second: Groups) -> Groups:
    """Groups counted from the newest, as waits count them."""
    pairs = zip_longest(reversed(first), reversed(second), fillvalue=_NOTHING)
    return tuple(a | b for a, b in pairs)[::-1]


def _appended(groups: Groups, group: Accesses) -> Groups:
    longer = (*groups, group)
    extra = len(longer) - tuning.COPY_GROUPS
    return longer if extra <= 0 else (_NOTHING.union(*longer[: extra + 1]), *longer[extra + 1 :])


def _finished(groups: Groups, left: int) -> tuple[Accesses, Groups]:
    """What is complete when at most `left` groups are under way, and those groups."""
    cut = max(0, len(groups) - left)
    return _NOTHING.union(*groups[:cut]), groups[cut:]


def place_barriers(module: ModuleOp, decisions: Decisions) -> None:
    """Insert `ttg.barrier local` into the kernels of a laid-out module."""
    for function in FuncOp.all_of(module):
        analysis = _without_late(function, _analysed(function))
        for op, (later, earlier) in analysis.needs.items():
            Builder(op).effect(BarrierOp, space="local")
            decisions.note(NO_BARRIER, op, _waits(later, earlier))
        if not analysis.needs:
            decisions.note(NO_BARRIER, function, Yes(None, "nobody waits for what another thread left in memory"))


def _analysed(function: FuncOp) -> _Analysis:
    """Where barriers are needed; in front of a loop only where that saves one within it."""
    first = _Analysis(allocate(function))
    first.block(function.body.block, State())
    before = {op: why for op, why in first.needs.items() if op in first.served}
    if not before:
        return first
    second = _Analysis(first.allocation, before)
    second.block(function.body.block, State())
    useless = {loop for loop in before if first.served[loop] <= second.needs.keys()}
    if not useless:
        return second
    third = _Analysis(first.allocation, {op: why for op, why in before.items() if op not in useless}, useless)
    third.block(function.body.block, State())
    return third


def _without_late(function: FuncOp, found: _Analysis) -> _Analysis:
    """Without barriers that one further up in the same iteration serves as well, which the next iteration needs:

    async_wait
    ttg.barrier local                <- what the product of the iteration before read is overwritten
    async_copy %ring[k + 2]
    dot %ring[k]                     no barrier of its own for what was waited for
    """
    order = list(found.needs)
    for number, op in enumerate(order):
        if not any(_is_above(later, op) for later in order[number + 1 :]):
            continue
        rest = {other: why for other, why in found.needs.items() if other is not op}
        without = _Analysis(found.allocation, rest, found.useless)
        without.block(function.body.block, State())
        if without.needs.keys() == rest.keys():
            found = without
    return found


def _is_above(first: Operation, second: Operation) -> bool:
    """Whether an operation stands before another of its block."""
    return first.parent is second.parent and first.is_before_in_block(second)


def _rank(pair: tuple[Access, Access]) -> tuple[object, ...]:
    """Which of several conflicts is told: the same one in every process."""
    later, earlier = pair
    return user_place(earlier.by), earlier.by.name, earlier.writes, later.writes, user_place(earlier.owner)


def _waits(later: Access, earlier: Access) -> No:
    """Why the block waits between two accesses."""
    verbs = ["write" if access.writes else "read" for access in (earlier, later)]
    same = "the same" if later.owner is earlier.owner else "the same place of"
    return No(f"{describe_op(later.by)} must {verbs[1]} after others {verbs[0]} {same} shared memory", earlier.by)


def _behind_barrier(state: State) -> State:
    return replace(state, done=_NOTHING)


def _moved(loop: Loop, state: State, move: Move) -> State:
    """The stages of rings are numbered by the iterations of counted loops alone."""
    return state.moved(loop, move) if isinstance(loop, ForOp) else state


class _Analysis(StateWalk[State]):
    """Finds the operations that need a barrier in front.

    Args:
        allocation: where buffers and scratch lie.
        needs: operations that have one already.
        useless: loops in front of which a barrier saves none.
    """

    def __init__(
        self,
        allocation: Allocation,
        needs: Mapping[Operation, tuple[Access, Access]] | None = None,
        useless: Collection[Operation] = (),
    ) -> None:
        self.allocation, self.useless = allocation, useless
        self.needs = dict(needs or {})  # in order; the first conflict that was found
        self.heads: dict[Operation, State] = {}  # what loops begin with
        self.served: dict[Operation, set[Operation]] = {}  # by a barrier in front of a loop: operations in it

    def operation(self, op: Operation, state: State) -> State:
        if isinstance(op, BarrierOp):
            return _behind_barrier(state)
        return self._effects(op, state)

    def join(self, first: State, second: State) -> State:
        return first.joined(second)

    def entering(self, loop: Loop, state: State) -> State:
        state = _moved(loop, _behind_barrier(state) if loop in self.needs else state, entering_loop)
        self.heads[loop] = state
        return state

    def next_iteration(self, loop: Loop, state: State) -> State:
        return _moved(loop, state, next_iteration)

    def leaving(self, loop: Loop, state: State) -> State:
        return _moved(loop, state, after_loop)

    def _effects(self, op: Operation, state: State) -> State:
        """The state after an operation without control flow; notes that it needs a barrier if it does."""
        accesses = self._accesses(op)
        exchanges = op in self.allocation.offsets and not isinstance(op, LocalAllocOp)
        if op not in self.needs and (found := [(a, b) for a in accesses for b in state.done if self._conflict(a, b)]):
            place = self._place(op, frozenset(earlier for _, earlier in found))
            self.needs.setdefault(place, min(found, key=_rank))
            if place is not op:
                self.served.setdefault(place, set()).add(op)
                state = replace(state, done=frozenset(a for a in state.done if not self._precedes(a, place)))
        if op in self.needs:
            state = _behind_barrier(state)
        done, pending, copies, products = state.done, state.open, state.copies, state.products
        if isinstance(op, AsyncCopyOp):
            pending |= accesses
        elif isinstance(op, TmaLoadOp):
            pass  # one thread writes what every thread waits for before it looks
        elif isinstance(op, AsyncCommitOp):
            copies, pending = _appended(copies, pending), _NOTHING
        elif isinstance(op, AsyncWaitOp):
            finished, copies = _finished(copies, int(op.attr_values()["num"]))
            done |= finished
        elif isinstance(op, WarpGroupDotOp) and op.attr_values()["isAsync"]:
            products = _appended(products, accesses)
        elif isinstance(op, WarpGroupDotWaitOp):
            finished, products = _finished(products, int(op.attr_values()["pendings"]))
            done |= finished
        elif exchanges and waits_between(op):
            done = frozenset(access for access in accesses if not access.writes)
        else:
            done |= accesses
        return State(done, pending, copies, products)

    def _place(self, op: Operation, earlier: Accesses) -> Operation:
        """The operation in front of which threads wait: the outermost loop that begins when all of that is done."""
        loops = [loop for loop in ancestors(op) if loop in self.heads and loop not in self.useless]
        return next((loop for loop in reversed(loops) if all(self._precedes(a, loop) for a in earlier)), op)

    def _precedes(self, access: Access, loop: Operation) -> bool:
        """Whether an access is done when a loop begins, and not again within it."""
        if loop in ancestors(access.by):
            return False
        head, same = self.heads[loop], (access.owner, access.by, access.writes)
        under_way = chain(head.open, *head.copies, *head.products)
        return same in {(a.owner, a.by, a.writes) for a in head.done.difference(under_way)}

    def _accesses(self, op: Operation) -> Accesses:
        """What an operation reads and writes."""
        found: list[Access] = []
        if isinstance(op, LocalAllocOp):
            if op.src:
                found.append(Access(op, None, True, op))
        elif op in self.allocation.offsets:
            found += [Access(op, None, writes, op) for writes in (True, False)]
        for value, read, write in _buffers(op):
            for owner, stage in roots_of(value):
                found += [Access(owner, stage, writes, op) for writes, does in ((False, read), (True, write)) if does]
        return frozenset(found)

    def _conflict(self, later: Access, earlier: Access) -> bool:
        """Whether threads must wait between two accesses."""
        if not (later.writes or earlier.writes):
            return False
        if later.owner is not earlier.owner:
            return self._overlap(later.owner, earlier.owner)
        # The same operation writes the same places from the same threads, and reads its scratch so, if no warp waits.
        alone = later.owner is later.by and later.by in self.allocation.offsets and not self._exchanges(later.by)
        if later.by is earlier.by and (alone or (later.writes and earlier.writes)):
            return False
        return later.stage is None or earlier.stage is None or later.stage.may_equal(earlier.stage)

    def _exchanges(self, op: Operation) -> bool:
        """Whether warps write what others read: buffers, and scratch that all wait for."""
        return isinstance(op, LocalAllocOp) or waits_between(op)

    def _overlap(self, first: Operation, second: Operation) -> bool:
        offsets, sizes = self.allocation.offsets, self.allocation.sizes
        return offsets[first] < offsets[second] + sizes[second] and offsets[second] < offsets[first] + sizes[first]


_READS = (LocalLoadOp, WarpGroupDotOp, DotOp, TmaStoreOp, WaitBarrierOp, WaitPhaseOp, ArriveBarrierOp)
_NO_ACCESS = (MemDescIndexOp, LocalAllocOp, YieldOp, ConditionOp)


def _buffers(op: Operation) -> Iterable[tuple[SSAValue, bool, bool]]:
    """The buffers among the operands of an operation, and whether it reads and writes them."""
    if isinstance(op, _NO_ACCESS):
        return
    for operand in op.operands:
        if isinstance(operand.type, MemDescType):
            reads = isinstance(op, _READS)
            writes = isinstance(op, (LocalStoreOp, AsyncCopyOp, InitBarrierOp))
            if isinstance(op, TmaLoadOp):
                writes = operand is op.dst
                reads = not writes
            if not (reads or writes):
                raise InternalError(f"the barrier pass does not know what {op.name} does to its buffer")
            yield operand, reads, writes


__all__ = ["Access", "State", "place_barriers"]
