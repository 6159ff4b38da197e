"""Products whose masked elements lie in poison: NaN and infinities behind every mask, which must never be multiplied.

Each kernel runs for every instruction family and for tiles from 8 up: operands in place, packed, transposed, strided,
kept between programs, joined over iterations, computed in scratch, converted; iterations that are masked off altogether.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES, in_pairs
from tests.backends.cpu.harness import Compiled
from tilewright.base.dtypes import PointerType, dtype
from tilewright.base.minifloat import from_memory, to_memory
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ops.values import constexpr

Array = np.ndarray[Any, Any]
_TYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "i8": "int8"}


def _matrix(
    rng: np.random.Generator, shape: tuple[int, int], name: str, rows_first: bool = True
) -> tuple[Array, Array]:
    """A strided matrix of small integers in the middle of poison, in memory form, and its numbers."""
    values = rng.integers(-4, 5, shape).astype(np.int8 if name == "i8" else np.float32)
    stored = to_memory(values, dtype(_TYPES[name])) if name != "i8" else values
    room = (shape[0] + 130, shape[1] + 130)
    if name == "i8":
        around = np.full(room, 127, np.int8)
    else:
        odd = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float32), room)
        around = np.asarray(to_memory(odd, dtype(_TYPES[name])))
    around = around if rows_first else around.T.copy().T
    inside = around[1 : 1 + shape[0], 2 : 2 + shape[1]]
    inside[...] = stored
    return inside, values.astype(np.float64)


def _strides(matrix: Array) -> tuple[int, int]:
    rows, columns = (stride // matrix.itemsize for stride in matrix.strides)
    return rows, columns


def _compile(kernel: Any, family: str, **parameters: Any) -> Compiled:
    """The kernel for a family; a parameter is the name of an element (a pointer), "i32", or a number (a constexpr)."""
    specs = [
        ParamSpec(name, constexpr(kind))
        if isinstance(kind, int)
        else ParamSpec(name, dtype("int32") if kind == "i32" else PointerType(dtype(kind)))
        for name, kind in parameters.items()
    ]
    module = build_module(kernel, specs, Options(), Target("cpu", "generic")).module
    return Compiled(module, isa=FAMILIES[family].isa)


@tilewright.jit
def _product(a, b, c, m, n, k, left, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), c.dtype.element_ty)
    for start in range(0, k, BK):
        d = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * am + d[None, :] * ak, mask=(i[:, None] < m) & (d[None, :] < left), other=0)
        y = tl.load(b + d[:, None] * bk + j[None, :] * bn, mask=(d[:, None] < left) & (j[None, :] < n), other=0)
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))


_TILES = {(8, 8, 8): "rows", (16, 32, 16): "transposed", (32, 16, 64): "rows", (64, 64, 32): "any"}
_THIN = {(1, 32, 16): "rows", (3, 45, 7): "rows", (1, 13, 24): "linear", (4, 40, 6): "linear", (2, 9, 8): "any"}


@pytest.mark.parametrize(("family", "name", "tile"), in_pairs(FAMILIES, _TYPES, [*_TILES, *_THIN]))
def test_masked_operands(family: str, name: str, tile: tuple[int, int, int]) -> None:
    if tile in _THIN and name == "i8":
        pytest.skip("only floats are multiplied where they lie")
    order, acc = (_TILES | _THIN)[tile], "int32" if name == "i8" else "fp32"
    pointer = _TYPES[name]
    known: dict[str, Any] = {
        "rows": {"am": "i32", "ak": 1, "bk": "i32", "bn": 1},
        "transposed": {"am": 1, "ak": "i32", "bk": 1, "bn": "i32"},
        "linear": {"am": "i32", "ak": 1, "bk": 1, "bn": "i32"},
        "any": dict.fromkeys(("am", "ak", "bk", "bn"), "i32"),
    }[order]
    blocks = dict(zip(("BM", "BN", "BK"), tile, strict=True))
    sizes = dict.fromkeys(("m", "n", "k", "left"), "i32")
    compiled = _compile(_product, family, a=pointer, b=pointer, c=acc, **sizes, **known, **blocks)
    rng = np.random.default_rng(1)
    m, n = tile[0] + tile[0] // 2 + 1, tile[1] + 3
    for left in (1, tile[2], 2 * tile[2] + 3):
        a, exact_a = _matrix(rng, (m, left), name, order != "transposed")
        b, exact_b = _matrix(rng, (left, n), name, order not in ("transposed", "linear"))
        strides = dict(zip(("am", "ak", "bk", "bn"), (*_strides(a), *_strides(b)), strict=True))
        for k in (left, 4 * tile[2], 6 * tile[2]):
            c = np.full((m, n), 7, np.int32 if name == "i8" else np.float32)
            given = [stride for axis, stride in strides.items() if known[axis] == "i32"]
            compiled((-(-m // tile[0]), -(-n // tile[1])), a, b, c, m, n, k, left, *given)
            np.testing.assert_array_equal(c, exact_a[:, :k] @ exact_b[:k])


@tilewright.jit
def _weighted(p, v, o, n, left, stride, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    d = tl.arange(0, D)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, n, N):
        inside = (start + j) < left
        w = tl.where(inside[None, :], tl.load(p + i[:, None] * N + j[None, :]), 0.0)
        x = tl.load(v + (start + j)[:, None] * stride + d[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(w.to(x.dtype), x, acc)
    tl.store(o + i[:, None] * D + d[None, :], acc)


@pytest.mark.parametrize(("family", "name", "block"), in_pairs(FAMILIES, ["f16", "bf16", "f32"], [8, 16, 32]))
def test_masked_rows_under_computed_weights(family: str, name: str, block: int) -> None:
    """Attention's second product: rows past the end, and whole iterations of them."""
    pointer = _TYPES[name]
    sizes = dict.fromkeys(("n", "left", "stride"), "i32")
    compiled = _compile(_weighted, family, p=pointer, v=pointer, o="fp32", **sizes, D=32, M=16, N=block)
    rng = np.random.default_rng(2)
    for left in (1, 4, block, block + 3):
        v, exact = _matrix(rng, (left, 32), name)
        p = np.asarray(to_memory(np.ones((16, block), np.float32), dtype(pointer)))
        o = np.full((16, 32), 7, np.float32)
        for n in (4 * block, 6 * block):
            compiled((1,), p, v, o, n, left, _strides(v)[0])
            np.testing.assert_array_equal(o, np.tile(exact.sum(axis=0), (16, 1)))


