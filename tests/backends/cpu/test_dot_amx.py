"""AMX products with the tile instructions done in software: layouts, tails, planes and loop bounds are those of AMX."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu import soft_amx, soft_avx512
from tests.backends.cpu.dot_harness import Case, run_case
from tilewright.backends.cpu.emit.dot import plan_dot
from tilewright.backends.llvm.features import describe, host

pytestmark = pytest.mark.skipif(not host().is_x86, reason="the packers use vectors of x86")
# Packing for AMX uses AVX512-BF16.
_SOFTEN = soft_amx.soften if host().has_zmm and host().has("avx512bf16") else soft_avx512.soften
# Relative to the sum of magnitudes; the split keeps about 16 bits of each operand.
_TYPES = {
    "bf16": (("bf16", "bf16", "f32"), "ieee", 1e-6),
    "i8": (("i8", "i8", "i32"), "ieee", 0.0),
    "f16": (("f16", "f16", "f32"), "ieee", 2e-5),
    "f32": (("f32", "f32", "f32"), "tf32", 2e-5),
}
_CASES = {
    "whole": ((32, 64, 64), Case()),
    "transposed, in pieces": ((64, 64, 128), Case(a="mn", b="k", fresh=False, split=64)),
    "ragged extents": ((16, 48, 64), Case(b="k", m_valid=11, n_valid=41, k_valid=29)),
    "one column tile": ((48, 16, 64), Case(fresh=False)),
    "less than a tile": ((5, 19, 20), Case(a="any", b="any", fresh=False)),
    "ragged shape": ((33, 70, 100), Case(a="mn", fresh=False)),
    "in place": ((32, 64, 64), Case(a="in place")),
}


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("types", _TYPES)
def test_product(types: str, case: str) -> None:
    isa = describe(host().triple, "sapphirerapids")
    dtypes, precision, tolerance = _TYPES[types]
    shape, how = _CASES[case]
    plan = plan_dot(isa, *shape, *dtypes, precision)
    assert plan.is_amx
    if how.a == "in place" and not plan.a_in_place:
        pytest.skip("a split operand is always packed")
    result, exact, size = run_case(isa, plan, how, np.random.default_rng(3), text=_SOFTEN)
    if tolerance:
        assert (np.abs(result - exact) <= tolerance * size).all()
    else:
        np.testing.assert_array_equal(result, exact.astype(np.int32))
