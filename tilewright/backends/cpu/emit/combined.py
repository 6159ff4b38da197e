"""Atomic sums whose old values nobody reads: elements of a tile with one address are summed before memory is touched.

    sums = 0 for each place of a window of memory
    for each element where the mask holds:
      in the window:  sums[place] += value
      elsewhere:      atomic add
    for each sum that is not 0: atomic add of it

The elements of one operation have no order among them, and an atomic add of a sum is several adds in a row: nobody can
tell the difference, except that far fewer of them, each of dozens of cycles, reach memory (or another core).
"""

from __future__ import annotations

import math

from tilewright.analysis.affine import PointerForm
from tilewright.analysis.index import identity
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit.values import Values
from tilewright.backends.cpu.plan.steps import Sink
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.elementwise import emit
from tilewright.backends.llvm.types import I64, V, const
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import bit_width, element_type, ir_name, shape_of
from tilewright.ops.atomic import AtomicRMWOp

_SUMS = {"add": "addi", "fadd": "addf"}


def plan_combining(sink: Sink, ev: Values) -> Answer[int]:
    """Whether the elements of an atomic are summed by address first; gives the elements of the window."""
    op = sink.op
    assert op is not None
    if not isinstance(op, AtomicRMWOp) or op.attr_values()["atomic_rmw_op"] not in _SUMS:
        return No("it is no sum")
    if op.results[0].uses:
        return No("the old values are read")
    if bit_width(element_type(op.results[0].type)) < 32:
        return No("sums of partial sums would round more often")
    form = _form(op, ev)
    if form.base is None:
        return No("the addresses do not begin at one pointer")
    if not form.offset.residual and form.offset.coords:
        return No("the elements have addresses of their own")
    count = math.prod(sink.shape)
    if count < tuning.COMBINED_ELEMENTS:
        return No(f"there are fewer than {tuning.COMBINED_ELEMENTS} elements", instead="a larger block")
    window = min(tuning.COMBINING_WINDOW, 1 << (count.bit_length() - 1))
    return Yes(window, f"those of the first {window} addresses, before memory is touched")


def _form(op: AtomicRMWOp, ev: Values) -> PointerForm:
    pointer = op.operands[0]
    return ev.analysis.pointer(pointer, identity(shape_of(pointer.type)))


class Window:
    """The sums of one operation, on the stack.

    Args:
        ev: where to emit, outside of the operation's loops.
        op: the atomic sum.
        size: elements.
        order: LLVM's name of the memory order.
    """

    def __init__(self, ev: Values, op: AtomicRMWOp, size: int, order: str) -> None:
        f = self.f = ev.f
        self.kind, self.size, self.order = str(op.attr_values()["atomic_rmw_op"]), size, order
        self.t = storage(ir_name(element_type(op.results[0].type)))
        form = _form(op, ev)
        assert form.base is not None
        self.base = f.gep(ev.scalar(form.base), ev.poly(form.offset.constant))
        self.sums = f.alloca(self.t, size)
        # What changes no number: -0.0 for floats.
        self.nothing = const(self.t, -0.0) if self.t.is_float else const(self.t, 0)
        self.lanes = 64 // self.t.bytes
        with f.loop(0, size, self.lanes, unroll=False) as loop:
            f.store(f.splat(self.nothing, self.lanes), f.gep(self.sums, loop.index, self.t))

    def add(self, pointer: V, value: V, mask: V) -> None:
        """Take in one element."""
        f = self.f
        with f.if_(mask):
            offset = f.sub(f.cast("ptrtoint", pointer, I64), f.cast("ptrtoint", self.base, I64))
            place = f.lshr(offset, self.t.bytes.bit_length() - 1)

            def inside() -> None:
                at = f.gep(self.sums, place, self.t)
                f.store(emit(f, _SUMS[self.kind], f.load(self.t, at), value), at)

            f.if_else(f.icmp("ult", place, self.size), inside, lambda: self._write(pointer, value))

    def _write(self, pointer: V, value: V) -> None:
        self.f.atomic_rmw(self.kind, pointer, value, self.order)

    def finish(self) -> None:
        """Bring the sums to memory."""
        f, lanes = self.f, self.lanes
        with f.loop(0, self.size, lanes, unroll=False) as block:
            sums = f.load(self.t.vec(lanes), f.gep(self.sums, block.index, self.t))
            with f.if_(f.reduce("or", self._changed(sums))), f.loop(0, lanes, unroll=False) as loop:
                place = f.add(block.index, loop.index)
                value = f.load(self.t, f.gep(self.sums, place, self.t))
                with f.if_(self._changed(value)):
                    self._write(f.gep(self.base, place, self.t), value)

    def _changed(self, value: V) -> V:
        f, bits = self.f, value.type.as_int
        nothing = f.splat(self.nothing, value.type.lanes)
        return f.icmp("ne", f.cast("bitcast", value, bits), f.cast("bitcast", nothing, bits))
