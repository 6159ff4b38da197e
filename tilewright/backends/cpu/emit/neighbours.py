"""Atomic sums of elements that lie side by side: several by one compare-and-swap.

    if the first element lies at a multiple of 16 bytes (8, where the target exchanges no more):
      for each 16 bytes of which the mask has an element:
        old = what is there
        while the exchange of old for (mask ? old + value : old) fails: old = what was there
    else: for each element where the mask holds: atomic add

Elements whose mask is off are exchanged for what they are, which nobody can tell; they are in a page of one that is on.
"""

from __future__ import annotations

from tilewright.backends.llvm.elementwise import emit
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I1, I64, PTR, VOID, T, V, const, const_vector, zero

SUMS = {"add": "addi", "fadd": "addf"}
"""Atomic sums, and the operation on values that each of them is."""
_MASK_BITS = 64


def add_neighbours(f: Function, kind: str, order: str, first: V, values: V, mask: V | None) -> None:
    """Add a vector to as many elements from `first` on, where `mask` (None for everywhere) holds."""
    lanes = values.type.lanes
    stored = f.alloca(values.type.scalar, lanes)
    f.store(values, stored)
    bits = const(I64, (1 << lanes) - 1 if lanes < _MASK_BITS else -1)
    if mask is not None:
        whole = f.cast("bitcast", f.splat(mask, lanes), T(f"i{lanes}"))
        bits = whole if lanes == _MASK_BITS else f.cast("zext", whole, I64)
    f.call(_adder(f.module, kind, order, values.type), VOID, (first, stored, bits))


def several(isa: CpuFeatures, t: T, lanes: int) -> int:
    """How many of `lanes` elements are exchanged at a time; 1 where that is no gain."""
    exchanged = (16 if isa.is_x86 and isa.has("cx16") else 8) // t.bytes
    return exchanged if lanes % max(exchanged, 8) == 0 and lanes <= _MASK_BITS else 1


def _adder(module: Module, kind: str, order: str, t: T) -> str:
    """Define (once) the sum of a vector of values; gives its name.

    Parameters of the emitted function: the first element, the values, a bit for each element.
    """
    name = f"atomic.{kind}.{t.suffix}.{order}"
    if module.has(name):
        return name
    f = module.function(name, VOID, (PTR, PTR, I64), attrs="nounwind noinline")
    first, values, mask = f.args
    count = several(f.isa, t.scalar, t.lanes)

    def one_by_one() -> None:
        with f.loop(0, t.lanes, unroll=False) as loop:
            wanted = f.cast("trunc", f.lshr(mask, loop.index), I1)
            with f.if_(wanted):
                value = f.load(t.scalar, f.gep(values, loop.index, t.scalar))
                f.atomic_rmw(kind, f.gep(first, loop.index, t.scalar), value, order)

    def together() -> None:
        with f.loop(0, t.lanes, count, unroll=False) as loop:
            bits = f.and_(f.lshr(mask, loop.index), (1 << count) - 1)
            with f.if_(f.icmp("ne", bits, 0)):
                value = f.load(t.vec(count), f.gep(values, loop.index, t.scalar))
                _exchange(f, kind, order, f.gep(first, loop.index, t.scalar), value, bits)

    misplaced = f.and_(f.cast("ptrtoint", first, I64), count * t.scalar.bytes - 1)
    f.if_else(f.icmp("eq", misplaced, 0), together, one_by_one)
    f.ret()
    return name


def _exchange(f: Function, kind: str, order: str, at: V, value: V, bits: V) -> None:
    """Add a few elements, as the integer that they are."""
    integer = T(f"i{8 * value.type.bytes}")
    lanes = value.type.lanes
    own = f.and_(f.splat(bits, lanes), const_vector(I64.vec(lanes), [1 << lane for lane in range(lanes)]))
    mask = f.icmp("ne", own, zero(own.type))
    found: list[V] = []

    def failed(state: list[V]) -> V:
        old = f.cast("bitcast", state[0], value.type)
        new = f.select(mask, emit(f, SUMS[kind], old, value), old)
        found[:] = [f.atomic_cas(at, state[0], f.cast("bitcast", new, integer), order)]
        return f.icmp("ne", found[0], state[0])

    f.while_([f.load(integer, at)], failed, lambda state: found)
