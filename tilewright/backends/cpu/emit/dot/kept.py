"""Packed operands kept from one program to the next, as `plan/pack_cache.py` planned them.

at the start of a range:   nothing is known
before the loop, or dot:   entry = the one whose key is the current one, else one that is given that key, empty
iteration t < span:             if t >= filled: pack into slot t of the entry; if t == filled: filled = t + 1
iteration t >= span:            pack into the spare slot

Entries have as many slots, `span`, as the longest loop so far had iterations. When all are taken, the next key takes
the place of one of them: always of the same, if none was found again since, so that keys that never come again stay in
few caches' lines and leave the others alone.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.cpu.emit.context import FunctionLowering, KeptEntry
from tilewright.backends.cpu.plan.pack_cache import HEAD_WORDS, PackCache
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I1, I64, PTR, V, const

_SPAN, _USED, _LAST, _FOUND = range(HEAD_WORDS)  # words of the state; then of each entry: filled, key


def begin_range(low: FunctionLowering, cache: PackCache) -> None:
    """Nothing is packed yet."""
    for word in range(HEAD_WORDS):
        low.f.store(const(I64, 0), low.f.gep(low.ev.arena, cache.state.offset + 8 * word))


def enter(low: FunctionLowering, cache: PackCache, iterations: V) -> None:
    """Before the loop, or the product without one: find what was packed for the current key."""
    f, ev = low.f, low.ev
    count = len(cache.keys)
    keys = f.alloca(I64, max(1, count), align=8)
    for number, key in enumerate(cache.keys):
        f.store(_word(low, ev.scalar(key)), f.gep(keys, 8 * number))
    state = f.gep(ev.arena, cache.state.offset)
    sizes = [const(I64, number) for number in (count, cache.entries, cache.slots)]
    place = f.call(_finder(f.module), I64, (state, keys, iterations, *sizes))
    span = f.load(I64, f.gep(state, 8 * _SPAN))
    panels = f.gep(ev.arena, cache.panels.offset)
    first = f.gep(panels, f.mul(f.mul(place, span), cache.slot_bytes))
    filled = f.gep(state, _entry(f, place, sizes[0]))
    low.kept[cache] = KeptEntry(first, span, filled)
    for one, other in cache.apart:  # in place: what is stored may have changed it
        with f.if_(f.icmp("eq", ev.scalar(one), ev.scalar(other))):
            f.store(const(I64, 0), filled)


def slot(low: FunctionLowering, cache: PackCache, iteration: V) -> tuple[V, V]:
    """Address of the slot of an iteration, and whether it must be packed; then call `packed`."""
    f, entry = low.f, low.kept[cache]
    inside = f.icmp("ult", iteration, entry.span)
    spare = f.gep(low.ev.arena, cache.panels.offset + cache.slots * cache.slot_bytes)
    address = f.select(inside, f.gep(entry.first, f.mul(iteration, cache.slot_bytes)), spare)
    known = f.icmp("slt", iteration, f.load(I64, entry.filled))
    return address, f.not_(f.and_(inside, known))


def packed(low: FunctionLowering, cache: PackCache, iteration: V) -> None:
    """Note that the slot of an iteration has been packed, if those of all before are: some need no packed operand."""
    f, entry = low.f, low.kept[cache]
    with f.if_(f.and_(f.icmp("ult", iteration, entry.span), f.icmp("eq", iteration, f.load(I64, entry.filled)))):
        f.store(f.add(iteration, 1), entry.filled)


def _entry(f: Function, number: V, keys: V) -> V:
    """Bytes from the start of the state to an entry of so many keys."""
    return f.add(f.mul(number, f.mul(f.add(keys, 1), 8)), 8 * HEAD_WORDS)


def _word(low: FunctionLowering, value: V) -> V:
    if value.type.elem == "ptr":
        return low.f.cast("ptrtoint", value, I64)
    if value.type.is_float:
        value = low.f.cast("bitcast", value, value.type.as_int)
    return low.f.cast("zext" if value.type is I1 else "sext", value, I64)


# --- the entry of a key -----------------------------------------------------------------------------------------


def _finder(module: Module) -> str:
    """Define (once, for all operands) the search for an entry; gives its name.

    Parameters of the emitted function: the state, the key, iterations of the loop; words of a key, entries and slots
    that there may be. It gives the number of the entry.
    """
    name = "dot.kept"
    if module.has(name):
        return name
    f = module.function(name, I64, (PTR, PTR, I64, I64, I64, I64), attrs="nounwind noinline")
    state, wanted, iterations, keys, entries, slots = f.args

    def word(number: int) -> V:
        return f.gep(state, 8 * number)

    _widen(f, word, iterations, slots)
    used = f.load(I64, word(_USED))

    def differs(values: list[V]) -> V:
        own = f.gep(state, f.add(_entry(f, values[0], keys), 8))
        same: V = f.icmp("ult", values[0], used)
        with f.loop(0, f.select(same, keys, const(I64, 0)), init=[same], unroll=False) as loop:
            pair = [f.load(I64, f.gep(at, loop.index, I64)) for at in (own, wanted)]
            loop.next(f.and_(loop.values[0], f.icmp("eq", *pair)))
        return f.and_(f.icmp("ult", values[0], used), f.not_(loop.results[0]))

    (number,) = f.while_([const(I64, 0)], differs, lambda values: [f.add(values[0], 1)])

    def found() -> list[V]:
        f.store(const(I64, 1), word(_FOUND))
        return [number]

    def taken() -> list[V]:
        ways = f.op("udiv", slots, f.load(I64, word(_SPAN)))
        ways = f.intrinsic("umin", ways, entries)
        following = f.add(f.load(I64, word(_LAST)), f.load(I64, word(_FOUND)))
        again = f.select(f.icmp("ult", following, ways), following, const(I64, 0))
        free = f.icmp("ult", used, ways)
        place = f.select(free, used, again)
        f.store(f.select(free, f.add(used, 1), used), word(_USED))
        f.store(place, word(_LAST))
        f.store(const(I64, 0), word(_FOUND))
        own = f.gep(state, _entry(f, place, keys))
        f.store(const(I64, 0), own)
        with f.loop(0, keys, unroll=False) as loop:
            f.store(f.load(I64, f.gep(wanted, loop.index, I64)), f.gep(f.gep(own, 8), loop.index, I64))
        return [place]

    (result,) = f.if_else(f.icmp("ult", number, used), found, taken)
    f.ret(result)
    return name


def _widen(f: Function, word: Callable[[int], V], iterations: V, slots: V) -> None:
    """Make room in all entries for a loop of more iterations than any before: they begin anew."""
    span = f.load(I64, word(_SPAN))
    wanted = f.intrinsic("smax", iterations, const(I64, 1))
    with f.if_(f.and_(f.icmp("ult", span, wanted), f.icmp("ult", span, slots))):
        more = f.intrinsic("umax", wanted, f.mul(span, 2))
        f.store(f.intrinsic("umin", more, slots), word(_SPAN))
        for number in (_USED, _LAST, _FOUND):
            f.store(const(I64, 0), word(number))
