"""`tt.dot`: operands packed from memory or scratch, then the micro-kernels of `dot/`, for each matrix of a batch.

valid extents of A and B from their masks
A: in place, if every element exists and K has unit stride, else packed
B: packed
acc (+)= A * B
"""

from __future__ import annotations

from tilewright.analysis.affine import Poly
from tilewright.backends.cpu.emit.context import FunctionLowering
from tilewright.backends.cpu.emit.dot import DotPlan, amx, dot, kept, pack_a, pack_b
from tilewright.backends.cpu.emit.dot.pack import Order
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.dot_operands import MemoryOperand, Operand, ScratchOperand
from tilewright.backends.cpu.plan.dot_step import DotDetail, dot_plan
from tilewright.backends.cpu.plan.steps import Step, memory_bytes
from tilewright.backends.llvm.types import I1, I64, V, const
from tilewright.ir.types import shape_of
from tilewright.ops.dot import DotOp


class _Source:
    """An operand ready to be read: address of element (0, 0), byte strides, valid extents."""

    def __init__(
        self, low: FunctionLowering, operand: Operand, shape: tuple[int, ...], extents: list[V], batch: V
    ) -> None:
        ev, f = low.ev, low.f
        self.whole: V = const(I1, 1)
        self.valid: list[V] = list(extents)
        self.strides: list[V] = []
        self.unit: list[bool] = []
        if isinstance(operand, ScratchOperand):
            size = memory_bytes(operand.buffer.elem)
            self.address = f.gep(ev.arena, operand.buffer.offset)
            if len(shape) == 3:
                self.address = f.gep(self.address, f.mul(batch, operand.strides[0]))
            self.strides = [const(I64, s) for s in operand.strides[-2:]]
            self.unit = [s == size for s in operand.strides[-2:]]
            return
        self._from_memory(low, operand)

    def _from_memory(self, low: FunctionLowering, operand: MemoryOperand) -> None:
        ev, f = low.ev, low.f
        size = memory_bytes(operand.elem)
        self.address = f.gep(ev.scalar(operand.base), ev.poly(operand.offset))
        self.strides = [ev.poly(stride) for stride in operand.strides]
        self.unit = [stride == Poly.of(size) for stride in operand.strides]
        extents = list(self.valid)
        for dim, bounds in enumerate(operand.bounds):
            for bound in bounds:
                limit = ev.poly(bound)
                self.whole = f.and_(self.whole, f.icmp("sge", limit, extents[dim]))
                self.valid[dim] = f.intrinsic("smin", self.valid[dim], limit)
        for condition in operand.conditions:
            holds = ev.scalar(condition)
            self.whole = f.and_(self.whole, holds)
            self.valid = [f.select(holds, valid, const(I64, 0)) for valid in self.valid]

    def order(self, rows: int, columns: int) -> Order:
        """How the packers should walk: `rows`, `columns` are the dims that they call mn and k."""
        return "k" if self.unit[columns] else "mn" if self.unit[rows] else "any"


def begin_range(low: FunctionLowering) -> bool:
    """Emit what dots need once per range of programs; gives whether tile registers are used."""
    for cache in low.plan.caches:
        kept.begin_range(low, cache)
    plans = [dot_plan(low.f.isa, op) for op in low.plan.function.walk() if isinstance(op, DotOp)]
    if any(plan.is_amx for plan in plans):
        amx.configure(low.f)
        return True
    return False


def end_range(low: FunctionLowering, used: bool) -> None:
    """Undo `begin_range`."""
    if used:
        amx.release(low.f)


def emit_dot_step(low: FunctionLowering, step: Step) -> None:
    """Emit one dot."""
    op, detail, f, ev = step.op, step.detail, low.f, low.ev
    assert op is not None and isinstance(detail, DotDetail)
    ev.enter(Nest())
    plan = dot_plan(f.isa, op)
    shape = shape_of(op.results[0].type)
    if len(shape) == 3:
        with f.loop(0, shape[0], unroll=False) as loop:
            _one(low, plan, detail, op.operands[0].type, op.operands[1].type, loop.index)
            ev.enter(Nest())
    else:
        _one(low, plan, detail, op.operands[0].type, op.operands[1].type, const(I64, 0))


def _one(low: FunctionLowering, plan: DotPlan, detail: DotDetail, a_type: object, b_type: object, batch: V) -> None:
    """The product of one pair of matrices."""
    f, ev = low.f, low.ev
    joined = detail.joined
    trips: V = low.joined[joined.loop] if joined is not None else const(I64, 1)
    k, capacity = f.mul(trips, plan.k), plan.k * (joined.factor if joined is not None else 1)
    a = _Source(low, detail.a, shape_of(a_type), [const(I64, plan.m), k], batch)  # type: ignore[arg-type]
    b = _Source(low, detail.b, shape_of(b_type), [k, const(I64, plan.n)], batch)  # type: ignore[arg-type]
    size = memory_bytes(detail.acc.elem)
    acc = f.gep(ev.arena, detail.acc.offset)
    acc_stride = detail.acc.strides[-2] * size
    if len(detail.acc.shape) == 3:
        acc = f.gep(acc, f.mul(batch, detail.acc.strides[0] * size))
    words = f.mul(trips, plan.steps(plan.k))
    panel, plane_b = plan.b_panel_bytes(capacity), plan.b_plane_bytes(capacity)

    def pack(target: V) -> None:
        pack_b(
            f, plan, b.order(1, 0), target, panel, b.address, b.strides[0], b.strides[1],
            b.valid[0], b.valid[1], words, plane_bytes=plane_b,
        )  # fmt: skip

    if detail.cache is None:
        packed_b = f.gep(ev.arena, detail.packed["b"].offset)
        pack(packed_b)
    else:
        trip = low.trips[detail.cache.loop]
        packed_b, missing = kept.slot(low, detail.cache, trip)
        with f.if_(missing):
            pack(packed_b)
            kept.packed(low, detail.cache, trip)

    def multiply(address: V, stride: V | int, planes: int) -> None:
        dot(
            f, plan, acc, acc_stride, address, stride, packed_b, panel, words, detail.fresh,
            a_plane_bytes=planes, b_plane_bytes=plane_b,
        )  # fmt: skip

    def packed() -> None:
        buffer = f.gep(ev.arena, detail.packed["a"].offset)
        row, plane = plan.a_row_bytes(capacity), plan.a_plane_bytes(capacity)
        pack_a(
            f, plan, a.order(0, 1), buffer, row, a.address, a.strides[0], a.strides[1],
            a.valid[0], a.valid[1], words, plane_bytes=plane,
        )  # fmt: skip
        multiply(buffer, row, plane)

    in_place = plan.a_in_place and a.unit[1] and plan.k == plan.padded_k(plan.k)
    if in_place:
        f.if_else(a.whole, lambda: multiply(a.address, a.strides[0], 0), packed)
    else:
        packed()
