"""The role that multiplies: its loops receive what channels bring, and release it when products have read it.

Products that go on over iterations are waited for while those of the next iteration run, and what they read is released
behind that. Where a loop has products of two ranks it is rotated (`rotation`); else every channel is received before
its first reader and released behind its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue

from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.channels import Channel, Position, before, following
from tilewright.backends.nvidia.plan.crew import GROUP, Crew
from tilewright.backends.nvidia.plan.pipeliner import SPLIT, Pipeliner
from tilewright.backends.nvidia.plan.rotated import Rotated, rotate
from tilewright.backends.nvidia.plan.rotation import plan_rotation
from tilewright.backends.nvidia.plan.subjects import ASYNC_DOT, ROTATED
from tilewright.backends.nvidia.tgir.ops import (
    FenceAsyncSharedOp,
    LocalAllocOp,
    MemDescIndexOp,
    StaggerOp,
    WaitPhaseOp,
    WarpGroupDotOp,
)
from tilewright.base.decision import Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.walk import among, holder_in
from tilewright.ops.control import ForOp
from tilewright.passes.rewriting import loop_carrying, replace


class Consumer(Pipeliner):
    """Rewrites a loop of the role that multiplies.

    Args:
        loop: with products.
        channels: what it receives.
        stages: of the channels.
        computed: buffers of operands that an iteration computes, for which there is room for rings as well.
        crew: who multiplies.
        decisions: of the compilation.
    """

    at: Position  # in the body

    def __init__(
        self,
        loop: ForOp,
        channels: Sequence[Channel],
        stages: int,
        computed: Sequence[LocalAllocOp],
        crew: Crew,
        decisions: Decisions,
    ) -> None:
        prefetches = [prefetch for channel in channels for prefetch in channel.plan.prefetches]
        super().__init__(loop, prefetches, stages, decisions, None, computed)
        self.channels, self.crew = channels, crew

    def carry(self, at: Position) -> Position:
        """Have the loop carry a position on from `at`; gives that behind it."""
        self.loop, self.at = _carrying(self.loop, at)
        end = self.body.last_op
        assert end is not None
        _hand_on(self.loop, following(Builder(end), self.at, self.stages))
        return self.loop.results[-2], self.loop.results[-1]

    def receive(self, *, alone: bool) -> Rotated | None:
        """Have the body read what channels bring; gives how the loop is rotated, if it is, which is not done yet.

        Args:
            alone: whether it is the only loop with products.
        """
        answers = self._answers()
        stage = self.at[0]
        self._read(list(chain.from_iterable(channel.rings for channel in self.channels)), stage)
        asynchronous = [dot for dot, answer in answers if isinstance(answer, Yes)]
        rotation = None
        if not asynchronous:
            crew = self.crew
            answer = plan_rotation(self.loop, self.channels, crew.held, crew.warps // GROUP, alone=alone)
            rotation = self.decisions.note(ROTATED, self.loop, answer)
        for dot, said in answers:
            self.decisions.note(ASYNC_DOT, dot, said if rotation is None else Yes(dot, "it runs beside another one"))
        if rotation is not None:
            if rotation.apart:
                Builder(self.loop).effect(StaggerOp, cycles=rotation.apart)
            return Rotated(self.loop, rotation, self.channels, self.at)
        self._receive(self.at)
        if asynchronous:
            self._store_in_rings(stage)
            self._release_before(self._start_dots(asynchronous), stage)
            self._finish(asynchronous)
            self._release_last()
        else:
            self._release_read(stage)
        return None

    # -- where channels are received and released --------------------------------------------------------

    def _readers(self, channel: Channel) -> list[Operation]:
        """The operations that read what a channel brings, in the order of the body."""
        ops = list(self.body.ops)
        stages = [op for op in among(ops, MemDescIndexOp) if op.src in channel.rings]
        readers = [use.operation for op in stages for use in op.result.uses]
        return sorted(
            (op for op in readers if not isinstance(op, WaitPhaseOp)),
            key=lambda op: ops.index(holder_in(self.body, op)),
        )

    def _receive(self, at: Position) -> None:
        """Each channel before its first reader."""
        for channel in self.channels:
            channel.receive(Builder(holder_in(self.body, self._readers(channel)[0])), at)

    def _release_before(self, wait: Operation | None, stage: SSAValue) -> None:
        """Behind the wait for the products of the iteration before, if there was one."""
        assert wait is not None and wait.next_op is not None
        b = Builder(wait.next_op)
        later = b.compare("ne", self.body.args[0], self.loop.lb)
        for channel in self.channels:
            channel.release(b, before(b, stage, self.stages), later)

    def _release_last(self) -> None:
        """Behind the wait for the products of the last iteration, if there was one."""
        wait = self.loop.next_op
        assert wait is not None and wait.next_op is not None
        b = Builder(wait.next_op)
        runs = b.compare("ult" if self.loop.unsignedCmp is not None else "slt", self.loop.lb, self.loop.ub)
        for channel in self.channels:
            channel.release(b, before(b, self.loop.results[-2], self.stages), runs)

    def _release_read(self, stage: SSAValue) -> None:
        """Each channel behind its last reader; products end in their iteration."""
        for channel in self.channels:
            readers = self._readers(channel)
            last = holder_in(self.body, readers[-1])
            assert last.next_op is not None
            b = Builder(last.next_op)
            if not all(isinstance(reader, WarpGroupDotOp) for reader in readers):
                b.effect(FenceAsyncSharedOp)  # the engine writes there next
            channel.release(b, stage)


def multiply(around: Sequence[ForOp], consumers: Sequence[Consumer]) -> None:
    """Rewrite the loops of the role that multiplies.

    Args:
        around: the loops around those with products, outermost first.
        consumers: of the loops with products, which follow each other.
    """
    outside = Builder([*around, consumers[0].loop][0])
    at: Position = (outside.number(0), outside.number(0))
    made: list[ForOp] = []
    for loop in around:
        loop, at = _carrying(loop, at)
        made.append(loop)
    for consumer in consumers:
        at = consumer.carry(at)
    for outer in reversed(made):
        _hand_on(outer, at)
        at = (outer.results[-2], outer.results[-1])
    found = [consumer.receive(alone=len(consumers) == 1) for consumer in consumers]
    rotate([rotated for rotated in found if rotated is not None])


def _carrying(loop: ForOp, at: Position) -> tuple[ForOp, Position]:
    """A loop that carries a position as well, which it does not change yet; gives it, and the position within."""
    body, end = loop.body.block, loop.body.block.last_op
    assert end is not None
    arguments = [body.insert_arg(value.type, len(body.args)) for value in at]
    end.operands = [*end.operands, *arguments]
    made = loop_carrying(loop, [*loop.iter_args, *at])
    made.attributes[SPLIT] = UnitAttr()
    replace(loop, made.results[: len(loop.results)])
    return made, (arguments[0], arguments[1])


def _hand_on(loop: ForOp, at: Position) -> None:
    """Have each iteration of a loop hand on a position."""
    end = loop.body.block.last_op
    assert end is not None
    end.operands = [*end.operands[:-2], *at]


__all__ = ["Consumer", "multiply"]
