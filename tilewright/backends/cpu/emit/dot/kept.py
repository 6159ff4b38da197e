"""Packed B panels kept from one program to the next, as `plan/pack_cache.py` planned them.

at the start of a range:  valid = 0
before the loop:          if not valid or key differs: key = current values; filled = 0
trip t < slots:           if t >= filled: pack into slot t; filled = t + 1
trip t >= slots:          pack into the spare slot
"""

from __future__ import annotations

from tilewright.backends.cpu.emit.context import FunctionLowering
from tilewright.backends.cpu.plan.pack_cache import PackCache
from tilewright.backends.llvm.types import I1, I64, V, const


def begin_range(low: FunctionLowering, cache: PackCache) -> None:
    """Nothing is packed yet."""
    low.f.store(const(I64, 0), _state(low, cache, 0))


def enter_loop(low: FunctionLowering, cache: PackCache) -> None:
    """Before the loop: keep what was packed if it is the same."""
    f, ev = low.f, low.ev
    same: V = f.icmp("ne", f.load(I64, _state(low, cache, 0)), 0)
    for number, key in enumerate(cache.keys):
        value = _word(low, ev.scalar(key))
        place = _state(low, cache, 2 + number)
        same = f.and_(same, f.icmp("eq", f.load(I64, place), value))
        f.store(value, place)
    filled = _state(low, cache, 1)
    f.store(f.select(same, f.load(I64, filled), const(I64, 0)), filled)
    f.store(const(I64, 1), _state(low, cache, 0))


def slot(low: FunctionLowering, cache: PackCache, trip: V) -> tuple[V, V]:
    """Address of the slot of a trip, and whether it must be packed; then call `packed`."""
    f = low.f
    inside = f.icmp("ult", trip, cache.slots)
    number = f.select(inside, trip, const(I64, cache.slots))
    address = f.gep(f.gep(low.ev.arena, cache.panels.offset), f.mul(number, cache.slot_bytes))
    known = f.icmp("slt", trip, f.load(I64, _state(low, cache, 1)))
    return address, f.not_(f.and_(inside, known))


def packed(low: FunctionLowering, cache: PackCache, trip: V) -> None:
    """Note that the slot of a trip has been packed."""
    f = low.f
    with f.if_(f.icmp("ult", trip, cache.slots)):
        f.store(f.add(trip, 1), _state(low, cache, 1))


def _state(low: FunctionLowering, cache: PackCache, word: int) -> V:
    return low.f.gep(low.ev.arena, cache.state.offset + 8 * word)


def _word(low: FunctionLowering, value: V) -> V:
    if value.type.elem == "ptr":
        return low.f.cast("ptrtoint", value, I64)
    if value.type.is_float:
        value = low.f.cast("bitcast", value, value.type.as_int)
    return low.f.cast("zext" if value.type is I1 else "sext", value, I64)
