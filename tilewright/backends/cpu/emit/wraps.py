"""Lanes that lie side by side unless a quotient changes among them: crops, paddings, flips, windows of flat elements.

    i // w * stride + i % w              ->  one lane after the other, until i % w is 0 again
    first % w + 15 < w  ?  one vector  :  first % w + 15 < 2 * w  ?  one on each side of the change  :  a gather

What is asked, and where the first lane is, are numbers: a chunk that does not wrap computes no place of any other lane.
Where it is read in parts, each of them takes quotient and rest from the first lane of the chunk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.analysis.affine import Form
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import LANE, Coord, Field, Index, constant, normal, shifted
from tilewright.backends.cpu.emit.address import Address, Offsets
from tilewright.backends.cpu.emit.scalarize import gathers
from tilewright.backends.cpu.emit.values import Values
from tilewright.backends.cpu.plan.recompute import table_name
from tilewright.backends.llvm.elementwise import emit
from tilewright.backends.llvm.integers import DIVISIONS, REMAINDERS, SIGNED_DIVISIONS
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, I32, I64, T, V, const, const_vector
from tilewright.ir.values import defining_op

_UNKNOWN: Offsets = (1,)


def places_between_wraps(ev: Values, form: Form) -> Offsets | None:
    """What each lane adds to a form where no quotient changes among them; None if that is not known."""
    total = (0,) * ev.nest.lanes
    parts = [(ev.lanes_of(coord), stride) for coord, stride in form.coords.items()]
    parts += [(_places_of(ev, value, at), scale) for value, at, scale in form.residual]
    for lanes, scale in parts:
        if lanes is not None and any(lanes):
            if scale.constant is None or lanes is _UNKNOWN:
                return None
            total = tuple(sum_ + lane * scale.constant for sum_, lane in zip(total, lanes, strict=True))
    return total


def _places_of(ev: Values, value: SSAValue, at: Index) -> Offsets | None:
    """As `places_between_wraps` for a value that has no form; None for nothing."""
    if all(ev.lanes_of(coord) is None for coord in at):
        return None
    name = _division(value)
    if name not in DIVISIONS or ev.analysis.is_opaque(value):
        return _UNKNOWN
    dividend, divisor = ev.analysis.operands(value, at)
    places = places_between_wraps(ev, dividend) if divisor.uniform else None
    if places is None:
        return _UNKNOWN
    return places if name in REMAINDERS else None


def _division(value: SSAValue) -> str | None:
    """Entry of the elementwise table that computes a value, if there is one."""
    op = defining_op(value)
    return None if op is None else table_name(op)


def read_between_wraps(
    ev: Values, t: T, address: Address, mask: V | None, other: V | None, apart: Callable[[int, int], V]
) -> V | None:
    """Lanes of `t` by vectors where they lie side by side, else by `apart`; None where that is not to be expected.

    Args:
        ev: emits.
        t: type of an element.
        address: of the lanes.
        mask, other: of the load, or None.
        apart: emits what reads some lanes at any places; takes the first and how many.
    """
    f, size, lanes = ev.f, max(1, t.bits // 8), ev.nest.lanes
    if address.form is None or address.varying is None or not address.varying.type.lanes or address.base.type.lanes:
        return None
    guess = places_between_wraps(ev, address.form.offset)
    if guess is None:
        return None
    at_once = not gathers(f.isa, t, lanes) or (f.isa.has_masks and order_of(guess, size) is not None)
    count = lanes if at_once else min(lanes, f.isa.native_lanes(t.bits))
    orders = {start: order_of(guess[start : start + count], size) for start in range(0, lanes, count)}
    if None in orders.values():
        return None

    firsts = _firsts(ev, address.form.offset)

    def part(start: int) -> V:
        order = orders[start]
        assert order is not None and address.form is not None
        lowest = f.gep(address.base, f.sub(_first_place(ev, address, start, firsts), size * order[0]))
        wanted, fill = (None if v is None else f.slice(f.splat(v, lanes), start, count) for v in (mask, other))
        both = _wrap(ev, address.form.offset, guess[start : start + count], start, firsts)

        def on_both_sides() -> list[V]:
            assert both is not None
            sides = [(lowest, both.before), (f.gep(lowest, both.further), f.not_(both.before))]
            found = fill
            for place, own in sides:
                asked = own if wanted is None else f.and_(own, wanted)
                found = read_whole(ev, t, place, asked, found, order, some=asked is own)
            assert found is not None
            return [found]

        def anywhere() -> list[V]:
            return [apart(start, count)]

        def elsewhere() -> list[V]:
            return anywhere() if both is None else f.if_else(both.once, on_both_sides, anywhere, likely=True)

        (found,) = f.if_else(
            _nothing_wraps(ev, address.form.offset, start, count, firsts),
            lambda: [read_whole(ev, t, lowest, wanted, fill, order)],
            elsewhere,
            likely=True,
        )
        return found

    return f.concat([part(start) for start in orders])


def _first_place(ev: Values, address: Address, lane: int, firsts: _Firsts) -> V:
    """Bytes from the base of an address to a lane."""
    f, total = ev.f, const(I64, 0 if address.offsets is None else address.offsets[lane])
    assert address.form is not None
    for value, at, scale in address.form.offset.residual:
        if ev.eval(value, at).type.lanes:  # others are in the base
            divided = _divided(ev, value, at, lane, firsts)
            number = divided.rest if _division(value) in REMAINDERS else divided.quotient
            total = f.add(total, f.mul(number, ev.poly(scale)))
    return total


@dataclass(frozen=True, slots=True)
class _Divided:
    """What is divided at a lane, by what, the quotient and the rest, of 64 bits; right if the rest is inside.

    Numbers up to `largest` have the type that is divided: behind it they begin anew.
    """

    number: V
    divisor: V
    quotient: V
    rest: V
    largest: int

    def stays(self, f: Function, least: int, most: int) -> V:
        """Whether what is divided from `least` to `most` from here is of its type, and not negative."""
        return f.and_(
            f.icmp("sge", f.add(self.number, least), 0), f.icmp("sle", self.number, const(I64, self.largest - most))
        )


_Firsts = dict[tuple[SSAValue, Index], _Divided]


def _firsts(ev: Values, form: Form) -> _Firsts:
    """What is divided at the first lane, in front of the branches that take others from there."""
    found: _Firsts = {}
    for value, at, _ in form.residual:
        if any(ev.lanes_of(coord) is not None for coord in at):
            inner = _firsts(ev, ev.analysis.integer(*operand_indices(value, at)[0]))
            found |= inner or {(value, at): _divided_at(ev, value, at, 0)}
    return found


def _divided_at(ev: Values, value: SSAValue, at: Index, lane: int) -> _Divided:
    f, kind = ev.f, "si" if _division(value) in SIGNED_DIVISIONS else "ui"
    pair = [ev.eval(operand, _at_lane(index, lane)) for operand, index in operand_indices(value, at)]
    parts = [*pair, emit(f, f"div{kind}", *pair), emit(f, f"rem{kind}", *pair)]
    number, by, quotient, rest = (f.cast("sext" if kind == "si" else "zext", part, I64) for part in parts)
    return _Divided(number, by, quotient, rest, (1 << min(63, pair[0].type.bits - (kind == "si"))) - 1)


def _divided(ev: Values, value: SSAValue, at: Index, lane: int, firsts: _Firsts) -> _Divided:
    """A division at a lane: by that of the first one and a carry, where no other quotient is divided."""
    found = firsts.get((value, at))
    if found is None:
        return _divided_at(ev, value, at, lane)
    f, places = ev.f, places_between_wraps(ev, ev.analysis.integer(*operand_indices(value, at)[0]))
    assert places is not None
    further = places[lane] - places[0]
    if not further:
        return found
    rest = f.add(found.rest, further)
    over = f.cast("zext", f.icmp("sge", rest, found.divisor) if further > 0 else f.icmp("slt", rest, 0), I64)
    carry = over if further > 0 else f.sub(0, over)
    rest = f.sub(rest, f.mul(carry, found.divisor))
    return _Divided(f.add(found.number, further), found.divisor, f.add(found.quotient, carry), rest, found.largest)


@dataclass(frozen=True, slots=True)
class _Wrap:
    """Where quotients change among lanes.

    Args:
        once: whether that is one place.
        before: the lanes before it.
        further: bytes by which the others lie further than if nothing changed.
    """

    once: V
    before: V
    further: V


def _wrap(ev: Values, form: Form, guess: Offsets, start: int, firsts: _Firsts) -> _Wrap | None:
    """Where one quotient and its rest change among lanes from `start` on; None where others may, or masks are slow."""
    f, count = ev.f, len(guess)
    varying = [(v, at, scale) for v, at, scale in form.residual if any(ev.lanes_of(c) is not None for c in at)]
    if not f.isa.has_masks or len({tuple(operand_indices(v, at)) for v, at, _ in varying}) != 1:
        return None
    value, at, _ = varying[0]
    places = places_between_wraps(ev, ev.analysis.integer(*operand_indices(value, at)[0]))
    if (value, at) not in firsts or places is None:
        return None
    moves = [place - places[start] for place in places[start : start + count]]
    if min(moves) < 0 < max(moves):
        return None
    divided, rises = _divided(ev, value, at, start, firsts), max(moves) > 0
    rest, by = divided.rest, divided.divisor
    inside = f.and_(f.icmp("sge", rest, 0), f.icmp("slt", rest, by))
    last = f.add(rest, max(moves) if rises else min(moves))
    once = f.icmp("slt", f.sub(last, by), by) if rises else f.icmp("sge", f.add(last, by), 0)
    once = f.and_(f.and_(once, inside), divided.stays(f, min(moves), max(moves)))
    left = f.cast(
        "trunc",
        f.intrinsic("smin", f.sub(by, rest) if rises else rest, const(I64, count * max(map(abs, moves)) + 1)),
        I32,
    )
    numbers = const_vector(I32.vec(count), moves if rises else [-move for move in moves])
    before = f.icmp("slt" if rises else "sle", numbers, f.splat(left, count))
    further = const(I64, 0)
    for value, _, scale in varying:
        more = f.sub(0, by) if _division(value) in REMAINDERS else const(I64, 1)
        further = f.add(further, f.mul(more if rises else f.sub(0, more), ev.poly(scale)))
    return _Wrap(once, before, further)


def _nothing_wraps(ev: Values, form: Form, start: int, count: int, firsts: _Firsts) -> V:
    """Whether no quotient in a form changes among `count` lanes from `start` on; not where a dividend is negative."""
    f, holds = ev.f, const(I1, 1)
    for value, at, _ in form.residual:
        if all(ev.lanes_of(coord) is None for coord in at):
            continue
        inner = ev.analysis.integer(*operand_indices(value, at)[0])
        places = places_between_wraps(ev, inner)
        assert places is not None
        moves = [place - places[start] for place in places[start : start + count]]
        holds = f.and_(holds, _stays(f, _divided(ev, value, at, start, firsts), min(moves), max(moves)))
        holds = f.and_(holds, _nothing_wraps(ev, inner, start, count, firsts))
    return holds


def _stays(f: Function, divided: _Divided, least: int, most: int) -> V:
    """Whether numbers around one, from `least` to `most` from it, have its quotient."""
    inside = f.icmp("slt", f.add(divided.rest, most), divided.divisor)
    inside = f.and_(inside, f.icmp("sge", f.add(divided.rest, least), 0))
    return f.and_(inside, divided.stays(f, least, most))


def _at_lane(index: Index, lane: int) -> Index:
    """Where one lane is of what an index leads to."""
    return tuple(normal(tuple(part for field in coord for part in _of_lane(field, lane))) for coord in index)


def _of_lane(field: Field, lane: int) -> Coord:
    if field.src != LANE:
        return (field,)
    return shifted(constant(lane >> field.lo & ((1 << field.width) - 1)), field.pos)


@functools.cache
def order_of(offsets: Offsets, size: int) -> list[int] | None:
    """Which element from the lowest on each lane has, where they are as many as lanes, without a gap."""
    lowest = min(offsets)
    whole = sorted(offsets) == [lowest + size * element for element in range(len(offsets))]
    return [(offset - lowest) // size for offset in offsets] if whole else None


def read_whole(
    ev: Values, t: T, lowest: V, mask: V | None, other: V | None, order: list[int], *, some: bool = False
) -> V:
    """A vector from `lowest` on, of which each lane takes the element `order`, all of them once.

    `some` says that the mask asks for an element: a page that is not there costs a thousand cycles.
    """
    f, lanes = ev.f, len(order)
    if mask is None:
        return f.shuffle(f.load(t.vec(lanes), lowest), None, order)
    if not some:
        lowest = f.select(f.reduce("or", mask), lowest, ev.dummy)
    asked = f.shuffle(mask, None, [order.index(element) for element in range(lanes)])
    read = f.shuffle(f.masked_load(t.vec(lanes), lowest, asked, 0, None), None, order)
    return read if other is None else f.select(mask, read, f.splat(other, lanes))
