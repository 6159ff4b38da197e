"""Runs one plan on numpy arrays: packs (or not) both operands in two K pieces, multiplies in two K pieces.

What lies around the valid extents of the operands in memory is poison: NaN, or the largest integer.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.backends.cpu.families import load_for
from tilewright.backends.cpu.emit.dot import DotPlan, amx, dot, dot_in_place, pack
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I64, PTR, VOID

_STORAGE = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


def to_bf16(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bit patterns of float32 values rounded to bfloat16."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def value(x: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """The numbers that stored elements stand for."""
    return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else x


def random(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray[Any, Any]:
    """Random stored elements: normal floats, integers of the whole range."""
    if dtype in ("f64", "f32", "f16"):
        return rng.standard_normal(shape).astype(_STORAGE[dtype])
    if dtype == "bf16":
        return to_bf16(rng.standard_normal(shape))
    info = np.iinfo(_STORAGE[dtype])
    return rng.integers(info.min, info.max, shape, dtype=_STORAGE[dtype], endpoint=True)


def aligned(size: int, fill: int = 0xAB) -> np.ndarray[Any, Any]:
    """Bytes at a 64-byte boundary, full of garbage."""
    raw = np.full(size + 64, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def poisoned(values: np.ndarray[Any, Any], dtype: str, spread: int = 1) -> np.ndarray[Any, Any]:
    """A view of `values` in the middle of poison, `spread` elements apart along the last axis."""
    poison: Any = 0x7FC0 if dtype == "bf16" else np.nan if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    around = np.full((values.shape[0] + 96, values.shape[1] * spread + 96), poison, values.dtype)
    inside = around[48 : 48 + values.shape[0], 48 : 48 + values.shape[1] * spread : spread]
    inside[...] = values
    return inside


@dataclass(frozen=True)
class Case:
    """How operands are given: A and B orders (or `"in place"`), valid extents, K split, old accumulator kept."""

    a: str = "k"
    b: str = "mn"
    m_valid: int | None = None
    n_valid: int | None = None
    k_valid: int | None = None
    split: int = 0
    fresh: bool = True

    def extents(self, plan: DotPlan) -> tuple[int, int, int]:
        """Valid M, N and K; 0 or less for none."""
        whole = ((self.m_valid, plan.m), (self.n_valid, plan.n), (self.k_valid, plan.k))
        m, n, k = (extent if valid is None else valid for valid, extent in whole)
        return m, n, k


def emit_case(module: Module, plan: DotPlan, case: Case) -> Function:
    """The exported function `run(acc, a, b, packed_a, packed_b, a_m, a_k, b_k, b_n, strides)`."""
    f = module.function("run", VOID, (*[PTR] * 5, *[I64] * 4), linkage="")
    acc, a, b, packed_a, packed_b, a_m, a_k, b_k, b_n = f.args
    m, n, k = case.extents(plan)
    pieces = [(0, plan.k)] if not case.split else [(0, case.split), (case.split, plan.k)]
    row, panel = plan.a_row_bytes(plan.k), plan.b_panel_bytes(plan.k)
    a_plane, b_plane = plan.a_plane_bytes(plan.k), plan.b_plane_bytes(plan.k)
    acc_stride = plan.acc_columns * (8 if plan.acc in ("f64", "i64") else 4)
    if plan.is_amx:
        amx.configure(f)
    for lo, hi in pieces:
        first, words = lo // plan.unit, plan.steps(hi - lo)
        if case.a != "in place":
            src = f.gep(a, f.mul(a_k, lo))
            strides, valid = (a_m, a_k), (m, k - lo)
            pack(f, plan, "a", case.a, packed_a, row, src, strides, valid, words, first=first, plane_bytes=a_plane)
        if case.b != "in place":
            src, strides, valid = f.gep(b, f.mul(b_k, lo)), (b_n, b_k), (n, k - lo)
            pack(f, plan, "b", case.b, packed_b, panel, src, strides, valid, words, first=first, plane_bytes=b_plane)
    for lo, hi in pieces:
        first, words = lo // plan.unit, plan.steps(hi - lo)
        fresh = case.fresh and lo == 0
        left, left_stride = (a, a_m) if case.a == "in place" else (packed_a, row)
        left = f.gep(left, first * plan.word_bytes)
        if case.b == "in place":
            right, cut = f.gep(b, f.mul(b_k, lo)), case.n_valid is not None
            dot_in_place(f, plan, acc, acc_stride, left, left_stride, right, b_k, n, words, fresh, cut=cut)
            continue
        dot(
            f, plan, acc, acc_stride, left, left_stride, packed_b, panel, words, fresh,
            first=first, a_plane_bytes=a_plane, b_plane_bytes=b_plane,
        )  # fmt: skip
    if plan.is_amx:
        amx.release(f)
    f.ret()
    return f


def run_case(
    isa: CpuFeatures,
    plan: DotPlan,
    case: Case,
    rng: np.random.Generator,
    operands: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Run the case on stored operands A [M, K] and B [K, N] in memory of the orders that it names, random if not given.

    Returns:
        (result, exact product in float64 or int64 plus the old accumulator, sum of magnitudes of the products)
    """
    module = Module(isa)
    emit_case(module, plan, case)
    library = load_for(isa, module.render(), ["run"])
    m, n, k = (max(extent, 0) for extent in case.extents(plan))
    a, b = operands or (random(rng, (m, k), plan.a_dtype), random(rng, (k, n), plan.b_dtype))
    # "any" has no unit stride at all.
    a_mk = poisoned(a.T, plan.a_dtype).T if case.a == "mn" else poisoned(a, plan.a_dtype, 2 if case.a == "any" else 1)
    b_kn = poisoned(b.T, plan.b_dtype).T if case.b == "k" else poisoned(b, plan.b_dtype, 3 if case.b == "any" else 1)
    acc_t = {"f64": np.float64, "f32": np.float32, "i32": np.int32, "i64": np.int64}[plan.acc]
    acc = aligned(plan.acc_bytes + 64).view(acc_t)
    old = rng.integers(-100, 100, (plan.acc_rows, plan.acc_columns)).astype(acc_t)
    count = plan.acc_rows * plan.acc_columns
    acc[:count] = old.reshape(-1)
    guard = acc[count:].copy()
    packed = [aligned(plan.a_bytes(plan.k) + 1024), aligned(plan.b_bytes(plan.k) + 1024)]
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 9)(library.address("run"))
    call(
        acc.ctypes.data, a_mk.ctypes.data, b_kn.ctypes.data, *(p.ctypes.data + 512 for p in packed),
        *a_mk.strides, *b_kn.strides,
    )  # fmt: skip
    assert (acc[count:].view(np.uint8) == guard.view(np.uint8)).all(), "wrote past the accumulator"
    for p in packed:
        assert (p[:512] == 0xAB).all() and (p[-512:] == 0xAB).all(), "wrote outside of a packed operand"
    wide: Any = np.int64 if plan.acc[0] == "i" else np.float64
    left, right = value(a_mk, plan.a_dtype).astype(wide), value(b_kn, plan.b_dtype).astype(wide)
    start = old[: plan.m, : plan.n].astype(wide) * (not case.fresh)
    exact = start.copy()
    size = np.abs(start)
    with np.errstate(invalid="ignore"):
        exact[:m, :n] += left @ right
        size[:m, :n] += np.abs(left) @ np.abs(right)
    result = acc[:count].reshape(plan.acc_rows, plan.acc_columns)[: plan.m, : plan.n]
    return result, exact, size
