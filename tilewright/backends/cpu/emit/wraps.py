"""Lanes that lie side by side unless a quotient changes among them: crops, paddings, flips, windows of flat elements.

    i // w * stride + i % w              ->  one lane after the other, until i % w is 0 again
    first % w + 15 < w  ?  one vector  :  a gather

What is asked, and where the first lane is, are numbers: a chunk that does not wrap computes no place of any other lane.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

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
from tilewright.backends.llvm.types import I1, I64, T, V, const
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
    count = min(lanes, f.isa.native_lanes(t.bits)) if gathers(f.isa, t, lanes) else lanes
    orders = {start: order_of(guess[start : start + count], size) for start in range(0, lanes, count)}
    if None in orders.values():
        return None

    def part(start: int) -> V:
        order = orders[start]
        assert order is not None and address.form is not None
        lowest = f.gep(address.base, f.sub(_first_place(ev, address, start), size * order[0]))
        wanted, fill = (None if v is None else f.slice(f.splat(v, lanes), start, count) for v in (mask, other))
        (found,) = f.if_else(
            _nothing_wraps(ev, address.form.offset, start, count),
            lambda: [read_whole(ev, t, lowest, wanted, fill, order)],
            lambda: [apart(start, count)],
            likely=True,
        )
        return found

    return f.concat([part(start) for start in orders])


def _first_place(ev: Values, address: Address, lane: int) -> V:
    """Bytes from the base of an address to a lane."""
    f, total = ev.f, const(I64, 0 if address.offsets is None else address.offsets[lane])
    assert address.form is not None
    for value, at, scale in address.form.offset.residual:
        if ev.eval(value, at).type.lanes:  # others are in the base
            number = f.cast("sext", ev.eval(value, _at_lane(at, lane)), I64)
            total = f.add(total, f.mul(number, ev.poly(scale)))
    return total


def _nothing_wraps(ev: Values, form: Form, start: int, count: int) -> V:
    """Whether no quotient in a form changes among `count` lanes from `start` on; not where a dividend is negative."""
    f, holds = ev.f, const(I1, 1)
    for value, at, _ in form.residual:
        if all(ev.lanes_of(coord) is None for coord in at):
            continue
        (dividend, here), (divisor, there) = operand_indices(value, at)
        inner = ev.analysis.integer(dividend, here)
        places = places_between_wraps(ev, inner)
        assert places is not None
        numbers = ev.eval(dividend, _at_lane(here, start)), ev.eval(divisor, _at_lane(there, start))
        moves = [place - places[start] for place in places[start : start + count]]
        signed = _division(value) in SIGNED_DIVISIONS
        holds = f.and_(holds, _stays(f, *numbers, (min(moves), max(moves)), signed=signed))
        holds = f.and_(holds, _nothing_wraps(ev, inner, start, count))
    return holds


def _stays(f: Function, number: V, divisor: V, moves: tuple[int, int], *, signed: bool) -> V:
    """Whether numbers around one that is not negative, `moves` from it, have its quotient."""
    rest = emit(f, "remsi" if signed else "remui", number, divisor)
    rest, number, divisor = (f.cast("sext" if signed else "zext", v, I64) for v in (rest, number, divisor))
    inside = f.and_(f.icmp("slt", f.add(rest, moves[1]), divisor), f.icmp("sge", f.add(rest, moves[0]), 0))
    return f.and_(inside, f.icmp("sge", number, 0))


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


def read_whole(ev: Values, t: T, lowest: V, mask: V | None, other: V | None, order: list[int]) -> V:
    """A vector from `lowest` on, of which each lane takes the element `order`, all of them once."""
    f, lanes = ev.f, len(order)
    if mask is None:
        return f.shuffle(f.load(t.vec(lanes), lowest), None, order)
    lowest = f.select(f.reduce("or", mask), lowest, ev.dummy)  # a page that is not there costs a thousand cycles
    asked = f.shuffle(mask, None, [order.index(element) for element in range(lanes)])
    read = f.shuffle(f.masked_load(t.vec(lanes), lowest, asked, 0, None), None, order)
    return read if other is None else f.select(mask, read, f.splat(other, lanes))
