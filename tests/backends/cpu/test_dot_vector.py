"""Products by vector instructions against exact ones: every family that this machine can run, every source order."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu import soft_avx512
from tests.backends.cpu.dot_harness import Case, run_case
from tilewright.backends.cpu.emit.dot import DotPlan, plan_dot
from tilewright.backends.llvm.features import CpuFeatures, describe, host
from tilewright.base.errors import DTypeError, InternalError, ShapeError

_TYPES = {
    "f32": ("f32", "f32", "f32"), "f64": ("f64", "f64", "f64"), "f16": ("f16", "f16", "f32"),
    "bf16": ("bf16", "bf16", "f32"), "mixed": ("f16", "f32", "f32"), "i8": ("i8", "i8", "i32"),
    "i16": ("i16", "i8", "i32"), "i32": ("i32", "i32", "i32"), "i64": ("i64", "i32", "i64"),
}  # fmt: skip
_CASES = {
    "whole": ((32, 64, 64), Case()),
    "transposed, in pieces": ((32, 64, 64), Case(a="mn", b="k", fresh=False, split=32)),
    "ragged shape": ((13, 37, 20), Case(fresh=False, split=8)),
    "ragged shape, transposed": ((13, 37, 19), Case(a="mn", b="k", fresh=False)),
    "ragged extents": ((32, 128, 32), Case(m_valid=11, n_valid=41, k_valid=29)),
    "ragged extents, transposed": ((20, 48, 32), Case(a="mn", b="k", m_valid=18, n_valid=41, k_valid=29)),
    "no unit stride": ((8, 32, 32), Case(a="any", b="any", m_valid=5, n_valid=31, k_valid=29)),
    "few columns": ((16, 2, 24), Case(b="k", fresh=False)),
    "one row": ((1, 100, 24), Case(fresh=False)),
    "nothing valid": ((8, 16, 16), Case(k_valid=0)),
}
# Cross targets whose instructions nearly every x86 machine has: the same code runs there.
_CPUS = ("host", "x86-64", "haswell", "alderlake")


def _isa(cpu: str) -> CpuFeatures:
    if cpu == "host":
        # Tile registers are tested in software elsewhere.
        return describe(flags="-amx-tile,-amx-bf16,-amx-int8") if host().has("amx-tile") else host()
    if not host().is_x86:
        pytest.skip("x86 only")
    isa = describe(host().triple, cpu)
    needed = isa.available & {"avx2", "fma", "f16c", "avxvnni"}
    if not host().available >= needed:
        pytest.skip(f"this machine lacks some of {needed}")
    return isa


def _check(
    plan: DotPlan, result: np.ndarray[Any, Any], exact: np.ndarray[Any, Any], size: np.ndarray[Any, Any]
) -> None:
    if plan.acc[0] == "i":
        np.testing.assert_array_equal(result, exact.astype(result.dtype))
    else:
        bound = (plan.k + 2) * np.finfo(result.dtype).eps * size
        assert (np.abs(result - exact) <= bound).all()


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("types", _TYPES)
@pytest.mark.parametrize("cpu", _CPUS)
def test_product(cpu: str, types: str, case: str) -> None:
    isa = _isa(cpu)
    shape, how = _CASES[case]
    plan = plan_dot(isa, *shape, *_TYPES[types])
    _check(plan, *run_case(isa, plan, how, np.random.default_rng(len(case))))


@pytest.mark.skipif(not host().is_x86, reason="x86 only")
@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("types", ["bf16", "i8", "i16"])
def test_product_with_avx512(types: str, case: str) -> None:
    isa = describe(host().triple, "znver4")
    shape, how = _CASES[case]
    plan = plan_dot(isa, *shape, *_TYPES[types])
    assert plan.family == {"bf16": "dpbf16", "i8": "dot4", "i16": "pmadd"}[types]
    soften = soft_avx512.soften if soft_avx512.needed(isa) else None
    _check(plan, *run_case(isa, plan, how, np.random.default_rng(len(case)), text=soften))


@pytest.mark.parametrize("types", ["f32", "f64", "i32", "bf16", "i8"])
def test_operands_in_place(types: str) -> None:
    isa = _isa("host")
    plan = plan_dot(isa, 13, 48, 32, *_TYPES[types])
    if plan.a_in_place:
        case = Case(a="in place", b="in place" if plan.b_in_place else "mn", split=16, fresh=False)
        _check(plan, *run_case(isa, plan, case, np.random.default_rng(0)))
    else:
        assert plan.operand != plan.a_dtype


@pytest.mark.parametrize("shape", [(4, 4), (12, 2), (6, 4), (1, 8), (16, 1)])
def test_any_micro_kernel_shape(shape: tuple[int, int]) -> None:
    isa = _isa("host")
    plan = dataclasses.replace(plan_dot(isa, 29, 150, 24, "f32", "f32", "f32"), mr=shape[0], nv=shape[1])
    _check(plan, *run_case(isa, plan, Case(fresh=False), np.random.default_rng(1)))


def test_integer_wraparound() -> None:
    """Products of extreme values, whose sums exceed the accumulator."""
    isa = _isa("host")
    for types in (("i8", "i8", "i32"), ("i16", "i16", "i32")):
        plan = plan_dot(isa, 4, 16, 64, *types)

        class Extreme:
            def integers(self, low: int, high: int, shape: Any, **kwargs: Any) -> Any:
                return np.full(shape, low, kwargs.get("dtype", np.int64))

        rng: Any = Extreme()
        result, exact, _ = run_case(isa, plan, Case(), rng)
        np.testing.assert_array_equal(result, exact.astype(np.int32))


def test_infinities_and_nans_survive_conversion() -> None:
    isa = _isa("host")
    plan = plan_dot(isa, 4, 16, 16, "f16", "f16", "f32")

    class Special:
        def integers(self, *args: Any, **kwargs: Any) -> Any:
            return np.random.default_rng(0).integers(*args, **kwargs)

        def standard_normal(self, shape: Any) -> Any:
            x = np.ones(shape)
            x[0, 0] = np.inf
            return x

    rng: Any = Special()
    result, exact, _ = run_case(isa, plan, Case(), rng)
    np.testing.assert_array_equal(result, exact)
    assert np.isinf(result).any()


def test_plans_are_values() -> None:
    isa = _isa("host")
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


def test_refusals() -> None:
    isa = _isa("host")
    with pytest.raises(ShapeError, match="positive"):
        plan_dot(isa, 0, 16, 16, "f32", "f32", "f32")
    with pytest.raises(DTypeError, match="mix"):
        plan_dot(isa, 16, 16, 16, "f32", "i32", "f32")
    with pytest.raises(DTypeError, match="no operands of type i1"):
        plan_dot(isa, 16, 16, 16, "i1", "i1", "i32")
    with pytest.raises(DTypeError, match="precision"):
        plan_dot(isa, 16, 16, 16, "f32", "f32", "f32", "fast")
    with pytest.raises(InternalError, match="packed"):
        run_case(isa, plan_dot(isa, 8, 16, 16, "f16", "f16", "f32"), Case(b="in place"), np.random.default_rng(0))
