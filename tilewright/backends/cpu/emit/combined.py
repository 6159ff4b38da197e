"""Atomic sums whose old values nobody reads: elements with one address are summed before memory is touched.

    sums = 0 for each place of a window of memory
    for each element where the mask holds, or vector of elements that lie side by side:
      in the window:  sums[place] += value
      elsewhere:      atomic add
    for each sum that is not 0: atomic add of it

The elements of one operation have no order among them, and an atomic add of a sum is several adds in a row: nobody can
tell the difference, except that far fewer of them, each of dozens of cycles, reach memory (or another core). Nor have
programs, so the window may be that of all programs that a thread runs (`plan/combining.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit.neighbours import SUMS, add_neighbours
from tilewright.backends.cpu.emit.scalarize import in_straight_code
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.elementwise import emit
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I32, I64, V, const, zero
from tilewright.ir.types import element_type, ir_name
from tilewright.ops.atomic import AtomicRMWOp

LANES_BYTES = 64
"""Bytes to a multiple of which windows are emptied and looked through."""


class Window:
    """The sums of one operation.

    Args:
        f: where to emit, outside of the operation's loops.
        op: the atomic sum.
        base: address of the first element that the window stands for.
        sums: memory of the window.
        size: elements, a multiple of `LANES_BYTES`.
        ways: sums that the first addresses have, added up at the end: one need not wait for the last one's store.
    """

    def __init__(self, f: Function, op: AtomicRMWOp, base: V, sums: V, size: V, ways: int = 1) -> None:
        self.f, self.base, self.sums, self.size = f, base, sums, size
        self.kind, self.order = str(op.attr_values()["atomic_rmw_op"]), llvm_order(op)
        self.t = storage(ir_name(element_type(op.results[0].type)))
        # What changes no number: -0.0 for floats.
        self.nothing = const(self.t, -0.0) if self.t.is_float else const(self.t, 0)
        self.lanes = LANES_BYTES // self.t.bytes
        self._empty(self.sums, size)
        self.first = tuning.SUMMED_APART
        self.others = [f.alloca(self.t, self.first) for _ in range(1, ways)]
        for other in self.others:
            self._empty(other, const(I64, self.first))

    def _empty(self, sums: V, size: V) -> None:
        f = self.f
        with f.loop(0, size, self.lanes, unroll=False) as loop:
            f.store(f.splat(self.nothing, self.lanes), f.gep(sums, loop.index, self.t))

    def add(self, pointer: V, value: V, mask: V) -> None:
        """Take in one element."""
        f = self.f
        with f.if_(mask):
            offset = f.sub(f.cast("ptrtoint", pointer, I64), f.cast("ptrtoint", self.base, I64))
            place = f.lshr(offset, self.t.bytes.bit_length() - 1)

            def inside() -> None:
                at = f.gep(self.sums, place, self.t)
                f.store(emit(f, SUMS[self.kind], f.load(self.t, at), value), at)

            f.if_else(f.icmp("ult", place, self.size), inside, lambda: self._write(pointer, value))

    def places(self, pointers: V) -> V:
        """Which elements from the beginning of the window some addresses are; negative ones are large numbers."""
        f, lanes = self.f, pointers.type.lanes
        offsets = f.sub(
            f.cast("ptrtoint", pointers, I64.vec(lanes)), f.splat(f.cast("ptrtoint", self.base, I64), lanes)
        )
        return f.lshr(offsets, self.t.bytes.bit_length() - 1)

    def add_vector(self, places: V, value: V, mask: V | None, slowly: Callable[[], None]) -> None:
        """Take in one element for each of some places, which are looked at together; `slowly` adds one by one.

        Places of 32 bits are numbers with a sign: taken as unsigned, negative ones are behind any window.
        """
        f, lanes = self.f, places.type.lanes
        size = f.cast("trunc", self.size, I32) if places.type.bits == 32 else self.size
        inside = f.icmp("ult", places, f.splat(size, lanes))
        if mask is None:
            f.if_else(f.reduce("and", inside), lambda: self._add_places(places, value), slowly)
            return
        mask = f.splat(mask, lanes)

        def some() -> None:
            self._add_places(
                f.select(mask, places, zero(places.type)),
                f.select(mask, f.splat(value, lanes), f.splat(self.nothing, lanes)),
            )

        known = f.or_(inside, f.not_(mask))
        f.if_else(
            f.reduce("and", f.and_(inside, mask)),
            lambda: self._add_places(places, value),
            lambda: f.if_else(f.reduce("and", known), some, slowly),
        )

    def _add_places(self, places: V, value: V) -> None:
        """Add to places of the window."""
        f, all_sums = self.f, [self.sums, *self.others]
        narrow = places if places.type.bits == 32 else f.cast("trunc", places, I32)

        def in_turns(sums: list[V]) -> None:
            def one(number: int, scalars: list[V]) -> None:
                at = f.gep(sums[number % len(sums)], f.cast("zext", scalars[0], I64), self.t)
                f.store(emit(f, SUMS[self.kind], f.load(self.t, at), scalars[1]), at)

            in_straight_code(f, [narrow, value], places.type.lanes, one)

        if not self.others:
            in_turns(all_sums)
            return
        first = f.icmp("ult", narrow, f.splat(const(I32, self.first), places.type.lanes))
        f.if_else(f.reduce("and", first), lambda: in_turns(all_sums), lambda: in_turns([self.sums]))

    def add_neighbours(self, first: V, values: V, mask: V | None) -> None:
        """Take in a vector of elements that lie side by side, in the window or behind it."""
        f, lanes = self.f, values.type.lanes
        offset = f.sub(f.cast("ptrtoint", first, I64), f.cast("ptrtoint", self.base, I64))
        place = f.lshr(offset, self.t.bytes.bit_length() - 1)

        def inside() -> None:
            at = f.gep(self.sums, place, self.t)
            added = values if mask is None else f.select(f.splat(mask, lanes), values, f.splat(self.nothing, lanes))
            f.store(emit(f, SUMS[self.kind], f.load(values.type, at, self.t.bytes), added), at, self.t.bytes)

        within = f.icmp("ule", f.add(place, lanes), self.size)
        f.if_else(within, inside, lambda: self._write_neighbours(first, values, mask))

    def _write(self, pointer: V, value: V) -> None:
        self.f.atomic_rmw(self.kind, pointer, value, self.order)

    def _write_neighbours(self, first: V, values: V, mask: V | None) -> None:
        add_neighbours(self.f, self.kind, self.order, first, values, mask)

    def finish(self) -> None:
        """Bring the sums to memory."""
        f, lanes = self.f, self.lanes
        if self.others:
            with f.loop(0, f.intrinsic("smin", self.size, const(I64, self.first)), lanes, unroll=False) as block:
                total = f.load(self.t.vec(lanes), f.gep(self.sums, block.index, self.t))
                for other in self.others:
                    more = f.load(self.t.vec(lanes), f.gep(other, block.index, self.t))
                    total = emit(f, SUMS[self.kind], total, more)
                f.store(total, f.gep(self.sums, block.index, self.t))
        with f.loop(0, self.size, lanes, unroll=False) as block:
            sums = f.load(self.t.vec(lanes), f.gep(self.sums, block.index, self.t))
            changed = self._changed(sums)
            with f.if_(f.reduce("or", changed)):
                self._write_neighbours(f.gep(self.base, block.index, self.t), sums, changed)

    def _changed(self, value: V) -> V:
        f, bits = self.f, value.type.as_int
        nothing = f.splat(self.nothing, value.type.lanes)
        return f.icmp("ne", f.cast("bitcast", value, bits), f.cast("bitcast", nothing, bits))


def llvm_order(op: Operation) -> str:
    """LLVM's name of an operation's memory order."""
    order = str(op.attr_values()["sem"])  # type: ignore[attr-defined]
    return "monotonic" if order == "relaxed" else order
