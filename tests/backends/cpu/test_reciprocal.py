"""Division by a value that a row shares: one reciprocal, and the accuracy that it promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.frontend.helpers import jit
from tests.language.kernel_runner import run, running_on
from tests.sample_kernels import max_ulp
from tilewright.backends.cpu.plan.reciprocal import divide_rows_once
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import scalar_type
from tilewright.ops.text import parse_module, print_module

ROW = """module { tt.func public @k(%x: !tt.ptr<f32>, %o: !tt.ptr<f32>, %s: f32) {
  %r = tt.make_range {start = 0 : i32, end = 256 : i32} : tensor<256xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
  %xp = tt.addptr %xs, %r : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
  %os = tt.splat %o : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
  %op = tt.addptr %os, %r : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
  %v = tt.load %xp : tensor<256x!tt.ptr<f32>>
  %w = tt.splat %s : f32 -> tensor<256xf32>
  %q = DIVIDE %v, %w : tensor<256xf32>
  tt.store %op, %q : tensor<256x!tt.ptr<f32>>
  tt.return } }"""


def quotient(op: str, x: np.ndarray, divisor: float) -> np.ndarray:
    out = np.zeros_like(x)
    Compiled(ROW.replace("DIVIDE", op))((1,), x, out, divisor)
    return out


@pytest.mark.parametrize("divisor", [3.0, -7.5, 1e-30, 3e38, 0.1])
def test_a_shared_divisor_costs_at_most_two_ulp(divisor: float) -> None:
    x = np.random.default_rng(0).standard_normal(256).astype(np.float32)
    want = x.astype(np.float64) / np.float64(np.float32(divisor))
    assert max_ulp(quotient("arith.divf", x, divisor), want.astype(np.float32), scalar_type("f32")) <= 2


@pytest.mark.parametrize("divisor", [1e-39, -1e-39, 1e-45, -1e-45, 1.1e-38, 2.0**126, 1.7e38, -3.4e38])
def test_divisors_whose_reciprocal_is_no_normal_number(divisor: float) -> None:
    rng = np.random.default_rng(2)
    near = rng.standard_normal(256) * 10.0 ** rng.integers(-3, 4, 256) * abs(divisor)
    with np.errstate(over="ignore"):
        x = np.where(np.arange(256) % 5 == 0, 0.0, near).astype(np.float32)
    for values in (x, (rng.standard_normal(256) * 10.0 ** rng.uniform(-44, 38, 256)).astype(np.float32)):
        with np.errstate(all="ignore"):
            want = (values.astype(np.float64) / np.float64(np.float32(divisor))).astype(np.float32)
        got = quotient("arith.divf", values, divisor)
        finite = np.isfinite(want)
        assert np.array_equal(got[~finite], want[~finite])
        assert max_ulp(got[finite], want[finite], scalar_type("f32")) <= 2
        assert np.array_equal(np.signbit(got), np.signbit(want))


@jit
def shares(x, out, KIND: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, v / tl.sum(v.to(KIND), 1)[:, None])


@jit
def share(x, out, KIND: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    for row in range(M):
        at = row * N + tl.arange(0, N)
        v = tl.load(x + at).to(KIND)
        tl.store(out + at, v / tl.sum(v, 0))


@pytest.mark.parametrize("kernel", [shares, share])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_rows_of_every_size(kernel: Any, kind: Any) -> None:
    rng = np.random.default_rng(3)
    least, most = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
    scales = [0.0, float(least), float(least) * 100, float(np.finfo(kind).tiny), 1.0, float(most) / 128]
    x = np.stack([rng.integers(0, 3, 64) * np.float64(scale) for scale in scales]).astype(kind)
    out = np.zeros(x.shape, np.float64 if kind is np.float64 else np.float32)
    with running_on("cpu"):
        run(kernel, x, out, KIND=tl.float64 if kind is np.float64 else tl.float32, M=len(scales), N=64)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        want = wide / wide.sum(1, keepdims=True)
    assert np.isnan(out[0]).all()
    np.testing.assert_allclose(out[1:], want[1:], rtol=1e-6)


def test_the_precise_division_stays_exact() -> None:
    x = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    assert np.array_equal(quotient("tt.precise_divf", x, 3.0), x / np.float32(3.0))


def test_zeros_infinities_and_nan_divide_as_they_should() -> None:
    x = np.resize(np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32), 256)
    with np.errstate(all="ignore"):
        for divisor in (0.0, -0.0, np.inf, np.nan):
            want = x / np.float32(divisor)
            assert np.array_equal(quotient("arith.divf", x, divisor), want, equal_nan=True)


def test_the_reciprocal_of_a_column_is_made_before_it_is_repeated() -> None:
    module = parse_module("""module { tt.func public @k(%a: tensor<4x8xf32>, %s: tensor<4xf32>) -> tensor<4x8xf32> {
      %e = tt.expand_dims %s {axis = 1 : i32} : tensor<4xf32> -> tensor<4x1xf32>
      %b = tt.broadcast %e : tensor<4x1xf32> -> tensor<4x8xf32>
      %q = arith.divf %a, %b : tensor<4x8xf32>
      tt.return %q : tensor<4x8xf32> } }""")
    divide_rows_once(next(iter(module.ops)), Decisions())  # type: ignore[arg-type]
    module.verify()
    text = print_module(module, locations=False)
    assert "arith.divf" in text and all(": tensor<4xf32>" in line for line in text.splitlines() if "arith.divf" in line)
    assert "cpu.divf_by_row" in text
