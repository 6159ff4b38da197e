"""`tt.reduce`: within registers, then across lanes, then across warps.

    registers:  pairs of registers that differ along the axis          x[r] = body(x[r], x[r ^ d])
    lanes:      butterflies                                            x[r] = body(x[r], shuffle_xor(x[r ^ d], m))
    warps:      every warp stores its partial results; barrier; every thread loads those of its results and joins them
    blocks:     of a cluster, if they share the axis: each sends that to the others, and all join what they got

What is combined with what follows from the layout: a difference of positions along which only the axis' coordinate
changes joins two sets of elements, unless their union is there already, because the positions hold copies. The order
of operands depends on coordinates alone, so that all copies of a result are equal to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.along import chosen_of_two
from tilewright.backends.llvm.types import I32, const
from tilewright.backends.nvidia.emit.cluster import Exchange, exchange_bytes
from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.emit.partial import (
    Combiner,
    Partial,
    Shelf,
    common_layout,
    elements,
    moved,
    ragged_bounds,
    shelf_bytes,
)
from tilewright.backends.nvidia.emit.scratch import POSITION, Columns, Place, positions
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.decision import Answer, Yes
from tilewright.base.errors import InternalError
from tilewright.ir.subjects import REDUCTION
from tilewright.ir.types import shape_of
from tilewright.layouts import f2
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.elementwise import AddIOp, AndIOp, MaxSIOp, MaxUIOp, MinSIOp, MinUIOp, OrIOp, XOrIOp
from tilewright.ops.reduce import ReduceOp

# --- the plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """Each position joins its elements with those of the position that differs by this.

    Args:
        register, lane: the difference.
        later: parity that tells whether a position's own elements are the later ones along the axis.
    """

    register: int
    lane: int
    later: Columns


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """How the elements of a tile are joined along one dim.

    Args:
        registers: steps in registers; each leaves those without the highest bit of its difference.
        lanes: butterflies between lanes, afterwards.
        live: registers that are left.
        rest: the coordinate in the result, flat, as a function of the position.
        rest_bits: bits of that.
        number: which of the partial results of its coordinate a position holds, as a function of the position.
        firsts: the first coordinate along the axis of each partial result; one if the lanes finish.
        blocks: of a cluster that share the axis, each a run of coordinates; the rest is about one of them.
    """

    registers: tuple[Step, ...]
    lanes: tuple[Step, ...]
    live: tuple[int, ...]
    rest: Columns
    rest_bits: int
    number: Columns
    firsts: tuple[int, ...]
    blocks: int = 1

    @property
    def exchanged(self) -> bool:
        """Whether partial results pass through shared memory."""
        return len(self.firsts) > 1 or self.blocks > 1


@functools.lru_cache(maxsize=1024)
def plan_reduction(layout: LinearLayout, axis: int) -> ReductionPlan:
    """The plan for a tile laid out as `layout`, along `axis`."""
    names = list(layout.out_sizes)
    others = [name for dim, name in enumerate(names) if dim != axis]
    along = layout.sublayout(POSITION, [names[axis]])
    rest = layout.sublayout(POSITION, others)
    widths = [len(layout.columns_of(dim)) for dim in POSITION]
    joined = f2.Span()
    found: dict[str, list[Step]] = {dim: [] for dim in POSITION}
    dropped = 0
    # Differences that keep the rest; each has as its highest bit one that no other has.
    differences = f2.kernel(rest.columns)
    by_kind = sorted(differences, key=lambda d: (_kind(d, widths), f2.multiply(along.columns, d)))
    for difference in by_kind:
        kind = _kind(difference, widths)
        if kind == 0:
            dropped |= 1 << difference.bit_length() - 1
        if kind == 2:
            continue
        fresh, _ = joined.reduce(f2.multiply(along.columns, difference))
        if fresh:
            found[POSITION[kind]].append(_step(along, joined, difference, fresh, widths))
            joined.add(fresh)
    # Cosets of what the lanes have joined are numbered by the bits of their least member that can be set.
    shared = layout.sublayout(["block"], [names[axis]]).columns if "block" in layout.in_sizes else ()
    others_hold = sum(shared)  # the highest bits of the coordinate, one each (`Team.blocked`)
    width = along.outs[0][1]
    free = [bit for bit in range(width) if not others_hold >> bit & 1 and joined.reduce(1 << bit)[0] == 1 << bit]
    number = {dim: [_gather(joined.reduce(c)[0], free) for c in along.columns_of(dim)] for dim in POSITION}
    firsts = tuple(sum(1 << bit for i, bit in enumerate(free) if n >> i & 1) for n in range(1 << len(free)))
    live = tuple(r for r in range(1 << widths[0]) if not r & dropped)
    return ReductionPlan(
        tuple(found["register"]),
        tuple(found["lane"]),
        live,
        {dim: rest.columns_of(dim) for dim in POSITION},
        sum(width for _, width in rest.outs),
        number,
        firsts,
        1 << others_hold.bit_count(),
    )


def _kind(difference: int, widths: Sequence[int]) -> int:
    """Index in POSITION of what a difference reaches."""
    top = difference.bit_length() - 1
    return 0 if top < widths[0] else 1 if top < widths[0] + widths[1] else 2


def _step(along: LinearLayout, joined: f2.Span, difference: int, fresh: int, widths: Sequence[int]) -> Step:
    """Of two cosets of `joined` that differ by `fresh`, the one with its highest bit in the least member is later."""
    top = fresh.bit_length() - 1
    later = {dim: tuple(joined.reduce(c)[0] >> top & 1 for c in along.columns_of(dim)) for dim in POSITION}
    return Step(difference & (1 << widths[0]) - 1, difference >> widths[0], later)


def _gather(value: int, bits: Sequence[int]) -> int:
    """The given bits of `value`, side by side."""
    return sum((value >> bit & 1) << i for i, bit in enumerate(bits))


# --- emission -----------------------------------------------------------------------------------------


@scratch(ReduceOp)
def reduce_scratch(op: ReduceOp) -> int:
    """Bytes of the partial results of all warps."""
    plan, _ = _plan_of(op)
    if not plan.exchanged:
        return 0
    return shelf_bytes([operand.type for operand in op.operands], len(plan.firsts) << plan.rest_bits)


@emits(ReduceOp)
def emit_reduce(k: Kernel, op: ReduceOp) -> None:
    """A reduction of any number of tiles by any body."""
    plan, axis = _plan_of(op)
    k.decisions.once(REDUCTION, op, lambda: _told(plan))
    combiner = Combiner(k, op.regions[0].block)
    size = shape_of(op.operands[0].type)[axis]
    layout, tiles = common_layout(op), [k.tile(operand) for operand in op.operands]
    parts = elements(k, layout, tiles, ragged_bounds(layout, axis, size))
    live = dict(enumerate(parts))
    for step in plan.registers:
        top = 1 << step.register.bit_length() - 1
        live = {r: _join(combiner, step, r, p, live[r ^ step.register]) for r, p in live.items() if not r & top}
    live = {r: live[r] for r in plan.live}
    whole_warp = _redux(combiner, plan, live)
    if whole_warp:
        live = whole_warp
    else:
        chosen = _chosen(combiner, op, plan, live)
        for step in plan.lanes if chosen is None else ():
            live = _butterfly(combiner, step, live)
        live = chosen or live
    made = _across_warps(combiner, op, plan, live, size) if plan.exchanged else _placed(op, plan, live)
    for i, result in enumerate(op.results):
        k.set_like(result, [partial.values[i] for partial in made])


def _told(plan: ReductionPlan) -> Answer[ReductionPlan]:
    """Who combines elements, in how many steps."""
    parts = [f"{1 << len(plan.registers)} registers of a thread"] if plan.registers else []
    parts += [f"{1 << len(plan.lanes)} lanes by {len(plan.lanes)} shuffles"] if plan.lanes else []
    parts += [f"{len(plan.firsts)} parts through shared memory"] if len(plan.firsts) > 1 else []
    parts += [f"{plan.blocks} blocks"] if plan.blocks > 1 else []
    return Yes(plan, ", then ".join(parts) or "one element for each result")


def _plan_of(op: ReduceOp) -> tuple[ReductionPlan, int]:
    axis = int(op.attr_values()["axis"])
    return plan_reduction(common_layout(op), axis), axis


def _join(combiner: Combiner, step: Step, register: int, own: Partial, other: Partial) -> Partial:
    varying = {dim: step.later[dim] for dim in ("lane", "warp")}
    if combiner.commutes:
        # fma(a, b, round(c * d)) is not fma(c, d, round(a * b)): where threads take turns at being the earlier one,
        # a product that one of them has not rounded yet would leave them with different copies of the sum.
        return combiner.join(own, other, contracts=not any(map(any, varying.values())))
    k, shared = combiner.k, f2.multiply(step.later["register"], register)
    flag = k.f.icmp("ne", k.linear(varying), shared)
    return combiner.join(combiner.choose(flag, other, own), combiner.choose(flag, own, other))


def _butterfly(combiner: Combiner, step: Step, live: dict[int, Partial]) -> dict[int, Partial]:
    arrived = moved(combiner.k, list(live.values()), lambda v: combiner.k.f.shuffle_xor(v, step.lane))
    shuffled = dict(zip(live, arrived, strict=True))
    return {r: _join(combiner, step, r, part, shuffled[r ^ step.register]) for r, part in live.items()}


def _chosen(
    combiner: Combiner, op: ReduceOp, plan: ReductionPlan, live: dict[int, Partial]
) -> dict[int, Partial] | None:
    """A sum over two lanes, one of whose elements is multiplied by one and the other by zero: that element.

    Networks that sort write the two ends of a pair so. Nothing is multiplied or added, and both sums of one tile share
    the elements of the other lanes.
    """
    found = chosen_of_two(op)
    if found is None or len(plan.lanes) != 1 or plan.registers or plan.exchanged:
        return None
    k, (step,), (tile, number) = combiner.k, plan.lanes, found
    if step.register or any(part.present.const != 1 for part in live.values()):
        return None
    own = k.tile(tile)
    key = (tile, step.lane, k.f.block)
    if key not in k.exchanged:
        words = k.f.packed([own[register] for register in live])
        k.exchanged[key] = k.f.unpacked([k.f.shuffle_xor(word, step.lane) for word in words])
    later = k.f.icmp("ne", k.linear({dim: step.later[dim] for dim in ("lane", "warp")}), 0)
    sides = zip(live, k.exchanged[key], strict=True)
    pairs = {r: (own[r], other) if number else (other, own[r]) for r, other in sides}
    return {r: replace(live[r], values=(k.f.select(later, *pairs[r]),)) for r in live}


_REDUX: dict[type, str] = {
    AddIOp: "add", MaxSIOp: "max", MinSIOp: "min", MaxUIOp: "umax", MinUIOp: "umin",
    AndIOp: "and", OrIOp: "or", XOrIOp: "xor",
}  # fmt: skip


def _redux(combiner: Combiner, plan: ReductionPlan, live: dict[int, Partial]) -> dict[int, Partial] | None:
    """One instruction for all lanes of a warp (PTX ISA, redux.sync), where it applies."""
    k, kind = combiner.k, _REDUX.get(type(combiner.operation))
    whole = len(plan.lanes) == 5 and not any(step.register for step in plan.lanes)
    if kind is None or not whole or not k.arch.has_redux:
        return None
    if any(part.values[0].type is not I32 or part.present.const != 1 for part in live.values()):
        return None
    name = f"llvm.nvvm.redux.sync.{kind}"
    made = moved(k, list(live.values()), lambda v: k.f.call(name, I32, (v, const(I32, -1))))
    return dict(zip(live, made, strict=True))


def _across_warps(
    combiner: Combiner, op: Operation, plan: ReductionPlan, live: dict[int, Partial], size: int
) -> list[Partial]:
    """Partial results through scratch, one row for each number; what lies outside of the tile is left there."""
    k, count = combiner.k, len(plan.firsts) << plan.rest_bits
    shelf = Shelf(k, k.scratch(op), [operand.type for operand in op.operands], count)
    columns = {
        dim: [number << plan.rest_bits | rest for number, rest in zip(plan.number[dim], plan.rest[dim])]
        for dim in POSITION
    }
    for place, part in zip(positions(k, columns, list(live)), live.values(), strict=True):
        shelf.put(place, part)
    k.f.barrier()
    rows = [number << plan.rest_bits for number, first in enumerate(plan.firsts) if first < size]

    def joined(place: Place) -> Partial:
        return _tree(combiner, [shelf.get(place.plus(row)) for row in rows])

    exchange = Exchange(k, shelf.types, 1 << plan.rest_bits) if plan.blocks > 1 else None
    if exchange is not None:
        exchange.send(joined)
    made: dict[Place, Partial] = {}
    places = _result_places(k, op.results[0])
    for place in places:
        if place not in made:
            made[place] = joined(place) if exchange is None else _tree(combiner, exchange.received(place))
    if exchange is not None:
        exchange.close()
    return [made[place] for place in places]


def exchange_bytes_of(op: Operation, blocks: int) -> int:
    """Bytes of what the blocks of a cluster send each other in an operation."""
    if blocks == 1 or not isinstance(op, ReduceOp):
        return 0
    plan, _ = _plan_of(op)
    return exchange_bytes([operand.type for operand in op.operands], 1 << plan.rest_bits, blocks) * (plan.blocks > 1)


def _result_places(k: Kernel, result: SSAValue) -> list[Place]:
    """The flat coordinate of each register of the result."""
    if not shape_of(result.type):
        return [Place(const(I32, 0))]
    layout = layout_of(result)
    columns = {dim: layout.columns_of(dim) for dim in POSITION}
    return positions(k, columns, range(layout.in_sizes["register"]))


def _tree(combiner: Combiner, parts: list[Partial]) -> Partial:
    """All of them joined, neighbours first."""
    while len(parts) > 1:
        pairs = [combiner.join(a, b) for a, b in zip(parts[::2], parts[1::2])]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _placed(op: Operation, plan: ReductionPlan, live: dict[int, Partial]) -> list[Partial]:
    """The registers of the result, each of them in the thread that needs it."""
    by_rest = {f2.multiply(plan.rest["register"], register): part for register, part in live.items()}
    if not shape_of(op.results[0].type):
        return [by_rest[0]]
    layout = layout_of(op.results[0])
    if any(layout.columns_of(dim) != tuple(plan.rest[dim]) for dim in ("lane", "warp")):
        raise InternalError(f"the result of a reduction of {op.operands[0].type} is not laid out as its slice")
    own = layout.columns_of("register")
    return [by_rest[f2.multiply(own, register)] for register in range(layout.in_sizes["register"])]


__all__ = ["ReductionPlan", "Step", "emit_reduce", "plan_reduction", "reduce_scratch"]
