"""Launches with `num_ctas`: a program is one block, of more threads, and sees nothing of it (decision 0035)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import cluster_kernels as kernels
from tests.backends.nvidia import descriptor_kernels
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.laying import tile_ir
from tests.backends.nvidia.whole import whole
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.nvidia.plan.subjects import CLUSTER
from tilewright.base.errors import ArgumentError
from tilewright.ir.decisions import Decisions

WIDTHS = [(1, 2, 2), (4, 2, 8), (4, 4, 8), (2, 16, 8), (16, 2, 16), (4, 1, 4)]
each_width = pytest.mark.parametrize(("num_warps", "num_ctas", "warps"), WIDTHS)


@each_width
def test_the_block_has_the_warps_of_the_cluster_while_they_add_registers(
    num_warps: int, num_ctas: int, warps: int
) -> None:
    assert CudaOptions(num_warps=num_warps, num_ctas=num_ctas).block_warps == warps


@pytest.mark.parametrize("wrong", [0, 3, 32, 2.0])
def test_numbers_of_blocks_that_no_cluster_has(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="num_ctas must be a power of 2 up to 16"):
        CudaOptions(num_ctas=wrong)


@each_width
def test_programs_are_those_of_the_grid(num_warps: int, num_ctas: int, warps: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    out, sums = np.zeros_like(x), np.zeros(20, np.int32)
    made = whole(
        kernels.rows, {"x": "*fp32", "out": "*fp32", "sums": "*i32", "n": "i32"}, {"BLOCK": 128}, 90,
        num_warps=num_warps, num_ctas=num_ctas,
    )  # fmt: skip
    lowered = made.lowered()
    assert (lowered.num_warps, lowered.cluster) == (warps, 1)
    made.run((3,), x, out, sums, 100)
    exact = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, exact / exact.sum(1, keepdims=True), rtol=1e-5)
    assert sums.tolist() == [3, 2, 150, 150, 3, 7, 8, 9, *[0] * 12]


@pytest.mark.parametrize("num_ctas", [2, 4])
@pytest.mark.parametrize("kind", ["fp16", "fp32"])
def test_products(num_ctas: int, kind: str) -> None:
    rng, dtype = np.random.default_rng(1), {"fp16": np.float16, "fp32": np.float32}[kind]
    a, b = rng.integers(-4, 5, (64, 96)).astype(dtype), rng.integers(-4, 5, (96, 64)).astype(dtype)
    c = np.zeros((64, 64), np.float32)
    types = {"a": f"*{kind}", "b": f"*{kind}", "c": "*fp32", "K": "i32"}
    made = whole(kernels.matmul, types, {"M": 64, "N": 32, "STEP": 32}, 90, num_ctas=num_ctas)
    made.run((2,), a, b, c, 96)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_library_functions_and_the_threads_that_were_asked_for() -> None:
    x = np.random.default_rng(2).permutation(256).astype(np.int32)
    out, total = np.zeros(512, np.int32), np.zeros(2, np.int32)
    types = {"x": "*i32", "out": "*i32", "total": "*i32"}
    whole(kernels.library, types, {"BLOCK": 128}, 90, num_ctas=2).run((2,), x, out, total)
    halves = x.reshape(2, 128)
    np.testing.assert_array_equal(out[:256].reshape(2, 128), np.sort(halves, 1).cumsum(1))
    np.testing.assert_array_equal(out[256:].reshape(2, 128), halves.reshape(2, 16, 8).swapaxes(1, 2).reshape(2, 128))
    assert total.tolist() == [4, 4]


def test_descriptors() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, (64, 64)).astype(np.float16), rng.integers(-4, 5, (64, 64)).astype(np.float16)
    c = np.zeros((64, 64), np.float16)
    blocks = [describe(a, [64, 32]), describe(b, [32, 64]), describe(c, [64, 64]), 64]
    made = Described(
        descriptor_kernels.matmul, blocks, M_BLOCK=64, N_BLOCK=64, K_BLOCK=32, num_ctas=2, num_warps=4
    )  # fmt: skip
    made.run((1, 1))
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


@pytest.mark.parametrize("num_ctas", [1, 2])
def test_the_answer_is_kept(num_ctas: int) -> None:
    decisions, options = Decisions(), CudaOptions(num_warps=2, num_ctas=num_ctas)
    module = tile_ir(kernels.guarded, {"lock": "*i32", "count": "*i32"}, BLOCK=32)
    lay_out_module(module, options, target_of(90), decisions)
    answers = [(d.taken, d.text) for d in decisions if d.subject == CLUSTER.name]
    assert answers == ([(False, "it is one block of 4 warps")] if num_ctas > 1 else [])
