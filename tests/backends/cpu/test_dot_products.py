"""Products against exact ones: every instruction family on any machine, every source order, poison around operands."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.dot_harness import Case, run_case
from tests.backends.cpu.families import FAMILIES, in_pairs
from tilewright.backends.cpu.emit.dot import DotPlan, plan_dot
from tilewright.backends.llvm.features import CpuFeatures, describe
from tilewright.base.errors import DTypeError, ShapeError

Array = np.ndarray[Any, Any]
_TYPES = {
    "f32": ("f32", "f32", "f32"), "f64": ("f64", "f64", "f64"), "f16": ("f16", "f16", "f32"),
    "bf16": ("bf16", "bf16", "f32"), "mixed": ("f16", "f32", "f32"), "i8": ("i8", "i8", "i32"),
    "i16": ("i16", "i8", "i32"), "i32": ("i32", "i32", "i32"), "i64": ("i64", "i32", "i64"),
}  # fmt: skip
_USUAL = ("f32", "f16", "bf16", "i8")
_CASES = {
    "whole": ((32, 64, 64), Case()),
    "transposed, in pieces": ((32, 64, 128), Case(a="mn", b="k", fresh=False, split=64)),
    "ragged shape": ((13, 37, 20), Case(fresh=False)),
    "ragged extents": ((32, 128, 32), Case(m_valid=11, n_valid=41, k_valid=29)),
}
_MORE_CASES = {
    "in pieces": ((64, 64, 128), Case(fresh=False, split=64)),
    "ragged shape, transposed": ((13, 37, 19), Case(a="mn", b="k", fresh=False)),
    "ragged shape of several tiles": ((33, 70, 100), Case(a="mn", fresh=False)),
    "ragged extents, transposed": ((20, 48, 32), Case(a="mn", b="k", m_valid=18, n_valid=41, k_valid=29)),
    "no unit stride": ((8, 32, 32), Case(a="any", b="any", m_valid=5, n_valid=31, k_valid=29)),
    "odd rows": ((7, 12, 24), Case(a="mn", b="k", m_valid=6, k_valid=23, fresh=False)),
    "less than a tile": ((5, 19, 20), Case(a="any", b="any", fresh=False)),
    "few columns": ((16, 2, 24), Case(b="k", fresh=False)),
    "one column tile": ((48, 16, 64), Case(fresh=False)),
    "one row": ((1, 100, 24), Case(fresh=False)),
    "nothing valid": ((8, 16, 16), Case(k_valid=0, fresh=False)),
    "past the end": ((8, 16, 16), Case(m_valid=-3, n_valid=-40, k_valid=-12, fresh=False)),
    "past the end of K": ((16, 64, 16), Case(k_valid=-48, fresh=False)),
    "past the end of K, transposed": ((16, 64, 16), Case(a="mn", b="k", k_valid=-48)),
    "past the end of K, any strides": ((16, 64, 16), Case(a="any", b="any", k_valid=-48)),
}


def _isa(family: str) -> CpuFeatures:
    return FAMILIES[family].isa


def _check(plan: DotPlan, result: Array, exact: Array, size: Array) -> None:
    if plan.acc[0] == "i":
        np.testing.assert_array_equal(result, exact.astype(result.dtype))
    else:
        bound = (plan.k * (4 if plan.planes > 1 else 1) + 2) * np.finfo(result.dtype).eps * size
        assert (np.abs(result - exact) <= bound).all()


@pytest.mark.parametrize(("family", "types", "case"), in_pairs(FAMILIES, _TYPES, _CASES))
def test_product(family: str, types: str, case: str) -> None:
    isa = _isa(family)
    shape, how = _CASES[case]
    plan = plan_dot(isa, *shape, *_TYPES[types])
    _check(plan, *run_case(isa, plan, how, np.random.default_rng(len(case))))


@pytest.mark.parametrize(("family", "types", "case"), in_pairs(FAMILIES, _USUAL, _MORE_CASES))
def test_product_at_the_edges(family: str, types: str, case: str) -> None:
    isa = _isa(family)
    shape, how = _MORE_CASES[case]
    plan = plan_dot(isa, *shape, *_TYPES[types])
    _check(plan, *run_case(isa, plan, how, np.random.default_rng(len(case))))


@pytest.mark.parametrize("types", ["f32", "f64", "i32", "bf16", "i8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_operands_in_place(family: str, types: str) -> None:
    isa = _isa(family)
    rows = 16 if family == "amx" else 13
    plan = plan_dot(isa, rows, 48, 128, *_TYPES[types])
    if plan.a_in_place:
        case = Case(a="in place", split=64, fresh=False)
        _check(plan, *run_case(isa, plan, case, np.random.default_rng(0)))
    else:
        assert plan.operand != plan.a_dtype


_IN_PLACE = {
    "whole, in pieces": ((16, 64, 32), Case(b="in place", split=16, fresh=False)),
    "narrow last vector": ((13, 37, 20), Case(a="in place", b="in place")),
    "columns that do not exist": ((32, 64, 20), Case(b="in place", m_valid=17, n_valid=13, fresh=False)),
    "no columns": ((8, 48, 16), Case(b="in place", n_valid=-3, fresh=False)),
}


@pytest.mark.parametrize(("family", "types", "case"), in_pairs(FAMILIES, ("f32", "f64", "i32"), _IN_PLACE))
def test_right_operand_in_place(family: str, types: str, case: str) -> None:
    isa = _isa(family)
    shape, how = _IN_PLACE[case]
    plan = plan_dot(isa, *shape, *_TYPES[types])
    assert plan.b_in_place
    _check(plan, *run_case(isa, plan, how, np.random.default_rng(len(case))))


@pytest.mark.parametrize("shape", [(4, 4), (12, 2), (6, 4), (1, 8), (16, 1)])
def test_any_micro_kernel_shape(shape: tuple[int, int]) -> None:
    isa = _isa("avx512")
    plan = dataclasses.replace(plan_dot(isa, 29, 150, 24, "f32", "f32", "f32"), mr=shape[0], nv=shape[1])
    _check(plan, *run_case(isa, plan, Case(fresh=False), np.random.default_rng(1)))


@pytest.mark.parametrize("family", FAMILIES)
def test_integer_wraparound(family: str) -> None:
    """Products of extreme values, whose sums exceed the accumulator."""
    isa = _isa(family)
    for types in (("i8", "i8", "i32"), ("i16", "i16", "i32")):
        plan = plan_dot(isa, 4, 16, 64, *types)

        class Extreme:
            def integers(self, low: int, high: int, shape: Any, **kwargs: Any) -> Any:
                return np.full(shape, low, kwargs.get("dtype", np.int64))

        rng: Any = Extreme()
        result, exact, _ = run_case(isa, plan, Case(), rng)
        np.testing.assert_array_equal(result, exact.astype(np.int32))


def test_plans_are_values() -> None:
    isa = _isa("avx512")
    one, two = (plan_dot(isa, 16, 32, 64, "f32", "f32", "f32") for _ in range(2))
    assert one == two and hash(one) == hash(two) and one.name == two.name
    assert one.a_bytes(64) >= 16 * 64 * 4 and one.b_bytes(64) == 32 * 64 * 4


def test_families_follow_features() -> None:
    def family(cpu: str, types: str, precision: str = "ieee", triple: str = "x86_64-unknown-linux-gnu") -> str:
        return plan_dot(describe(triple, cpu), 64, 64, 64, *_TYPES[types], precision).family

    assert family("sapphirerapids", "bf16") == "amx-bf16"
    assert family("sapphirerapids", "i8") == "amx-int8"
    assert family("sapphirerapids", "f16") == "amx-split"
    assert family("sapphirerapids", "f32") == "fma"
    assert family("sapphirerapids", "f32", "tf32x3") == "fma"
    assert family("sapphirerapids", "f32", "tf32") == "amx-split"
    assert family("znver5", "bf16") == "dpbf16"
    assert family("znver5", "f32", "tf32") == "fma"
    assert family("cooperlake", "bf16") == "fma"
    assert family("znver5", "i8") == "dot4"
    assert family("skylake-avx512", "i8") == "pmadd"
    assert family("haswell", "bf16") == "fma"
    assert family("neoverse-n1", "i8", triple="aarch64-unknown-linux-gnu") == "dot4"
    assert family("cortex-a72", "i8", triple="aarch64-unknown-linux-gnu") == "imul"
    for types in ("bf16", "i8"):
        assert family("neoverse-v1", types, triple="aarch64-unknown-linux-gnu") == "mmla"
    assert family("neoverse-n1", "bf16", triple="aarch64-unknown-linux-gnu") == "fma"


def test_refusals() -> None:
    isa = _isa("avx512")
    with pytest.raises(ShapeError, match="positive"):
        plan_dot(isa, 0, 16, 16, "f32", "f32", "f32")
    with pytest.raises(DTypeError, match="mix"):
        plan_dot(isa, 16, 16, 16, "f32", "i32", "f32")
    with pytest.raises(DTypeError, match="no operands of type i1"):
        plan_dot(isa, 16, 16, 16, "i1", "i1", "i32")
    with pytest.raises(DTypeError, match="precision"):
        plan_dot(isa, 16, 16, 16, "f32", "f32", "f32", "fast")
