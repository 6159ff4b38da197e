"""`tt.dot`: operands packed from memory or scratch, then the micro-kernels of `dot/`, for each matrix of a batch.

valid extents of A and B from their masks; what is computed iteration by iteration fills its buffer first
A: in place, if every element exists and K has unit stride, else packed
B: in place, if it is read few times and N has unit stride, else packed
acc (+)= A * B
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tilewright.analysis.affine import Poly
from tilewright.analysis.matrices import MemoryOperand
from tilewright.backends.cpu.emit.context import FunctionLowering, emits
from tilewright.backends.cpu.emit.dot import DotPlan, amx, dot, dot_in_place, kept, pack, plan_dot
from tilewright.backends.cpu.emit.dot.iterations import each_iteration, filled
from tilewright.backends.cpu.emit.dot.pack import Order
from tilewright.backends.cpu.emit.dot.place import choose_place
from tilewright.backends.cpu.emit.dot.thin import emit_thin
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.dead_rows import row_alone
from tilewright.backends.cpu.plan.dot_operands import Operand, ScratchOperand
from tilewright.backends.cpu.plan.dot_step import DotDetail, a_in_place, dot_plan, rows_exist
from tilewright.backends.cpu.plan.steps import Step, memory_bytes
from tilewright.backends.llvm.types import I1, I64, VOID, V, const
from tilewright.ir.types import shape_of
from tilewright.ir.walk import every
from tilewright.ops.dot import DotOp


class _Source:
    """An operand ready to be read: address of element (0, 0), byte strides, valid extents."""

    def __init__(
        self, low: FunctionLowering, operand: Operand, shape: tuple[int, ...], extents: list[V], batch: V
    ) -> None:
        ev, f = low.ev, low.f
        self.exist: list[V] = [const(I1, 1)] * 2  # all elements along a dim
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
                limit = ev.bound(bound)
                self.exist[dim] = f.and_(self.exist[dim], f.icmp("sge", limit, extents[dim]))
                self.valid[dim] = f.intrinsic("smin", self.valid[dim], limit)
        for condition in operand.conditions:
            holds = ev.scalar(condition)
            self.exist = [f.and_(exist, holds) for exist in self.exist]
            self.valid = [f.select(holds, valid, const(I64, 0)) for valid in self.valid]

    def along(self, mn: int, k: int) -> tuple[Order, tuple[V, V], tuple[V, V]]:
        """Order, strides and valid extents as packers want them: which of the dims are `mn` and K."""
        order: Order = "k" if self.unit[k] else "mn" if self.unit[mn] else "any"
        return order, (self.strides[mn], self.strides[k]), (self.valid[mn], self.valid[k])


def begin_range(low: FunctionLowering) -> bool:
    """Emit what dots need once per range of programs; gives whether tile registers are used."""
    for cache in low.plan.caches:
        kept.begin_range(low, cache)
    functions = (plan.function for plan in low.state.loops.plans.values())  # those that are called too
    dots = (op for function in functions for op in every(function, DotOp))
    if any(dot_plan(low.f.isa, op).is_amx for op in dots):
        amx.configure(low.f)
        return True
    return False


def end_range(low: FunctionLowering, used: bool) -> None:
    """Undo `begin_range`."""
    if used:
        amx.release(low.f)


@emits(DotOp)
def emit_dot_step(low: FunctionLowering, step: Step) -> None:
    """Emit one dot."""
    op, detail, f, ev = step.op, step.detail, low.f, low.ev
    assert op is not None and isinstance(detail, DotDetail)
    ev.enter(Nest())
    plan = dot_plan(f.isa, op)
    shape = shape_of(op.results[0].type)
    if detail.joined is None:
        choose_place(low, detail)
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
    iterations: V = low.joined[joined.loop].count if joined is not None else const(I64, 1)
    k, capacity = f.mul(iterations, plan.k), plan.k * (joined.factor if joined is not None else 1)
    one = const(I64, plan.k)
    ka, kb = (one if isinstance(o, ScratchOperand) else k for o in (detail.a, detail.b))
    a = _Source(low, detail.a, shape_of(a_type), [const(I64, plan.m), ka], batch)  # type: ignore[arg-type]
    b = _Source(low, detail.b, shape_of(b_type), [kb, const(I64, plan.n)], batch)  # type: ignore[arg-type]
    size = memory_bytes(detail.acc.elem)
    acc: V = f.gep(ev.arena, detail.acc.offset)
    acc_stride: V = const(I64, detail.acc.strides[-2] * size)
    if detail.direct is not None:
        place = low.direct[detail.direct]
        acc, acc_stride = place.address, place.stride
    if len(detail.acc.shape) == 3:
        acc = f.gep(acc, f.mul(batch, detail.acc.strides[0] * size))
    few, exist = plan, a.exist[0]
    if 0 in detail.dead and row_alone(plan, detail.a, detail.b):  # there may be but one row that somebody looks at
        few = plan_dot(f.isa, 1, plan.n, plan.k, plan.a_dtype, plan.b_dtype, plan.acc)
        exist = f.icmp("eq", a.valid[0], 1)
    if detail.direct is not None:
        rows, columns = place.extents
        stored = f.and_(f.icmp("eq", rows, few.m), f.icmp("eq", columns, few.n))
        exist = f.and_(exist, f.or_(f.not_(place.direct), stored))
    thin = _thin_order(few, a, b)

    def packed() -> None:
        _Packed(low, plan, detail, a, b, iterations, capacity).emit(acc, acc_stride)

    if thin is None:
        packed()
        return

    cut = _both_end(detail)
    if cut:
        k = f.intrinsic("smin", k, _last(low, a, b))
    there = f.and_(f.icmp("sge", a.valid[1], k), f.icmp("sge", b.valid[0], k))

    def in_place() -> None:
        places = (a.address, *a.strides, b.address, b.strides[1], b.strides[0])
        args = [acc, acc_stride, *places, k, _fresh(low, detail)]
        f.call(emit_thin(f.module, few, thin, cut=cut), VOID, args)

    f.if_else(f.and_(f.and_(exist, b.exist[1]), there), in_place, packed)


def _fresh(low: FunctionLowering, detail: DotDetail) -> V:
    """Whether what the accumulator holds is ignored, i1."""
    if detail.afresh and detail.joined is not None:
        return low.joined[detail.joined.loop].first
    return const(I1, detail.fresh)


def _thin_order(plan: DotPlan, a: _Source, b: _Source) -> Order | None:
    """Along what B is read where it lies; None where it must be packed."""
    if not plan.thin:
        return None
    if b.unit[1]:
        return "mn"
    return "k" if b.unit[0] and a.unit[1] and plan.lanes_of_k > 1 else None


def _words(low: FunctionLowering, plan: DotPlan, detail: DotDetail, a: _Source, b: _Source, words: V) -> V:
    """Of the words of K those in which one of the operands is not zero, in whole blocks."""
    if not _both_end(detail):
        return words
    f, block = low.f, plan.k_block // plan.unit
    blocks = f.op("udiv", f.add(_last(low, a, b), plan.k_block - 1), const(I64, plan.k_block))
    return f.intrinsic("smin", words, f.mul(blocks, block))


def _both_end(detail: DotDetail) -> bool:
    """Whether there may be an end of K in both operands, beyond which zeros are multiplied."""
    if not (isinstance(detail.a, MemoryOperand) and isinstance(detail.b, MemoryOperand)):
        return False
    return bool(detail.a.bounds[1] and detail.b.bounds[0])


def _last(low: FunctionLowering, a: _Source, b: _Source) -> V:
    """The elements of K of which one operand has some."""
    return low.f.intrinsic("smax", low.f.intrinsic("smax", a.valid[1], b.valid[0]), const(I64, 0))


class _Packed:
    """A product of operands that are packed, or have their elements where packed ones would.

    Args:
        low: where to emit.
        plan, detail: of the product.
        a, b: its operands.
        iterations: that it joins.
        capacity: elements of K for which packed operands have room.
    """

    def __init__(
        self,
        low: FunctionLowering,
        plan: DotPlan,
        detail: DotDetail,
        a: _Source,
        b: _Source,
        iterations: V,
        capacity: int,
    ) -> None:
        self.low, self.plan, self.detail, self.capacity = low, plan, detail, capacity
        self.fresh = _fresh(low, detail)
        self.sources = {"a": a, "b": b}
        self.steps = plan.steps(plan.k)
        self.all_words = low.f.mul(iterations, self.steps)
        self.words = _words(low, plan, detail, a, b, self.all_words)
        rows = a.valid[0] if 0 in detail.dead else const(I64, plan.m)
        columns = b.valid[1] if 1 in detail.dead else const(I64, plan.n)
        self.part: tuple[V, V] | None = (rows, columns) if detail.dead and not plan.is_amx else None
        if detail.direct is not None and detail.direct.parts:
            self.part = low.direct[detail.direct].extents

    def emit(self, acc: V, acc_stride: V) -> None:
        """Pack what has to be packed, and multiply."""
        f, b = self.low.f, self.sources["b"]
        if not self.detail.in_place:
            self._with_panels(acc, acc_stride)
        elif rows_exist(self.detail.b):
            self._without_panels(acc, acc_stride)
        else:
            args = acc, acc_stride
            there = f.icmp("sge", b.valid[0], self.words)
            f.if_else(there, lambda: self._without_panels(*args), lambda: self._with_panels(*args))

    def _with_panels(self, acc: V, acc_stride: V) -> None:
        """Pack B and multiply."""
        f, plan = self.low.f, self.plan
        panel, plane_b = plan.b_panel_bytes(self.capacity), plan.b_plane_bytes(self.capacity)
        packed_b = self._place("b", panel, plane_b)

        def multiply(address: V, stride: V | int, planes: int) -> None:
            dot(
                f, plan, acc, acc_stride, address, stride, packed_b, panel, self.words, self.fresh,
                a_plane_bytes=planes, b_plane_bytes=plane_b, part=self.part,
            )  # fmt: skip

        self._with_a(multiply)

    def _without_panels(self, acc: V, acc_stride: V) -> None:
        """Multiply with B where it lies; all rows of it exist."""
        f, plan, b = self.low.f, self.plan, self.sources["b"]
        cut = isinstance(self.detail.b, MemoryOperand) and bool(self.detail.b.bounds[1])

        def multiply(address: V, stride: V | int, planes: int) -> None:
            dot_in_place(
                f, plan, acc, acc_stride, address, stride, b.address, b.strides[0], b.valid[1], self.words,
                self.fresh, cut=cut, part=self.part,
            )  # fmt: skip

        self._with_a(multiply)

    def _with_a(self, multiply: Callable[[V, V | int, int], None]) -> None:
        """Multiply with A where it lies, if it may be read there and exists, else with what is packed of it.

        Args:
            multiply: emits the product for the address of A, its row stride, and the distance of its planes.
        """
        f, plan = self.low.f, self.plan

        def packed() -> None:
            row, plane = plan.a_row_bytes(self.capacity), plan.a_plane_bytes(self.capacity)
            multiply(self._place("a", row, plane), row, plane)

        if not a_in_place(plan, self.detail.a):
            packed()
            return
        a = self.sources["a"]
        # Of a part of the tile, rows that do not exist are not asked for.
        rows = const(I1, 1) if self.part and 0 in self.detail.dead else a.exist[0]
        exists = f.and_(rows, f.icmp("sge", a.valid[1], f.mul(self.words, plan.unit)))
        f.if_else(exists, lambda: multiply(a.address, a.strides[0], 0), packed)

    def _place(self, name: Literal["a", "b"], stride: int, plane: int) -> V:
        """Address of a packed operand; one that is kept is packed only if it is not there."""
        low, cache = self.low, self.detail.kept.get(name)
        if cache is None:
            target = low.f.gep(low.ev.arena, self.detail.packed[name].offset)
            self._pack(name, target, stride, plane)
            return target
        iteration = low.iterations.get(cache.place)
        if iteration is None:
            iteration = const(I64, 0)
            kept.enter(low, cache, const(I64, 1))
        target, missing = kept.slot(low, cache, iteration)
        with low.f.if_(missing):
            self._pack(name, target, stride, plane)
            kept.packed(low, cache, iteration)
        return target

    def _pack(self, name: Literal["a", "b"], target: V, stride: int, plane: int) -> None:
        """All words of an operand: at once, or iteration by iteration if each iteration's have to be computed first."""
        low, detail, source = self.low, self.detail, self.sources[name]
        operand, dims = (detail.a, (0, 1)) if name == "a" else (detail.b, (1, 0))
        order, strides, valid = source.along(*dims)
        args = (low.f, self.plan, name, order, target, stride, source.address, strides, valid)
        fill = operand.fill if isinstance(operand, ScratchOperand) else None
        if fill is not None and detail.joined is not None:
            with each_iteration(low, low.joined[detail.joined.loop], fill) as iteration:
                pack(*args, self.steps, first=low.f.mul(iteration, self.steps), plane_bytes=plane)
        elif fill is not None:
            with filled(low, fill):
                pack(*args, self.all_words, plane_bytes=plane)
        else:
            # What is kept serves programs whose other operand may have more of K.
            pack(*args, self.all_words if name in detail.kept else self.words, plane_bytes=plane)
