"""Division by a value that a row shares: one reciprocal, and the accuracy that it promises."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.harness import Compiled
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
    assert "arith.divf" in text and ": tensor<4xf32>" in next(
        line for line in text.splitlines() if "arith.divf" in line
    )
    assert "arith.mulf" in text
