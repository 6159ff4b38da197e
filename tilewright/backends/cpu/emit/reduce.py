"""`tt.reduce` inside a group: accumulators as wide as a chunk, folded over the lanes once at the end.

    acc = identity                       per lane; or the first chunk, where the body has no known identity
    loop: acc = body(acc, chunk)
    while lanes of the reduced dim remain: acc = body(low half, high half)

Sums and the like end in one horizontal instruction. Elements are combined in an order of our choosing, as on a GPU:
the body must be associative and commutative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.index import LANE, Coord, Field, Index
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.plan.lanes import Chunking
from tilewright.backends.cpu.plan.steps import Sink
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.elementwise import accumulate_max
from tilewright.backends.llvm.types import I1, V, const, zero
from tilewright.ir.types import element_type, ir_name
from tilewright.ir.walk import among
from tilewright.ops.constant import ConstantOp
from tilewright.ops.elementwise import (
    AddFOp,
    AddIOp,
    AndIOp,
    CmpIOp,
    MaximumFOp,
    MaxNumFOp,
    MaxSIOp,
    MaxUIOp,
    MinimumFOp,
    MinNumFOp,
    MinSIOp,
    MinUIOp,
    MulFOp,
    MulIOp,
    OrIOp,
    XOrIOp,
)
from tilewright.ops.reduce import ReduceReturnOp, single_operation
from tilewright.ops.scan import ScanReturnOp
from tilewright.ops.spec import spec_of


@dataclass(frozen=True, slots=True)
class _Combiner:
    """A body of one operation: what it starts from and the horizontal instruction that ends it."""

    horizontal: str
    identity: float


_LINE = 64
"""Bytes of a line of scratch."""

# The horizontal instruction of what folds lanes.
_HORIZONTAL: dict[type, str] = {
    AddFOp: "fadd", MulFOp: "fmul", MaxNumFOp: "fmax", MinNumFOp: "fmin", MaximumFOp: "fmaximum",
    MinimumFOp: "fminimum",
    AddIOp: "add", MulIOp: "mul", AndIOp: "and", OrIOp: "or", XOrIOp: "xor",
    MaxSIOp: "smax", MinSIOp: "smin", MaxUIOp: "umax", MinUIOp: "umin",
}  # fmt: skip


class Reduction:
    """One reduction of a group.

    Args:
        ev: evaluator.
        sink: the reduction.
        chunking: of the group.
    """

    def __init__(self, ev: Evaluator, sink: Sink, chunking: Chunking) -> None:
        assert sink.op is not None
        self.ev, self.sink, self.chunking = ev, sink, chunking
        self.op = sink.op
        self.body = sink.op.regions[0].block
        self.names = [ir_name(element_type(value.type)) for value in sink.op.operands]
        self.known = self._recognise()
        # Extremes that prefer numbers to NaN keep the other one too: it crosses over where a lane has seen a number.
        self.skips_nan = self.known is not None and self.known.horizontal in ("fmax", "fmin")

    def _recognise(self) -> _Combiner | None:
        op, t = single_operation(self.body), storage(self.names[0])
        monoid = None if op is None else spec_of(op).monoid
        horizontal = _HORIZONTAL.get(type(op))
        if horizontal is None or monoid is None or not (t.is_int or t.elem in ("float", "double")):
            return None
        return _Combiner(horizontal, monoid.identity(max(t.bits, 1)))

    @property
    def _smallest(self) -> bool:
        return self.known is not None and self.known.horizontal == "fmin"

    # -- along the axis ------------------------------------------------------------------------------

    def start(self) -> list[V]:
        """Accumulators before the first chunk."""
        types = [storage(name, self.chunking.lanes) for name in self.names]
        if self.known is None:
            return [zero(t) for t in types]
        best = const(types[0], self.known.identity)
        return [best, const(types[0], -self.known.identity)] if self.skips_nan else [best]

    def step(self, carried: list[V], values: list[V], position: V | None) -> list[V]:
        """Take in a chunk; `position` is the axis' loop variable, None where there is no loop."""
        f = self.ev.f
        values = [f.splat(value, self.chunking.lanes) for value in values]
        if self.known is not None:
            if self.skips_nan:  # also without a loop: it takes NaN out of the lanes
                return self.combine(carried, values * 2)
            if position is None:
                return values
            return self.combine(carried, values)
        first = self.chunking.first.get(self.sink.axis, 0)  # of this piece of the axis
        if position is None or position.const == first:
            return values
        both = lambda: apply_body(self.ev, self.body, [*carried, *values], self._ordered())  # noqa: E731
        return f.if_else(f.icmp("eq", position, first), lambda: values, both)

    def _ordered(self) -> dict[Operation, bool]:
        """What comparisons of the body say of an earlier chunk and a later one, lane by lane: places grow."""
        count, known = len(self.op.operands), dict[Operation, bool]()
        for op in among(self.body.ops, CmpIOp):
            left, right = (self.body.args.index(v) if v in self.body.args else -1 for v in op.operands)
            if min(left, right) >= 0 and abs(left - right) == count and self._grows(min(left, right)):
                predicate = str(op.attr_values()["predicate"])
                known[op] = predicate == "ne" or predicate[1:2] == ("l" if left < right else "g")
        return known

    def _grows(self, number: int) -> bool:
        """Whether an operand is the place along the axis, or a multiple of it."""
        form = self.ev.analysis.integer(self.op.operands[number], self.chunking.index)
        along = form.coords.get(self.chunking.index[self.sink.axis])
        if along is None or along.constant is None or len(form.coords) > 1 or form.residual:
            return False
        first, by = form.constant.constant, along.constant
        return first is not None and by > 0 <= first and first + by * self.sink.shape[self.sink.axis] < 1 << 31

    def combine(self, left: list[V], right: list[V]) -> list[V]:
        """The body applied lane by lane."""
        if self.skips_nan:
            ways = (self._smallest, not self._smallest)
            pairs = zip(left, right, ways, strict=True)
            return [accumulate_max(self.ev.f, one, other, smallest=way) for one, other, way in pairs]
        return apply_body(self.ev, self.body, [*left, *right])

    @property
    def multiplies(self) -> bool:
        """Whether to take in a chunk many times is to take in a multiple of it once."""
        return self.known is not None and self.known.horizontal in ("fadd", "add")

    def times(self, values: list[V], count: V) -> list[V]:
        """A chunk so many times; nothing for none, whatever it holds."""
        f, (value,) = self.ev.f, values
        assert self.known is not None
        value = f.splat(value, self.chunking.lanes)
        number = f.splat(f.cast("trunc" if value.type.is_int else "sitofp", count, value.type.scalar), value.type.lanes)
        many = f.mul(value, number) if value.type.is_int else f.fmul(value, number)
        return [f.select(f.icmp("eq", count, 0), const(value.type, self.known.identity), many)]

    # -- row by row ----------------------------------------------------------------------------------

    def empty(self) -> None:
        """Begin with no row: fill the results with what changes nothing."""
        (target,) = self.sink.targets
        assert target is not None and self.known is not None
        f, t = self.ev.f, storage(target.elem)
        lanes = _LINE // t.bytes
        start, nothing = f.gep(self.ev.arena, target.offset), f.splat(const(t, self.known.identity), lanes)
        with f.loop(0, -(-target.size // _LINE) * lanes, lanes, unroll=False) as loop:  # buffers have whole lines
            f.store(nothing, f.gep(start, loop.index, t))

    def add_row(self, values: list[V], index: Index) -> None:
        """Take a chunk of one row into the results, whose place is the same for all rows."""
        (target,), (name,), rest = self.sink.targets, self.names, index[1:]
        assert target is not None
        so_far = memory.read_scratch(self.ev, target, rest, name)
        lanes = self.chunking.lanes
        (added,) = self.combine([self.ev.f.splat(so_far, lanes)], [self.ev.f.splat(values[0], lanes)])
        memory.write_scratch(self.ev, target, rest, added, name)

    # -- over the lanes ------------------------------------------------------------------------------

    def finish(self, values: list[V], index: Index) -> None:
        """Fold the lanes of the axis and put the results where they belong."""
        low, count = self.chunking.lane_bits.get(self.sink.axis, (0, 0))
        if count:
            values = self._fold(values, low, count)
        if self.skips_nan:  # where nothing but NaN was seen, the result is NaN
            seen = self.ev.f.fcmp("oge" if self._smallest else "ole", values[1], values[0])
            values = [self.ev.f.select(seen, values[0], const(values[0].type, math.nan))]
        self.give(values, index)

    def give(self, values: list[V], index: Index) -> None:
        """Put results, without lanes of the axis, where they belong."""
        low, count = self.chunking.lane_bits.get(self.sink.axis, (0, 0))
        rest = tuple(_without_lanes(coord, low, count) for dim, coord in enumerate(index) if dim != self.sink.axis)
        lanes = self.ev.nest.lanes
        self.ev.nest.lanes = values[0].type.lanes
        if self.sink.axis in self.chunking.first:
            values = apply_body(self.ev, self.body, [*self._so_far(rest), *values])
        for result, target, value, name in zip(self.op.results, self.sink.targets, values, self.names, strict=True):
            if target is not None:
                memory.write_scratch(self.ev, target, rest, value, name)
            elif not rest:
                self.ev.scalars[result] = value
        self.ev.nest.lanes = lanes

    def _so_far(self, rest: Index) -> list[V]:
        """The results over the pieces of the axis before this one."""
        return [
            self.ev.scalars[result] if target is None else memory.read_scratch(self.ev, target, rest, name)
            for result, target, name in zip(self.op.results, self.sink.targets, self.names, strict=True)
        ]

    def _fold(self, values: list[V], low: int, count: int) -> list[V]:
        f = self.ev.f
        if self.known is not None and 1 << count == values[0].type.lanes:
            kinds = (self.known.horizontal, "fmax" if self._smallest else "fmin")
            return [f.reduce(kind, value) for kind, value in zip(kinds, values, strict=False)]
        for bit in reversed(range(low, low + count)):
            lanes = range(values[0].type.lanes)
            clear = [lane for lane in lanes if not lane >> bit & 1]
            halves = [[f.shuffle(v, None, [lane | part for lane in clear]) for v in values] for part in (0, 1 << bit)]
            if len(clear) == 1:
                halves = [[f.extract(v, 0) for v in half] for half in halves]
            values = self.combine(*halves)
        return values


def _without_lanes(coord: Coord, low: int, count: int) -> Coord:
    """The coordinate once the lanes `low .. low+count` have been folded away."""
    return tuple(
        [Field(f.src, f.lo - count, f.width, f.pos) if f.src == LANE and f.lo >= low + count else f for f in coord]
    )


def apply_body(ev: Evaluator, body: Block, args: list[V], known: Mapping[Operation, bool] | None = None) -> list[V]:
    """The operations of a combine body on scalars or vectors of one lane count; some comparisons may be known."""
    lanes = max(arg.type.lanes for arg in args)
    values: dict[SSAValue, V] = dict(zip(body.args, [ev.f.splat(arg, lanes) for arg in args], strict=True))
    for op in body.ops:
        if isinstance(op, (ReduceReturnOp, ScanReturnOp)):
            return [ev.f.splat(values[o] if o in values else ev.scalar(o), lanes) for o in op.operands]
        if isinstance(op, ConstantOp):
            values[op.results[0]] = ev.scalar(op.results[0])
            continue
        if known and op in known:
            values[op.results[0]] = ev.f.splat(const(I1, int(known[op])), lanes)
            continue
        operands = [values[o] if o in values else ev.scalar(o) for o in op.operands]
        values[op.results[0]] = ev.apply(op, operands)
    return []
