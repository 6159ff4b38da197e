"""Channels: rings of buffers between warps that copy and warps that multiply, and which loads share one.

Each channel has two barriers a stage: full, at which copies arrive, and empty, at which every warp arrives that has
read the stage. Loads whose products stand at the same place of an iteration share a channel; those of later products
have one of their own, so that the first are released before the last are waited for:

    s = k q             rank 0    receive K, release K
    p = exp(s - max)
    o = p v + o         rank 1                          receive V, release V

The rank of a product is the number of products on the longest way through the iteration to it.

What lies across for its products (`turning`) comes by two rings: the copy engine fills one, from which four warps that
do nothing else put it, turned, into the one that products read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Block, Operation, SSAValue

from tilewright.backends.nvidia.plan.building import Builder, make_barrier, ring_type
from tilewright.backends.nvidia.plan.prefetch import Prefetch
from tilewright.backends.nvidia.plan.turning import turning_layout
from tilewright.backends.nvidia.tgir.ops import (
    ArriveBarrierOp,
    FenceAsyncSharedOp,
    LocalAllocOp,
    LocalLoadOp,
    LocalStoreOp,
    MemDescIndexOp,
    TmaLoadOp,
    WaitPhaseOp,
    WarpGroupDotOp,
)
from tilewright.backends.nvidia.tgir.types import MemDescType, layout_of, memdesc_shape, with_layout
from tilewright.ir.types import i1
from tilewright.ir.values import uses_behind
from tilewright.ir.walk import among, every, read_by
from tilewright.ops.function import FuncOp

TURNING = 4  # warps

Position = tuple[SSAValue, SSAValue]
"""Stage and parity (i32), the same for all channels of a loop: each takes one step an iteration."""


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """Loads that are copied and released together.

    Args:
        prefetches: the loads.
        first, last: ranks of the first and the last product that needs them.
    """

    prefetches: tuple[Prefetch, ...]
    first: int
    last: int

    @property
    def is_turned(self) -> bool:
        """Whether some of it is turned on its way."""
        return any(prefetch.copied is not None for prefetch in self.prefetches)


def channels_of(prefetches: Sequence[Prefetch], body: Block) -> list[ChannelPlan]:
    """The channels for what a loop copies, in the order in which products need them.

    Args:
        prefetches: loads of the loop.
        body: of the loop, whose products are all there.
    """
    ranks = product_ranks(body)
    found: dict[tuple[int, int], list[Prefetch]] = {}
    for prefetch in prefetches:
        reached = [ranks[dot] for dot in _products_of(prefetch.load, body)]
        found.setdefault((min(reached), max(reached)), []).append(prefetch)
    return [ChannelPlan(tuple(found[place]), *place) for place in sorted(found)]


def like(one: ChannelPlan, other: ChannelPlan) -> ChannelPlan | None:
    """A channel with its loads in the order in which another has buffers for them; None if it has not."""
    left, found = list(other.prefetches), list[Prefetch]()
    for wanted in one.prefetches:
        fitting = next((p for p in left if (p.ring, p.copied) == (wanted.ring, wanted.copied)), None)
        if fitting is not None:
            left.remove(fitting)
            found.append(fitting)
    same = not left and len(found) == len(one.prefetches) and (one.first, one.last) == (other.first, other.last)
    return ChannelPlan(tuple(found), other.first, other.last) if same else None


def product_ranks(body: Block) -> dict[Operation, int]:
    """The rank of each product in the body of a loop; one that goes on with the sum of another has the rank of that."""
    ranks: dict[Operation, int] = {}
    behind: dict[SSAValue, int] = {}
    for op in body.ops:
        needed = list(read_by(op))
        if isinstance(op, WarpGroupDotOp) and op.c.owner in ranks:
            needed = [op.a, op.b]
            ranks[op] = max(ranks[op.c.owner], *(behind.get(value, 0) for value in needed))  # type: ignore[index]
        products = every(op, WarpGroupDotOp)
        rank = max((behind.get(value, 0) for value in needed), default=0)
        for product in products:
            rank = ranks.setdefault(product, rank)
        for result in op.results:
            behind[result] = rank + bool(products)
    return ranks


def _products_of(load: Operation, body: Block) -> list[Operation]:
    """The first products on all ways from a load through an iteration."""
    uses = uses_behind(load.results, lambda user: not isinstance(user, WarpGroupDotOp) and user is not body.last_op)
    return among((use.operation for use in uses), WarpGroupDotOp)


def following(b: Builder, at: Position, stages: int) -> Position:
    """The position after another."""
    stage, parity = at
    more = b.add(stage, b.number(1))
    wraps = b.compare("eq", more, b.number(stages))
    turned = b.sub(b.number(1), parity)
    return b.choose(wraps, b.number(0), more), b.choose(wraps, turned, parity)


def before(b: Builder, stage: SSAValue, stages: int) -> SSAValue:
    """The stage before another."""
    less = b.sub(stage, b.number(1))
    return b.choose(b.compare("eq", stage, b.number(0)), b.number(stages - 1), less)


@dataclass(frozen=True, slots=True)
class Turned:
    """What a channel brings by another ring, from which it is turned.

    Args:
        rings: that ring for each load, None for those that are not turned.
        full, empty: its barriers.
    """

    rings: tuple[SSAValue | None, ...]
    full: SSAValue
    empty: SSAValue

    @staticmethod
    def make(function: FuncOp, plan: ChannelPlan, stages: int, b: Builder) -> Turned | None:
        """As `Channel.make`; None where nothing is turned."""
        copied = [prefetch.copied for prefetch in plan.prefetches]
        if not plan.is_turned:
            return None
        full = make_barrier(function, stages, sum(type_ is not None for type_ in copied))
        empty = make_barrier(function, stages, TURNING)
        rings = (None if type_ is None else b.make(LocalAllocOp, ring_type(type_, stages)) for type_ in copied)
        return Turned(tuple(rings), full, empty)


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel that a function has.

    Args:
        plan: what passes through it.
        rings: a ring for each load, which products read.
        full, empty: its barriers.
        turned: where what is turned comes from.
    """

    plan: ChannelPlan
    rings: tuple[SSAValue, ...]
    full: SSAValue
    empty: SSAValue
    turned: Turned | None

    @staticmethod
    def make(function: FuncOp, plan: ChannelPlan, stages: int, warps: int, b: Builder) -> Channel:
        """Barriers at the start of a function and rings at `b`, for so many warps that read."""
        copies = sum(prefetch.copied is None for prefetch in plan.prefetches)
        full = make_barrier(function, stages, copies + (TURNING if plan.is_turned else 0))
        empty = make_barrier(function, stages, warps)
        rings = tuple(b.make(LocalAllocOp, ring_type(p.ring, stages)) for p in plan.prefetches)
        return Channel(plan, rings, full, empty, Turned.make(function, plan, stages, b))

    def of(self, plan: ChannelPlan) -> Channel:
        """The same rings and barriers, for the loads of another loop."""
        return replace(self, plan=plan)

    def fill(self, b: Builder, known: Mapping[SSAValue, SSAValue], at: Position) -> None:
        """Copy what one iteration reads as soon as the stage is empty."""
        stage, parity = at
        other, turned = b.sub(b.number(1), parity), self.turned
        if turned is not None:
            b.effect(WaitPhaseOp, [turned.empty, stage, other])
        if any(prefetch.copied is None for prefetch in self.plan.prefetches):
            b.effect(WaitPhaseOp, [self.empty, stage, other])
        for number, (prefetch, ring) in enumerate(zip(self.plan.prefetches, self.rings, strict=True)):
            full, type_, source = self.full, prefetch.ring, None
            if turned is not None and prefetch.copied is not None:
                full, type_, source = turned.full, prefetch.copied, turned.rings[number]
            buffer = b.make(MemDescIndexOp, type_, ring if source is None else source, stage)
            desc, *indices = (known.get(value, value) for value in prefetch.address)
            operands = [desc, buffer, full, stage, b.number(1, i1), *indices]
            copy = b.effect(TmaLoadOp, operands, cachePolicy=prefetch.policy)
            copy.location = prefetch.load.location

    def turn(self, b: Builder, at: Position) -> None:
        """Turn what has been copied for one iteration as soon as there is room for it."""
        stage, parity = at
        turned = self.turned
        if turned is None:
            return
        b.effect(WaitPhaseOp, [self.empty, stage, b.sub(b.number(1), parity)])
        all_ = zip(self.plan.prefetches, self.rings, turned.rings, strict=True)
        pairs = [(prefetch, ring, source) for prefetch, ring, source in all_ if source is not None]
        filled = [b.make(MemDescIndexOp, _copied(p), source, stage) for p, _, source in pairs]
        b.effect(WaitPhaseOp, [turned.full, stage, parity, *filled])
        for (prefetch, ring, _), copied in zip(pairs, filled, strict=True):
            held = layout_of(prefetch.load.result)
            layout = turning_layout(memdesc_shape(prefetch.ring), held.in_sizes["warp"], TURNING)
            tile = b.make(LocalLoadOp, with_layout(prefetch.load.result.type, layout), copied)
            b.effect(LocalStoreOp, [tile, b.make(MemDescIndexOp, prefetch.ring, ring, stage)])
        b.effect(FenceAsyncSharedOp)  # wgmma reads what was stored, and the engine writes where was read
        for barrier in (self.full, turned.empty):
            b.effect(ArriveBarrierOp, [barrier, stage, b.number(1, i1)])

    def receive(self, b: Builder, at: Position) -> None:
        """Wait until a stage is full."""
        pairs = zip(self.rings, self.plan.prefetches, strict=True)
        filled = [b.make(MemDescIndexOp, p.ring, ring, at[0]) for ring, p in pairs]
        b.effect(WaitPhaseOp, [self.full, *at, *filled])

    def release(self, b: Builder, stage: SSAValue, holds: SSAValue | None = None) -> None:
        """Each warp has read a stage, if a condition `holds`."""
        b.effect(ArriveBarrierOp, [self.empty, stage, b.number(1, i1) if holds is None else holds])


def _copied(prefetch: Prefetch) -> MemDescType:
    assert prefetch.copied is not None
    return prefetch.copied


__all__ = [
    "TURNING", "Channel", "ChannelPlan", "Position", "before", "channels_of", "following", "like", "product_ranks",
]  # fmt: skip
