"""Packing of operands: conversion, zero padding and the layouts that micro-kernels read.

A packer copies K words from strided memory of the source type. What is inside the valid extents goes through full
vectors; the rest is an edge, where everything outside the extents becomes zero:

    for row of A, or panel of B (and vector of it):
        full = words of K inside the valid extents, or 0 if not all rows (columns) are valid
        for w in [0, full):      vectors, transposed in registers if the source runs along the other axis
        for w in [full, words):  masked vectors (AVX-512, SVE), else element by element

The order of a source is the axis of its unit stride: "k", "mn" (m for A, n for B), or "any".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tilewright.backends.cpu.emit.dot.micro import b_is_offset, first_lanes, word_type
from tilewright.backends.cpu.emit.dot.transpose import emit_transpose
from tilewright.backends.cpu.plan.dot import ELEM, DotPlan
from tilewright.backends.llvm.casts import from_working_float, to_working_float
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import BF16, I8, I16, I64, PTR, VOID, V, const, zero

Order = Literal["k", "mn", "any"]
_PARAMS = (PTR, I64, PTR, I64, I64, I64, I64, I64, I64, I64)


def emit_pack(module: Module, plan: DotPlan, operand: Literal["a", "b"], order: Order) -> str:
    """Define (once) the packer of one operand; gives its name. See `call.pack` for the parameters."""
    name = f"dot.pack.{operand}.{order}.{plan.name}"
    if module.has(name):
        return name
    f = module.function(name, VOID, _PARAMS, attrs="nounwind noinline")
    packer = _Packer(f, plan, operand, order)
    if operand == "a":
        packer.rows()
    else:
        if plan.panels:
            done = packer.whole_panels() if order == "mn" else None
            with f.loop(0, plan.panels, unroll=False) as loop:
                packer.panel(loop.index, plan.nv, done)
        if plan.tail_vectors:
            packer.panel(const(I64, plan.panels), plan.tail_vectors)
    f.ret()
    return name


@dataclass(slots=True)
class _Target:
    """Where the words of a block go: address of (mn 0, word 0), and byte strides between mn and between words."""

    base: V
    mn_stride: V
    word_stride: V


class _Packer:
    """One packing function under construction.

    Args:
        f: the function, with parameters `_PARAMS`.
        plan: the dot.
        operand: which of its operands.
        order: unit-stride axis of the source.
    """

    def __init__(self, f: Function, plan: DotPlan, operand: Literal["a", "b"], order: Order) -> None:
        self.f, self.plan, self.operand, self.order = f, plan, operand, order
        self.dst, self.dst_stride, self.src = f.args[0], f.args[1], f.args[2]
        self.mn_stride, self.k_stride, mn_valid, k_valid, self.first, self.words, self.plane = f.args[3:10]
        # A mask that ends before this piece leaves fewer than no elements of it.
        self.mn_valid, self.k_valid = (f.intrinsic("smax", n, const(I64, 0)) for n in (mn_valid, k_valid))
        self.source = plan.a_dtype if operand == "a" else plan.b_dtype
        self.source_t = ELEM[self.source]
        self.operand_t = ELEM[plan.operand]
        self.word_t = word_type(plan)
        self.squares: V | None = None
        self.offset = operand == "b" and b_is_offset(plan, f.module)
        inside = f.intrinsic("smin", self.words, f.op("udiv", self.k_valid, const(I64, plan.unit)))
        self.full_words = inside if order == "mn" and operand == "b" else f.and_(inside, -plan.lanes)

    # -- what goes where ---------------------------------------------------------------------------

    def rows(self) -> None:
        """All rows of A."""
        f, plan = self.f, self.plan
        word = const(I64, plan.word_bytes)
        target = _Target(f.gep(self.dst, f.mul(self.first, word)), self.dst_stride, word)
        height = 1 if self.order != "mn" else plan.lanes
        with f.loop(0, plan.a_rows, height, unroll=False) as loop:
            self._block(target, loop.index, height, plan.a_rows)

    def whole_panels(self) -> V:
        """Words of K that exist, of panels that exist, along the rows of B; gives how many panels that is."""
        f, plan = self.f, self.plan
        columns = plan.panel_columns
        count = f.intrinsic("umin", f.op("udiv", self.mn_valid, const(I64, columns)), const(I64, plan.panels))
        with f.loop(0, self.full_words, unroll=False) as words, f.loop(0, count, unroll=False) as panels:
            target, column = self._panel(panels.index, plan.nv)
            self._straight(target, column, columns, words.index, 0, edge=False)
        return count

    def _panel(self, panel: V, nv: int) -> tuple[_Target, V]:
        """Where a panel of B of `nv` vectors goes, and its first column."""
        f, plan = self.f, self.plan
        word = const(I64, plan.word_bytes)
        step = const(I64, nv * plan.lanes * plan.word_bytes)
        column = f.mul(panel, plan.panel_columns)
        # The base is that of column 0, so that targets are addressed by absolute column.
        base = f.gep(f.gep(self.dst, f.mul(panel, self.dst_stride)), f.mul(column, -plan.word_bytes))
        return _Target(f.gep(base, f.mul(self.first, step)), word, step), column

    def panel(self, panel: V, nv: int, done: V | None = None) -> None:
        """The `nv` vectors of one panel of B; of the panels before `done` what does not exist is left."""
        f, plan = self.f, self.plan
        target, column = self._panel(panel, nv)
        if self.order == "mn":
            self._block(target, column, nv * plan.lanes, 0, None if done is None else f.icmp("slt", panel, done))
        else:
            with f.loop(0, nv, unroll=False) as loop:
                self._block(target, f.add(column, f.mul(loop.index, plan.lanes)), plan.lanes, 0)

    def _block(self, target: _Target, mn: V, count: int, limit: int, done: V | None = None) -> None:
        """All words of `count` rows or columns from `mn`; those from `limit` on (if not 0) do not exist.

        Where it is said whether words that exist have been packed, `done`, only others are.
        """
        f = self.f
        if self.order == "any":
            self._elements(target, mn, count, limit, const(I64, 0))
            return
        complete = f.icmp("sle", f.add(mn, count), self.mn_valid) if done is None else done
        full = f.select(complete, self.full_words, const(I64, 0))
        straight = (self.order == "k") == (self.operand == "a")
        step = 1 if straight and self.operand == "b" else self.plan.lanes
        emit = self._straight if straight else self._transposed
        if done is None:
            with f.loop(0, full, step, unroll=False) as loop:
                emit(target, mn, count, loop.index, limit, edge=False)
        if not f.isa.has_masks:
            self._elements(target, mn, count, limit, full)
            return
        with f.loop(full, self.words, step, unroll=False) as loop:
            emit(target, mn, count, loop.index, limit, edge=True)

    # -- vectors -------------------------------------------------------------------------------------

    def _straight(self, target: _Target, mn: V, count: int, word: V, limit: int, *, edge: bool) -> None:
        """Source and packed form run along the same axis."""
        f, lanes = self.f, self.plan.lanes
        if self.operand == "a":
            self._store(target, mn, word, self._along_k(mn, word, edge), self._left(self.words, word) if edge else None)
            return
        for start in range(0, count, lanes):
            column = f.add(mn, start)
            self._store(target, column, word, self._along_mn(column, word, edge), None)

    def _transposed(self, target: _Target, mn: V, count: int, word: V, limit: int, *, edge: bool) -> None:
        """A square of words, transposed between loads and stores; staged in memory so that little code is emitted."""
        f, lanes = self.f, self.plan.lanes
        row_bytes = lanes * self.plan.word_bytes
        size = lanes * row_bytes
        if self.squares is None:
            self.squares = f.alloca(I8, self.plan.planes * size)
        with f.loop(0, lanes, unroll=False) as loop:
            if self.operand == "b":
                loaded = self._along_k(f.add(mn, loop.index), word, edge)
            else:
                loaded = self._along_mn(mn, f.add(word, loop.index), edge)
            at = f.gep(self.squares, f.mul(loop.index, row_bytes))
            for p, value in enumerate(loaded):
                f.store(value, f.gep(at, p * size))
        name = emit_transpose(f.module, self.word_t.vec(lanes))
        for p in range(self.plan.planes):
            square = f.gep(self.squares, p * size)
            to, stride = square, const(I64, row_bytes)
            if not edge:
                to = self._in_plane(self._address(target, mn, word), p)
                stride = target.word_stride if self.operand == "b" else target.mn_stride
            f.call(name, VOID, (square, to, stride))
        if edge:
            self._store_square(target, mn, word, limit, size)

    def _store_square(self, target: _Target, mn: V, word: V, limit: int, size: int) -> None:
        """Store what exists of the transposed staging squares."""
        f, plan = self.f, self.plan
        assert self.squares is not None
        left = f.sub(self.words, word) if self.operand == "b" else f.sub(const(I64, limit), mn)
        with f.loop(0, f.intrinsic("smin", left, const(I64, plan.lanes)), unroll=False) as loop:
            at = f.gep(self.squares, f.mul(loop.index, plan.lanes * plan.word_bytes))
            planes = [f.load(self.word_t.vec(plan.lanes), f.gep(at, p * size)) for p in range(plan.planes)]
            if self.operand == "b":
                self._store(target, mn, f.add(word, loop.index), planes, None)
            else:
                self._store(target, f.add(mn, loop.index), word, planes, self._left(self.words, word))

    def _left(self, end: V, start: V) -> V:
        """`i1` per lane: lane < end - start."""
        return self._mask(self.f.sub(end, start), self.plan.lanes)

    def _mask(self, count: V, lanes: int) -> V:
        return first_lanes(self.f, lanes, count)

    def _along_k(self, mn: V, word: V, edge: bool) -> list[V]:
        """The words of one row (column) from `word` on, per plane; the source runs along K."""
        f, plan = self.f, self.plan
        first = f.mul(word, plan.unit)
        at = f.gep(f.gep(self.src, f.mul(mn, self.mn_stride)), first, self.source_t)
        lanes = plan.lanes * plan.unit
        mask = None
        if edge:
            left = f.select(f.icmp("slt", mn, self.mn_valid), f.sub(self.k_valid, first), const(I64, 0))
            mask = self._mask(left, lanes)
        return [self._as_words(v) for v in self._convert(self._load(at, lanes, mask))]

    def _along_mn(self, mn: V, word: V, edge: bool) -> list[V]:
        """Word `word` of `lanes` rows (columns) from `mn` on, per plane; the source runs along M or N."""
        f, plan = self.f, self.plan
        loaded = []
        for u in range(plan.unit):
            k = f.add(f.mul(word, plan.unit), u)
            at = f.gep(f.gep(self.src, f.mul(k, self.k_stride)), mn, self.source_t)
            mask = None
            if edge:
                left = f.select(f.icmp("slt", k, self.k_valid), f.sub(self.mn_valid, mn), const(I64, 0))
                mask = self._mask(left, plan.lanes)
            loaded.append(self._convert(self._load(at, plan.lanes, mask)))
        return [self._as_words(_interleave(f, [planes[p] for planes in loaded])) for p in range(plan.planes)]

    def _load(self, at: V, lanes: int, mask: V | None) -> V:
        """Source elements; through integers, whose masked loads every AVX-512 target has."""
        f, t = self.f, self.source_t.vec(lanes)
        value = f.load(t.as_int, at) if mask is None else f.masked_load(t.as_int, at, mask)
        return f.cast("bitcast", value, t)

    def _as_words(self, value: V) -> V:
        return self.f.cast("bitcast", value, self.word_t.vec(self.plan.lanes))

    def _address(self, target: _Target, mn: V, word: V) -> V:
        f = self.f
        return f.gep(f.gep(target.base, f.mul(mn, target.mn_stride)), f.mul(word, target.word_stride))

    def _in_plane(self, at: V, plane: int) -> V:
        """The address in another plane of what `at` is in the first."""
        return self.f.gep(at, self.f.mul(self.plane, plane)) if plane else at

    def _store(self, target: _Target, mn: V, word: V, planes: list[V], mask: V | None) -> None:
        f = self.f
        at = self._address(target, mn, word)
        for p, value in enumerate(planes):
            where = self._in_plane(at, p)
            if mask is None:
                f.store(value, where)
            else:
                f.masked_store(value, where, mask)

    # -- elements --------------------------------------------------------------------------------------

    def _elements(self, target: _Target, mn: V, count: int, limit: int, word: V) -> None:
        """Every element from `word` on of `count` rows or columns from `mn`, one by one."""
        f, plan = self.f, self.plan
        end = f.add(mn, count)
        if limit % count:
            end = f.intrinsic("smin", end, const(I64, limit))
        with f.loop(mn, end, unroll=False) as outer, f.loop(word, self.words, unroll=False) as inner:
            for u in range(plan.unit):
                k = f.add(f.mul(inner.index, plan.unit), u)
                loaded = self._element(outer.index, k)
                to = f.gep(self._address(target, outer.index, inner.index), u * self.operand_t.bytes)
                for p, value in enumerate(self._convert(loaded)):
                    f.store(value, self._in_plane(to, p))

    def _element(self, mn: V, k: V) -> V:
        """One source element, zero outside the valid extents."""
        f = self.f

        def load() -> list[V]:
            at = f.gep(f.gep(self.src, f.mul(mn, self.mn_stride)), f.mul(k, self.k_stride))
            return [f.load(self.source_t, at)]

        inside = f.and_(f.icmp("slt", mn, self.mn_valid), f.icmp("slt", k, self.k_valid))
        return f.if_else(inside, load, lambda: [zero(self.source_t)])[0]

    def _convert(self, value: V) -> list[V]:
        """Source elements as packed elements, per plane."""
        f, to = self.f, self.operand_t
        if self.source == self.plan.operand:
            return [f.xor(value, -128) if self.offset else value]
        if not to.is_float:
            return [f.cast("sext", value, to)]
        value = to_working_float(f, value, self.source)
        if self.plan.planes > 1:
            return _split(f, _to_tf32(f, value) if self.plan.tf32 and self.source == "f32" else value)
        return [from_working_float(f, value, self.plan.operand)]


def _split(f: Function, value: V) -> list[V]:
    """f32 as bf16: the high part, the rest, and the high part again with 0 for what is not finite.

    The high part is cut off, so that it never rounds to infinity and both parts lie on the grid of `value`: sums that
    are exact stay exact. The rest of f16 and tf32 fits in bf16, that of f32 is rounded, by 2**-16 of `value` at most.
    Infinities and NaN are in the first part alone, and only first parts multiply each other: infinity times the rest
    of a number, which may be 0 or of the other sign, would be NaN.
    """
    bits = f.cast("bitcast", value, value.type.as_int)
    finite = f.fcmp("olt", f.intrinsic("fabs", value), math.inf)
    quiet = f.select(f.fcmp("uno", value, value), f.or_(bits, 1 << 22), bits)
    high = f.and_(quiet, -1 << 16)
    rest = f.select(finite, f.fsub(value, f.cast("bitcast", high, value.type)), zero(value.type))
    shorts = [f.cast("trunc", f.lshr(x, 16), I16) for x in (high, f.select(finite, high, zero(high.type)))]
    first, kept = (f.cast("bitcast", x, BF16.vec(x.type.lanes)) for x in shorts)
    return [first, from_working_float(f, rest, "bf16"), kept]


def _to_tf32(f: Function, value: V) -> V:
    """f32 rounded to the 10 bits of mantissa that tf32 has; halves away from zero, as PTX's `cvt.rna.tf32.f32`."""
    bits = f.cast("bitcast", value, value.type.as_int)
    rounded = f.and_(f.add(bits, 1 << 12), -1 << 13)
    return f.select(f.fcmp("uno", value, value), value, f.cast("bitcast", rounded, value.type))


def _interleave(f: Function, rows: list[V]) -> V:
    """`rows[0][0], rows[1][0], ..., rows[0][1], ...` of a power of two of rows."""
    while len(rows) > 1:
        half = len(rows) // 2
        rows = [f.interleave(a, b) for a, b in zip(rows[:half], rows[half:], strict=True)]
    return rows[0]