@tilewright.jit
def _guarded(a, b, c, k, left, on, am, bk, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, k, B):
        d = start + i
        x = tl.load(a + i[:, None] * am + d[None, :], mask=(d[None, :] < left) & (on > 0), other=0.0)
        y = tl.load(b + d[:, None] * bk + i[None, :], mask=(d[:, None] < left) & (start < on), other=0.0)
        acc += tl.dot(x.to(tl.float16), y.to(tl.float16))
    tl.store(c + i[:, None] * B + i[None, :], acc)


@pytest.mark.parametrize("name", ["f16", "f32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_conditions_and_casts(family: str, name: str) -> None:
    """Masks with scalar conditions, and (f32) operands that are converted between load and product."""
    pointer = _TYPES[name]
    sizes = dict.fromkeys(("k", "left", "on", "am", "bk"), "i32")
    compiled = _compile(_guarded, family, a=pointer, b=pointer, c="fp32", **sizes, B=16)
    rng = np.random.default_rng(3)
    a, exact_a = _matrix(rng, (16, 37), name)
    b, exact_b = _matrix(rng, (37, 16), name)
    for on in (0, 1, 32, 100):
        c = np.full((16, 16), 7, np.float32)
        compiled((1,), a, b, c, 96, 37, on, _strides(a)[0], _strides(b)[0])
        kept = min(37, -(-on // 16) * 16)
        np.testing.assert_array_equal(c, exact_a[:, :kept] @ exact_b[:kept])


def test_poison_is_poison() -> None:
    matrix, _ = _matrix(np.random.default_rng(0), (3, 4), "bf16")
    assert matrix.base is not None
    around = from_memory(np.asarray(matrix.base), dtype("bf16"))
    assert (~np.isfinite(around)).sum() == around.size - matrix.size
