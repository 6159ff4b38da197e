"""A whole matrix product the way a lowering emits it: one function over a range of programs, B packed once per column
block for all of K, the K loop run in pieces, packed pieces addressed inside the larger buffers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.backends.cpu.dot_harness import aligned, random, value
from tests.backends.cpu.families import FAMILIES, in_pairs, load_for
from tilewright.backends.cpu.emit.dot import amx, dot, pack, plan_dot
from tilewright.backends.cpu.plan.dot import ELEM
from tilewright.backends.llvm.module import Module
from tilewright.backends.llvm.types import I64, PTR, VOID, const

_GROUP = 2


def _emit(module: Module, shape: tuple[int, int, int], tile: tuple[int, int, int], types: tuple[str, str, str]) -> int:
    """Define `k(lo, hi, args, arena)`; gives the arena size. Extents need not be multiples of the tile."""
    m, n, k = shape
    bm, bn, bk = tile
    plan = plan_dot(module.isa, bm, bn, bk, *types)
    a_size, b_size, c_size = (ELEM[t].bytes for t in (types[0], types[1], plan.acc))
    f = module.function("k", VOID, (I64, I64, PTR, PTR), linkage="")
    lo, hi, args, arena = f.args
    a, b, c = (f.load(PTR, f.gep(args, 8 * i)) for i in range(3))
    steps = -(-k // bk)
    packed_b = arena
    packed_a = f.gep(packed_b, -(-plan.b_bytes(steps * bk) // 64) * 64)
    acc = f.gep(packed_a, -(-plan.a_bytes(bk) // 64) * 64)
    panel, row, acc_stride = plan.b_panel_bytes(steps * bk), plan.a_row_bytes(bk), plan.acc_columns * c_size
    a_plane, b_plane = plan.a_plane_bytes(bk), plan.b_plane_bytes(steps * bk)
    grid_m, grid_n = -(-m // bm), -(-n // bn)
    if plan.is_amx:
        amx.configure(f)
    with f.loop(lo, hi, init=[const(I64, -1)]) as programs:
        group, inside = (f.op(op, programs.index, const(I64, _GROUP * grid_n)) for op in ("udiv", "urem"))
        first = f.mul(group, _GROUP)
        height = f.intrinsic("smin", f.sub(const(I64, grid_m), first), const(I64, _GROUP))
        i0 = f.mul(f.add(first, f.op("urem", inside, height)), bm)
        column = f.op("udiv", inside, height)
        j0 = f.mul(column, bn)
        columns = f.intrinsic("smin", f.sub(const(I64, n), j0), const(I64, bn))
        rows = f.intrinsic("smin", f.sub(const(I64, m), i0), const(I64, bm))
        with f.if_(f.icmp("ne", column, programs.values[0])):
            src = f.gep(b, f.mul(j0, b_size))
            strides, valid = (b_size, n * b_size), (columns, k)
            pack(
                f, plan, "b", "mn", packed_b, panel, src, strides, valid, plan.steps(steps * bk), plane_bytes=b_plane
            )  # fmt: skip
        with f.loop(0, steps * bk, bk) as k_loop:
            k0 = k_loop.index
            src = f.gep(f.gep(a, f.mul(i0, k * a_size)), f.mul(k0, a_size))
            strides, valid = (k * a_size, a_size), (rows, f.sub(k, k0))
            pack(f, plan, "a", "k", packed_a, row, src, strides, valid, plan.steps(bk), plane_bytes=a_plane)
            dot(
                f, plan, acc, acc_stride, packed_a, row, packed_b, panel, plan.steps(bk), f.icmp("eq", k0, 0),
                first=f.op("udiv", k0, const(I64, plan.unit)), a_plane_bytes=a_plane, b_plane_bytes=b_plane,
            )  # fmt: skip
        with f.loop(0, rows) as r, f.loop(0, columns) as s:
            v = f.load(ELEM[plan.acc], f.gep(f.gep(acc, f.mul(r.index, acc_stride)), f.mul(s.index, c_size)))
            to = f.gep(c, f.mul(f.add(f.mul(f.add(i0, r.index), n), f.add(j0, s.index)), c_size))
            f.store(v, to)
        programs.next(column)
    if plan.is_amx:
        amx.release(f)
    f.ret()
    return plan.b_bytes(steps * bk) + plan.a_bytes(bk) + plan.acc_bytes + 256


_TYPES = [("f32", "f32", "f32"), ("bf16", "bf16", "f32"), ("f16", "f16", "f32"), ("i8", "i8", "i32")]


@pytest.mark.parametrize(("family", "types", "shape"), in_pairs(FAMILIES, _TYPES, [(128, 96, 192), (100, 75, 150)]))
def test_cached_panels(family: str, types: tuple[str, str, str], shape: tuple[int, int, int]) -> None:
    isa = FAMILIES[family].isa
    module = Module(isa)
    size = _emit(module, shape, (32, 32, 64), types)
    kernel = load_for(isa, module.render(), ["k"])
    m, n, k = shape
    rng = np.random.default_rng(5)
    a, b = random(rng, (m, k), types[0]), random(rng, (k, n), types[1])
    c = np.zeros((m, n), np.int32 if types[2] == "i32" else np.float32)
    args = np.array([a.ctypes.data, b.ctypes.data, c.ctypes.data], np.int64)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(kernel.address("k"))
    grid = -(-m // 32) * -(-n // 32)
    arena = aligned(size)
    for lo, hi in ((0, 3), (3, grid)):  # two ranges: the cache must not outlive a call
        arena[:] = 0xAB
        run(lo, hi, args.ctypes.data, arena.ctypes.data)
    exact = value(a, types[0]).astype(np.float64) @ value(b, types[1]).astype(np.float64)
    size_of = np.abs(value(a, types[0]).astype(np.float64)) @ np.abs(value(b, types[1]).astype(np.float64))
    tolerance = 0 if types[2] == "i32" else k * np.finfo(np.float32).eps
    assert (np.abs(c - exact) <= tolerance * size_of).all()
