"""Whole matrix products: operands in place or packed, ragged edges, types, packed columns kept between programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES, in_pairs
from tests.backends.cpu.harness import Compiled
from tests.backends.cpu.kernels import matmul_text
from tests.backends.nvidia.laying import built_ir
from tilewright.backends.cpu.emit.lower import lower_module, plan_module
from tilewright.backends.llvm.codegen import compile_object
from tilewright.backends.llvm.features import describe
from tilewright.base.dtypes import dtype
from tilewright.base.minifloat import decode, encode
from tilewright.ops.text import parse_module
from tilewright.passes.pipeline import run_passes

Array = np.ndarray[Any, Any]
_NUMPY = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i32": np.int32, "f64": np.float64}


def _data(rng: np.random.Generator, rows: int, columns: int, elem: str) -> tuple[Array, Array]:
    """Memory form and exact values."""
    if elem == "i8":
        values = rng.integers(-128, 128, (rows, columns)).astype(np.int8)
        return values, values.astype(np.float64)
    values = rng.standard_normal((rows, columns))
    if elem == "bf16":
        bits = encode(values.astype(np.float32), dtype("bf16"))
        return bits, decode(bits, dtype("bf16")).astype(np.float64)
    rounded = values.astype(_NUMPY[elem])
    return rounded, rounded.astype(np.float64)


def _run(family: str, text: str, tile: tuple[int, int], m: int, n: int, k: int, elem: str, out: str) -> None:
    rng = np.random.default_rng(0)
    compiled = Compiled(text, isa=FAMILIES[family].isa)
    (a, exact_a), (b, exact_b) = _data(rng, m, k, elem), _data(rng, k, n, elem)
    c = np.zeros((m, n), np.uint16 if out == "bf16" else _NUMPY[out])
    grid = (-(-m // tile[0]) * -(-n // tile[1]),)
    for _ in range(2):  # the second launch must not use what the first one packed
        compiled(grid, a, b, c, m, n, k, k, n, n)
        want = exact_a @ exact_b
        got = decode(c, dtype("bf16")).astype(np.float64) if out == "bf16" else c.astype(np.float64)
        bound = {"i32": 0.0, "f32": 1e-6 * k, "f64": 1e-13 * k, "f16": 2e-3, "bf16": 1e-2}[out] * np.abs(want).max()
        assert np.abs(got - want).max() <= bound
        b[...], exact_b = _data(rng, k, n, elem)


_KINDS = [
    ("f32", "f32", "f32"), ("f16", "f32", "f16"), ("bf16", "f32", "bf16"), ("i8", "i32", "i32"), ("f64", "f64", "f64"),
]  # fmt: skip
_SIZES = [(64, 64, 64), (100, 70, 50), (33, 130, 128)]


@pytest.mark.parametrize(("family", "kinds", "sizes"), in_pairs(FAMILIES, _KINDS, _SIZES))
def test_product(family: str, kinds: tuple[str, str, str], sizes: tuple[int, int, int]) -> None:
    (elem, acc, out), (m, n, k) = kinds, sizes
    _run(family, matmul_text(32, 64, 16, elem, acc, out), (32, 64), m, n, k, elem, out)


@pytest.mark.parametrize("tile", [(16, 16, 16), (128, 32, 64), (64, 128, 32), (8, 16, 128)])
@pytest.mark.parametrize("family", FAMILIES)
def test_tiles(family: str, tile: tuple[int, int, int]) -> None:
    _run(family, matmul_text(*tile), tile[:2], 200, 150, 96, "f32", "f32")


@pytest.mark.parametrize("elem", ["f32", "f16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_more_iterations_than_kept_panels(family: str, elem: str) -> None:
    """Past the capacity of the cache every iteration is packed anew."""
    text = matmul_text(16, 256, 32, elem, mask_k=False)
    _run(family, text, (16, 256), 64, 512, 32 * 80, elem, "f32")


@pytest.mark.parametrize("elem", ["f32", "f16", "i8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_joined_iterations(family: str, elem: str) -> None:
    """Many iterations are one product; the last product stands for those that are left, and masks reach into it."""
    acc = "i32" if elem == "i8" else "f32"
    text = matmul_text(32, 64, 64, elem, acc, acc)
    module = parse_module(text)
    run_passes(module)
    isa = FAMILIES[family].isa
    plan = plan_module(module, isa).render()
    assert "iterations at a time" in plan and "afresh" in plan and "materialize" not in plan  # nobody writes zeros
    compiled = Compiled(text, isa=isa)
    for k in (0, 1, 63, 64, 65, 255, 256, 257, 300, 512, 700):
        rng = np.random.default_rng(k)
        (a, exact_a), (b, exact_b) = _data(rng, 50, max(k, 1), elem), _data(rng, max(k, 1), 70, elem)
        c = np.full((50, 70), 7, _NUMPY[acc])
        compiled((4,), a, b, c, 50, 70, k, max(k, 1), 70, 70)
        want = exact_a[:, :k] @ exact_b[:k]
        assert np.abs(c - want).max() <= (0 if elem == "i8" else 1e-5) * (1 + np.abs(want).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_computed_operands_are_packed_iteration_by_iteration(family: str) -> None:
    """Both are computed from loads, masks and all; the columns are kept for the programs that want them again."""
    text = matmul_text(32, 64, 64, "f16", "f32", "f32")
    twice = "%twice = arith.addf %x, %x : tensor<32x64xf16>"
    squares = "%squares = arith.mulf %y, %y : tensor<64x64xf16>"
    text = text.replace("%d = tt.dot %x, %y", f"{twice}\n      {squares}\n      %d = tt.dot %twice, %squares")
    module, isa = parse_module(text), FAMILIES[family].isa
    run_passes(module)
    plan = plan_module(module, isa).render()
    assert plan.count("filled in each iteration") == 2 and "B kept" in plan and "iterations at a time" in plan
    compiled = Compiled(text, isa=isa)
    for k in (0, 65, 600):
        rng = np.random.default_rng(k)
        a, b = ((rng.integers(-8, 8, size) / 4).astype(np.float16) for size in ((50, max(k, 1)), (max(k, 1), 70)))
        c = np.full((50, 70), 7, np.float32)
        compiled((4,), a, b, c, 50, 70, k, max(k, 1), 70, 70)
        assert np.array_equal(c, 2 * a.astype(np.float32)[:, :k] @ (b.astype(np.float32) ** 2)[:k])


def test_iterations_that_do_not_lie_side_by_side_stay_apart() -> None:
    """A advances by twice the width of its tile, so that every second block of columns is left out."""
    text = matmul_text(32, 64, 16, mask_k=False).replace(
        "%adv = arith.constant dense<16>", "%adv = arith.constant dense<32>"
    )
    module = parse_module(text)
    run_passes(module)
    assert "at a time" not in plan_module(module, FAMILIES["avx512"].isa).render()
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((32, 128)).astype(np.float32), rng.standard_normal((64, 64)).astype(np.float32)
    c = np.zeros((32, 64), np.float32)
    Compiled(text)((1,), a, b, c, 32, 64, 64, 128, 64, 64)
    want = sum(a[:, 32 * t : 32 * t + 16] @ b[16 * t : 16 * t + 16] for t in range(4))
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4)


def test_rows_of_columns_share_packed_panels() -> None:
    module = parse_module(matmul_text(32, 64, 32))
    run_passes(module)
    assert "B kept" in plan_module(module, FAMILIES["avx512"].isa).render()


@tilewright.jit
def _rows_of_their_own_depth(a, b, c, depths, k, B: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    depth, acc = tl.load(depths + tl.program_id(0)), tl.zeros((B, B), tl.float32)
    for start in range(0, k, K):
        p = start + tl.arange(0, K)
        x = tl.load(a + i[:, None] * k + p[None, :], p[None, :] < depth, 0.0)
        acc = tl.dot(x, tl.load(b + p[:, None] * B + j[None, :], p[:, None] < 3, 0.0), acc)
    tl.store(c + i[:, None] * B + j[None, :], acc)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_zero_in_both_operands_is_left_out(family: str) -> None:
    """Columns that are kept for the next program must serve rows that are longer; 0 times infinity stays NaN."""
    types = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "depths": "*i32", "k": "i32"}
    made = Compiled(built_ir(_rows_of_their_own_depth, types, B=16, K=32), isa=FAMILIES[family].isa)
    a = np.random.default_rng(0).integers(-4, 4, (64, 40)).astype(np.float32)
    b, depths = np.arange(40 * 16, dtype=np.float32).reshape(40, 16) % 7, np.array([0, 2, 40, 9], np.int32)
    a[40, 20] = np.inf
    c = np.zeros((64, 16), np.float32)
    made((4,), a, b, c, depths, 40)
    masked = np.where(np.arange(40) < np.repeat(depths, 16)[:, None], a, 0)
    with np.errstate(invalid="ignore"):
        want = masked @ np.where(np.arange(40)[:, None] < 3, b, 0)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("tensor", ["b", "c"])
def test_a_kernel_that_stores_to_an_operand_before_the_loop_packs_each_time(tensor: str) -> None:
    text = matmul_text(32, 64, 32).replace(
        "%acc:3 = scf.for", f"tt.store %{tensor}, %early : !tt.ptr<f32>\n    %acc:3 = scf.for"
    ).replace("%cg = arith", "%early = arith.constant 0.000000e+00 : f32\n    %cg = arith")  # fmt: skip
    module = parse_module(text)
    run_passes(module)
    assert ("B kept" in plan_module(module, FAMILIES["avx512"].isa).render()) == (tensor == "c")


@pytest.mark.parametrize(("triple", "cpu"), [
    ("x86_64-unknown-linux-gnu", "sapphirerapids"), ("x86_64-unknown-linux-gnu", "haswell"),
    ("x86_64-unknown-linux-gnu", "x86-64"), ("aarch64-unknown-linux-gnu", "neoverse-n1"),
])  # fmt: skip
@pytest.mark.parametrize(("elem", "acc", "out"), [("f32", "f32", "f32"), ("bf16", "f32", "bf16"), ("i8", "i32", "i32")])
def test_compiles_for_other_targets(triple: str, cpu: str, elem: str, acc: str, out: str) -> None:
    isa = describe(triple, cpu)
    module = parse_module(matmul_text(32, 64, 32, elem, acc, out))
    run_passes(module)
    assert compile_object(lower_module(module, isa).llvm, isa)
