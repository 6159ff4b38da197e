"""`tl.dot_scaled` against the formats' definitions in float64, and products with several batch dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import Held, build, run
from tilewright.base import dtypes
from tilewright.base.errors import CompilationError
from tilewright.base.minifloat import from_memory

pytestmark = pytest.mark.usefixtures("backend")

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FLOAT8 = {"e4m3": dtypes.float8e4nv, "e5m2": dtypes.float8e5}
M, N, K = 16, 32, 64


def scaled_kernel(
    a, sa, b, sb, out, FA: tl.constexpr, FB: tl.constexpr, DA: tl.constexpr, DB: tl.constexpr, G: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    m, n, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // G)
    ka, kb = tl.arange(0, K // DA), tl.arange(0, K // DB)
    x, y = tl.load(a + m[:, None] * (K // DA) + ka[None, :]), tl.load(b + kb[:, None] * N + n[None, :])
    s, t = tl.load(sa + m[:, None] * (K // G) + g[None, :]), tl.load(sb + n[:, None] * (K // G) + g[None, :])
    acc = tl.full((M, N), 1.0, tl.float32)
    tl.store(out + m[:, None] * N + n[None, :], tl.dot_scaled(x, s, FA, y, t, FB, acc))


def operand(rng: Any, format_: str, rows: int) -> tuple[Any, Any]:
    """Bytes [rows, K] (or [rows, K / 2]) and the values that they stand for."""
    if format_ == "e2m1":
        packed = rng.integers(0, 256, (rows, K // 2)).astype(np.uint8)
        return packed, np.stack([E2M1[packed & 15], E2M1[packed >> 4]], -1).reshape(rows, K)
    codes = rng.integers(0, 0x48, (rows, K)).astype(np.uint8) | rng.integers(0, 2, (rows, K)).astype(np.uint8) << 7
    return codes, from_memory(codes, FLOAT8[format_]).astype(np.float64)


@pytest.mark.parametrize(("left", "right"), [("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e5m2", "e4m3"), ("e2m1", "e5m2")])
@pytest.mark.parametrize("group", [16, 32])
def test_products_of_narrow_floats(left: str, right: str, group: int) -> None:
    rng = np.random.default_rng(0)
    (a, a_values), (b, b_values) = operand(rng, left, M), operand(rng, right, N)
    sa, sb = (rng.integers(120, 134, (rows, K // group)).astype(np.uint8) for rows in (M, N))
    scaled = [v * np.repeat(2.0 ** (s.astype(float) - 127), group, 1) for v, s in ((a_values, sa), (b_values, sb))]
    out = np.zeros((M, N), np.float32)
    packs = {"DA": 1 + (left == "e2m1"), "DB": 1 + (right == "e2m1")}
    columns = np.ascontiguousarray(b.T)
    run(scaled_kernel, a, sa, columns, sb, out, FA=left, FB=right, **packs, G=group, M=M, N=N, K=K)
    want = 1 + scaled[0] @ scaled[1].T
    bound = 1 + np.abs(scaled[0]) @ np.abs(scaled[1]).T
    assert np.all(np.abs(out - want) <= 1e-6 * bound)


def test_a_scale_of_255_is_nan_and_one_of_0_is_not_zero() -> None:
    a, b = np.full((M, K // 2), 0x22, np.uint8), np.full((K // 2, N), 0x22, np.uint8)  # ones
    sa, sb = np.full((M, K // 32), 127, np.uint8), np.full((N, K // 32), 127, np.uint8)
    sa[3, 0], sa[5], sb[:] = 255, 0, 150
    out = np.zeros((M, N), np.float32)
    run(scaled_kernel, a, sa, b, sb, out, FA="e2m1", FB="e2m1", DA=2, DB=2, G=32, M=M, N=N, K=K)
    assert np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, 0)).all()
    assert (out[0] == 1 + 64 * 2.0**23).all() and (out[5] == np.float32(1 + 64 * 2.0**-104)).all()


def wide_kernel(a, b, out, FMT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot_scaled(x, None, FMT, y, None, FMT))


@pytest.mark.parametrize("format_", ["bf16", "fp16"])
def test_scales_may_be_absent(format_: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (Held(rng.integers(-8, 8, s).astype(np.float32), dtypes.dtype(format_)) for s in ((M, K), (K, N)))
    out = np.zeros((M, N), np.float32)
    run(wide_kernel, a, b, out, FMT=format_, M=M, N=N, K=K)
    np.testing.assert_array_equal(out, a.values.astype(np.float32) @ b.values.astype(np.float32))


def packed_along_m(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M // 2), tl.arange(0, N // 2), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * (N // 2) + n[None, :])
    product = tl.dot_scaled(x, None, "e2m1", y, None, "e2m1", lhs_k_pack=False, rhs_k_pack=False)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], product)


def test_pairs_may_lie_along_the_outer_dimension() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (M // 2, K)).astype(np.uint8), rng.integers(0, 256, (K, N // 2)).astype(np.uint8)
    rows = np.stack([E2M1[a & 15], E2M1[a >> 4]], 1).reshape(M, K)
    columns = np.stack([E2M1[b & 15], E2M1[b >> 4]], 2).reshape(K, N)
    out = np.zeros((M, N), np.float32)
    run(packed_along_m, a, b, out, M=M, N=N, K=K)
    np.testing.assert_array_equal(out, rows @ columns)


def four_dimensions(a, b, out, acc: tl.constexpr):
    outer = tl.arange(0, 2)[:, None, None, None] * 512 + tl.arange(0, 2)[None, :, None, None] * 256
    at = outer + tl.arange(0, 16)[None, None, :, None] * 16 + tl.arange(0, 16)[None, None, None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    start = tl.full((2, 2, 16, 16), 3.0, tl.float32) if acc else None
    tl.store(out + at, tl.dot(x, y, start, input_precision="ieee"))


@pytest.mark.parametrize("acc", [False, True])
def test_several_batch_dimensions(acc: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((2, 2, 16, 16)).astype(np.float32) for _ in range(2))
    out = np.zeros_like(a)
    run(four_dimensions, a, b, out, acc=acc)
    np.testing.assert_allclose(out, a @ b + 3 * acc, rtol=1e-5, atol=1e-5)


def bad(a, LF: tl.constexpr, RF: tl.constexpr, G: tl.constexpr, H: tl.constexpr, OUT: tl.constexpr):
    x, y = tl.zeros((16, 64), tl.uint8), tl.zeros((64, 16), tl.uint8)
    tl.dot_scaled(x, tl.zeros((16, G), tl.uint8), LF, y, tl.zeros((16, H), tl.uint8), RF, out_dtype=OUT)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("e9m9", "e4m3", 2, 2, tl.float32), "lhs_format 'e9m9'"),
        (("e4m3", "bf16", 2, 2, tl.float32), "rhs of format bf16 must have elements of type bf16 or uint16, got uint8"),
        (("e4m3", "e4m3", 2, 4, tl.float32), "Operands must have the same scale factor; (lhs: 32 vs rhs: 16)"),
        (("e4m3", "e4m3", 1, 2, tl.float32), "lhs_scale has shape [16, 1] where [16, 2] (or / 16) is needed"),
        (("e4m3", "e4m3", 2, 2, tl.float16), "out_dtype of tl.dot_scaled is float32 only"),
    ],
)
def test_mistakes(values: tuple[Any, ...], message: str) -> None:
    names = ("LF", "RF", "G", "H", "OUT")
    with pytest.raises(CompilationError) as error:
        build(bad, np.zeros(8, np.float32), **dict(zip(names, values, strict=True)))
    assert message in str(error.value)
