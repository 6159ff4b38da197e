"""Micro-kernels in vector registers and the loop over a whole tile that calls them.

One internal noinline function per shape keeps the accumulators in registers over all K words:

    acc[i][j] = 0                       i < mr, j < nv
    for w in K words:
        b[j] = load B panel row w       nv vectors; of a panel that is packed, or of the row where B lies
        for i: acc[i][j] += splat(A[i, w]) * b[j]
    C (+)= acc                          the last vector masked when the tile has ragged columns

Where the instruction multiplies 2x2 blocks, accumulators are such blocks (`mmla`).

`emit_dot` loops rows outside and panels inside, so that A streams once while the panels stay in cache. Where it is told
of how many rows and columns, half a block or less that is left at the end goes to a kernel of few rows, or of few
vectors; the corner, where both are few, has none of its own: it is a twelfth of the code of a product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from tilewright.backends.cpu.emit.dot import mmla
from tilewright.backends.cpu.plan.dot import ELEM, DotPlan, few_rows, writes_parts
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import (
    BF16,
    I1,
    I8,
    I16,
    I32,
    I64,
    NULL,
    PTR,
    VOID,
    T,
    V,
    const,
    const_vector,
    iota,
    zero,
)

# Where B is: in packed panels; where it lies, all columns of it; where it lies, some columns of which do not exist.
# The kernels are the same but for the distance of rows and, in the last, lanes that are left out.
Place = Literal["packed", "whole", "cut"]
_PARAMS = (PTR, I64, PTR, I64, PTR, I64, I1, PTR, I64, I64)
_ATTRS = "nounwind noinline"
# Rows up to which each has a pointer: x86 has no registers for more, which strides from the first row need not.
# Measured: one Zen 5 core, 500 products of 16x13x29, 97 ns each with 16 pointers, 87 with one.
_POINTERS = 12
_LATENCY = 8  # accumulators that two multiply-adds a cycle need; kernels with fewer have a set for each of some words


def emit_dot(module: Module, plan: DotPlan, place: Place, *, part: bool) -> str:
    """Define (once) the product of a tile for the vector families; gives its name.

    See `call.dot` and `call.dot_in_place` for the parameters of the emitted function; one for a `part` of the tile has
    two more, its rows and columns.
    """
    name = f"dot.{plan.name}{'' if place == 'packed' else f'.{place}'}{'.part' if part else ''}"
    if module.has(name):
        return name
    params = (PTR, I64, PTR, I64, PTR, I64, I64, I64, I1, *((I64, I64) if part else ()))
    f = module.function(name, VOID, params, attrs=_ATTRS)
    row_blocks, rest = divmod(plan.m, plan.mr)
    few = few_rows(plan) if part else 0
    if row_blocks:
        blocks = _blocks(f, 9, row_blocks, plan.mr, plan.mr - 1 if few else 0)
        with f.loop(0, blocks, unroll=False) as loop:
            _row_block(f, plan, f.mul(loop.index, plan.mr), plan.mr, place, exist=bool(few))
        if few:
            _few_rows(f, plan, f.mul(blocks, plan.mr), few, place)
    if rest:
        with _beyond(f, 9, row_blocks * plan.mr):
            _row_block(f, plan, const(I64, row_blocks * plan.mr), rest, place)
    f.ret()
    return name


def _few_rows(f: Function, plan: DotPlan, first: V, few: int, place: Place) -> None:
    """The rows behind whole blocks, `few` at a time, or half of that if no more are left."""
    whole_blocks, half = const(I64, plan.m // plan.mr * plan.mr), few // 2
    end = f.intrinsic("smax", f.intrinsic("smin", f.args[9], whole_blocks), first)
    count = f.op("udiv", f.add(f.sub(end, first), few - 1 - half), const(I64, few))
    rest = f.add(first, f.mul(count, few))
    with f.loop(first, rest, few, unroll=False) as loop:
        _row_block(f, plan, loop.index, few, place)
    if half:
        with f.if_(f.icmp("slt", rest, end)):
            _row_block(f, plan, rest, half, place)


def _blocks(f: Function, number: int, count: int, size: int, left: int = 0) -> V:
    """How many of `count` blocks of `size` rows (columns) are wanted; argument `number`, if there is one, says of how
    many rows (columns). The last is not if it has no more of them than may be `left`.
    """
    if len(f.args) <= number:
        return const(I64, count)
    some = f.intrinsic("smax", f.args[number], const(I64, 0))
    return f.intrinsic("umin", f.op("udiv", f.add(some, size - 1 - left), const(I64, size)), const(I64, count))


def _beyond(f: Function, number: int, start: int) -> AbstractContextManager[object]:
    """Where rows (columns) from `start` on are wanted, as `_blocks`."""
    return nullcontext() if len(f.args) <= number else f.if_(f.icmp("sgt", f.args[number], const(I64, start)))


def _row_block(f: Function, plan: DotPlan, row: V, mr: int, place: Place, *, exist: bool = False) -> None:
    """All panels of the `mr` rows from `row`; of a part of the tile, whether all of them `exist`."""
    acc, acc_stride, a, a_stride, b, b_stride, first, words, fresh, *part = f.args
    last = f.sub(f.sub(part[0], row), 1) if part else None
    c_row = f.gep(acc, f.mul(row, acc_stride))
    a_row = f.gep(a, f.mul(row, a_stride))
    bias = _offset_bias(f, plan, mr, a_row, a_stride, words) if b_is_offset(plan, f.module) else NULL
    column_bytes = plan.panel_columns * ELEM[plan.acc].bytes

    def call(panel: V, nv: int, masked: bool, packed: int) -> None:
        step, columns = const(I64, packed * plan.lanes * plan.word_bytes), const(I64, plan.n)
        if place == "packed":
            b_panel = f.gep(f.gep(b, f.mul(panel, b_stride)), f.mul(first, step))
        else:  # `first` is the number of columns that exist
            b_panel, step = f.gep(b, f.mul(panel, plan.panel_columns * plan.word_bytes)), b_stride
            columns = f.sub(first, f.mul(panel, plan.panel_columns))
        c = f.gep(c_row, f.mul(panel, column_bytes))
        kernel = _micro_kernel(f.module, plan, mr, nv, masked, place, part=bool(part), exist=exist or not part)
        end = (last, f.sub(part[1], f.mul(panel, plan.panel_columns))) if last is not None else ()
        f.call(kernel, VOID, (c, acc_stride, a_row, a_stride, b_panel, words, fresh, bias, step, columns, *end))

    few = plan.nv // 2 if part and mr == plan.mr else 0
    if plan.panels:
        whole = _blocks(f, 10, plan.panels, plan.panel_columns, few * plan.lanes)
        with f.loop(0, whole, unroll=False) as loop:
            call(loop.index, plan.nv, False, plan.nv)
        if few:
            some = f.icmp("sgt", part[1], f.mul(whole, plan.panel_columns))
            with f.if_(f.and_(some, f.icmp("slt", whole, plan.panels))):
                call(whole, few, False, plan.nv)
    if plan.tail_vectors:
        with _beyond(f, 10, plan.panels * plan.panel_columns):
            call(const(I64, plan.panels), plan.tail_vectors, plan.tail_columns > 0, plan.tail_vectors)


def _micro_kernel(
    module: Module, plan: DotPlan, mr: int, nv: int, masked: bool, place: Place, *, part: bool, exist: bool
) -> str:
    """Define (once) the kernel of `mr` rows and `nv` vectors; gives its name.

    That of a `part` has as its last parameters the number of the last row, which it reads in place of later ones unless
    all of them `exist`, and that of columns. With AVX-512 or SVE it writes nothing beyond them.
    """
    tail = plan.tail_columns if masked else 0
    kind = f"{plan.family}.{plan.operand}.{plan.acc}.{mr}x{nv}x{plan.lanes}"
    name = f"dot.micro.{kind}{f'.tail{tail}' if tail else ''}{'' if place == 'packed' else f'.{place}'}"
    name += (".columns" if exist else ".part") if part else ""
    if module.has(name):
        return name
    f = module.function(name, VOID, (*_PARAMS, I64, I64) if part else _PARAMS, attrs=_ATTRS)
    c, c_stride, a, a_stride, b, words, fresh, bias, step, columns, *end = f.args
    acc_t = ELEM[plan.acc].vec(plan.lanes)
    word_t, vector_bytes = word_type(plan), plan.lanes * plan.word_bytes
    if place == "packed" and not part:
        step = const(I64, nv * vector_bytes)
    lanes_exist = _existing(f, plan, nv, tail, columns, place)
    last = None if exist else end[0]
    numbers = [const(I64, i) if last is None else f.intrinsic("smin", const(I64, i), last) for i in range(mr)]
    rows = [f.gep(a, f.mul(a_stride, number)) for number in numbers]
    accumulators = mmla.count_blocks(mr, nv) if plan.family == "mmla" else mr * nv

    def multiplied(sums: list[V], word: V) -> list[V]:
        row = f.gep(b, f.mul(word, step))
        places = [f.gep(row, j * vector_bytes) for j in range(nv)]
        vectors = [
            f.load(word_t.vec(plan.lanes), at) if mask is None else f.masked_load(word_t.vec(plan.lanes), at, mask)
            for at, mask in zip(places, lanes_exist, strict=True)
        ]
        at = [f.gep(place, word, word_t) for place in rows]
        if exist and mr > _POINTERS and f.isa.is_x86:
            at = [f.gep(at[0], f.mul(a_stride, i)) for i in range(mr)]
        return _multiply_words(f, plan, sums, at, vectors)

    sums = _over_words(f, words, zero(acc_t), accumulators, multiplied)
    results = mmla.rows_of_blocks(f, sums, mr, nv) if plan.family == "mmla" else sums
    if b_is_offset(plan, module):
        for i in range(mr):
            row_bias = f.splat(f.load(I32, f.gep(bias, 4 * i)), plan.lanes)
            results[i * nv : i * nv + nv] = [f.add(r, row_bias) for r in results[i * nv : i * nv + nv]]
    masks = [const_vector(I1.vec(plan.lanes), [1] * plan.lanes)] * nv
    if tail:
        masks[-1] = const_vector(I1.vec(plan.lanes), [int(lane < tail) for lane in range(plan.lanes)])
    if not writes_parts(plan, f.isa):
        last = None
    elif part:
        masks = [first_lanes(f, plan.lanes, f.sub(end[1], j * plan.lanes)) for j in range(nv)]
    f.if_else(
        fresh,
        lambda: _store(f, results, masks, c, c_stride, last, add=False),
        lambda: _store(f, results, masks, c, c_stride, last, add=True),
    )
    f.ret()
    return name


def _over_words(f: Function, words: V, start: V, count: int, multiply: Callable[[list[V], V], list[V]]) -> list[V]:
    """So many accumulators over all words; few of them in sets, one for each of some words, added at the end."""
    sets = max(1, _LATENCY // count)
    whole = f.sub(words, f.op("urem", words, sets)) if sets > 1 else words
    with f.loop(0, whole, sets, init=[start] * (sets * count), unroll=False) as loop:
        parts = [loop.values[n * count : (n + 1) * count] for n in range(sets)]
        made = [multiply(list(part), f.add(loop.index, n)) for n, part in enumerate(parts)]
        loop.next(*[value for sums in made for value in sums])
    if sets == 1:
        return loop.results
    add = f.fadd if start.type.is_float else f.add
    sums = [functools.reduce(add, loop.results[n::count]) for n in range(count)]
    with f.loop(whole, words, init=sums, unroll=False) as loop:
        loop.next(*multiply(list(loop.values), loop.index))
    return loop.results


def _existing(f: Function, plan: DotPlan, nv: int, tail: int, columns: V, place: Place) -> list[V | None]:
    """For each vector of a word of B its lanes that exist in memory; None where all do, as they do in packed panels."""
    if place == "cut":
        return [first_lanes(f, plan.lanes, f.sub(columns, j * plan.lanes)) for j in range(nv)]
    last = const_vector(I1.vec(plan.lanes), [int(lane < tail) for lane in range(plan.lanes)])
    return [last if tail and place == "whole" and j == nv - 1 else None for j in range(nv)]


def first_lanes(f: Function, lanes: int, count: V) -> V:
    """`i1` per lane: lane < count."""
    bounded = f.intrinsic("smin", f.intrinsic("smax", count, const(I64, 0)), const(I64, lanes))
    return f.icmp("slt", iota(I32.vec(lanes)), f.splat(f.cast("trunc", bounded, I32), lanes))


def _store(f: Function, results: list[V], masks: list[V], c: V, c_stride: V, last: V | None, *, add: bool) -> None:
    """Write the accumulators, as many for a row as there are masks, to C, or add them to it; up to a `last` row."""
    nv = len(masks)
    for i in range(len(results) // nv):
        with f.if_(f.icmp("sge", last, i)) if last is not None and i else nullcontext():
            for j, mask in enumerate(masks):
                value = results[i * nv + j]
                at = f.gep(f.gep(c, f.mul(c_stride, i)), j * value.type.bytes)
                if add:
                    old = f.masked_load(value.type, at, mask)
                    value = f.fadd(old, value) if value.type.is_float else f.add(old, value)
                f.masked_store(value, at, mask)


# -- one multiplication of words -------------------------------------------------------------------


def word_type(plan: DotPlan) -> T:
    """A word as it is loaded: the operand itself, or an integer that holds several."""
    return ELEM[plan.operand] if plan.unit == 1 else I32 if plan.word_bytes == 4 else I64


def _multiply_words(f: Function, plan: DotPlan, acc: list[V], rows: list[V], vectors: list[V]) -> list[V]:
    """The accumulators with the products of a word of K: of A, loaded from addresses in `rows`, and of vectors of B."""

    def word(at: V) -> V:
        return f.load(word_type(plan), at, plan.word_bytes // plan.unit)

    if plan.family == "mmla":
        return mmla.multiply_blocks(f, plan, acc, [word(at) for at in rows], vectors)
    multiply, nv = _MULTIPLY[plan.family], len(vectors)
    for i, at in enumerate(rows):
        splat = f.splat(word(at), plan.lanes)
        for j, vector in enumerate(vectors):
            acc[i * nv + j] = multiply(f, acc[i * nv + j], splat, vector)
    return acc


def _fma(f: Function, acc: V, a: V, b: V) -> V:
    return f.fma(a, b, acc) if f.isa.has_fma else f.fadd(f.fmul(a, b), acc)


def _imul(f: Function, acc: V, a: V, b: V) -> V:
    return f.add(f.mul(a, b), acc)


def _dpbf16(f: Function, acc: V, a: V, b: V) -> V:
    """VDPBF16PS: adds two products per lane in f32, rounded to nearest, denormals as zero."""
    t = BF16.vec(2 * acc.type.lanes)
    name = f"llvm.x86.avx512bf16.dpbf16ps.{acc.type.bytes * 8}"
    return f.call(name, acc.type, (acc, f.cast("bitcast", a, t), f.cast("bitcast", b, t)))


def _pmadd(f: Function, acc: V, a: V, b: V) -> V:
    """PMADDWD: adds two int16 products per lane; exact modulo 2**32."""
    lanes = acc.type.lanes
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
    t = I16.vec(2 * lanes)
    return f.add(acc, f.call(f"llvm.x86.{name}", acc.type, (f.cast("bitcast", a, t), f.cast("bitcast", b, t))))


def _dot4(f: Function, acc: V, a: V, b: V) -> V:
    """Four int8 products per lane: VPDPBSSD, SDOT, or VPDPBUSD with B stored plus 128 (see `_offset_bias`)."""
    t = I8.vec(4 * acc.type.lanes)
    a, b = f.cast("bitcast", a, t), f.cast("bitcast", b, t)
    bits = acc.type.bytes * 8
    if f.isa.arch == "aarch64":
        return f.call("llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type, (acc, a, b))
    if f.isa.has("avxvnniint8") and acc.type.lanes <= 8:
        return f.call(f"llvm.x86.avx2.vpdpbssd.{bits}", acc.type, (acc, a, b))
    return f.call(f"llvm.x86.avx512.vpdpbusd.{bits}", acc.type, (acc, b, a))


_MULTIPLY: dict[str, Callable[[Function, V, V, V], V]] = {
    "fma": _fma,
    "imul": _imul,
    "dpbf16": _dpbf16,
    "pmadd": _pmadd,
    "dot4": _dot4,
}


# -- unsigned int8 ---------------------------------------------------------------------------------


def b_is_offset(plan: DotPlan, module: Module) -> bool:
    """Whether packed B holds its int8 elements plus 128, because the instruction takes one unsigned operand."""
    isa = module.isa
    return plan.family == "dot4" and isa.is_x86 and not (isa.has("avxvnniint8") and plan.lanes <= 8)


def _offset_bias(f: Function, plan: DotPlan, mr: int, a: V, a_stride: V, words: V) -> V:
    """Per row `-128 * sum(A row)`, which undoes the offset of B; exact, since all sums are modulo 2**32.

    Gives the address of `mr` i32 values (room for a whole vector).
    """
    bias = f.alloca(I32, max(plan.lanes, mr))
    for start in range(0, mr, plan.lanes):
        rows = min(plan.lanes, mr - start)
        at = f.gep(a, f.mul(a_stride, start))
        f.call(_row_bias(f.module, plan.lanes, rows), VOID, (f.gep(bias, 4 * start), at, a_stride, words))
    return bias


def _row_bias(module: Module, lanes: int, rows: int) -> str:
    """Define (once) the bias of at most `lanes` rows of 32-bit words; stores a whole vector. Gives its name."""
    name = f"dot.bias.{rows}x{lanes}"
    if module.has(name):
        return name
    f = module.function(name, VOID, (PTR, PTR, I64, I64), attrs=_ATTRS)
    dst, a, a_stride, words = f.args
    acc_t = I32.vec(lanes)
    ones = const(acc_t, 0x01010101)
    pointers = [f.gep(a, f.mul(a_stride, i)) for i in range(rows)]
    whole = f.and_(words, -lanes)
    with f.loop(0, whole, lanes, init=[zero(acc_t)] * rows, unroll=False) as loop:
        chunks = [f.load(acc_t, f.gep(p, loop.index, I32), 1) for p in pointers]
        loop.next(*[_dot4(f, acc, chunk, ones) for acc, chunk in zip(loop.values, chunks, strict=True)])
    left = f.splat(f.cast("trunc", f.sub(words, whole), I32), lanes)
    mask = f.icmp("slt", iota(acc_t), left)
    chunks = [f.masked_load(acc_t, f.gep(p, whole, I32), mask, 1) for p in pointers]
    sums = [_dot4(f, acc, chunk, ones) for acc, chunk in zip(loop.results, chunks, strict=True)]
    for _ in range(lanes.bit_length() - 1):  # add neighbours; halves of a vector then belong to two rows
        pairs = [(sums[i], sums[min(i + 1, len(sums) - 1)]) for i in range(0, len(sums), 2)]
        sums = [
            f.add(f.shuffle(x, y, range(0, 2 * lanes, 2)), f.shuffle(x, y, range(1, 2 * lanes, 2))) for x, y in pairs
        ]
    f.store(f.mul(sums[0], -128), dst)
    f.ret()
    return name
