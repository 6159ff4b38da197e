"""`x * y + z` is rounded alike by compiled kernels and by the interpreter, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.language.kernel_runner import run, running_on
from tests.launch.contracted_programs import OUTPUTS, program
from tilewright.base.options import Options
from tilewright.tools.modules import load_file

N = 128


def load(seed: int, folder: Path) -> Any:
    """The kernel of a random program."""
    path = folder / f"contracted_{seed}.py"
    path.write_text(program(seed))
    return load_file(path).kernel


def inputs(dtype: Any) -> list[Any]:
    """Two factors and what nearly cancels their product."""
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(N).astype(dtype) for _ in range(2))
    return [x, y, (rng.choice([-1, 1], N) * x * y + rng.standard_normal(N) * 1e-6).astype(dtype)]


def result(kernel: Any, dtype: Any, backend: str, *, fuse: bool = True) -> Any:
    """What the program stores, as bits; one pattern for every NaN."""
    out = np.zeros(len(OUTPUTS) * N, dtype)
    with running_on(backend):
        run(kernel, *inputs(dtype), out, 3, N=N, options=Options(enable_fp_fusion=fuse))
    out[np.isnan(out)] = np.nan
    return out.view(f"u{out.itemsize}")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_random_programs_agree_to_the_last_bit(seed: int, backend: str, tmp_path: Path) -> None:
    kernel = load(seed, tmp_path)
    dtype = (np.float32, np.float64, np.float16)[seed % 3]
    want = result(kernel, dtype, "interpreter")
    assert np.isfinite(want.view(dtype)).mean() > 0.2
    np.testing.assert_array_equal(result(kernel, dtype, backend), want)


@pytest.mark.parametrize("seed", [0, 3])
def test_code_for_gpus_agrees(seed: int, tmp_path: Path) -> None:
    kernel = load(seed, tmp_path)
    np.testing.assert_array_equal(result(kernel, np.float32, "simulated"), result(kernel, np.float32, "interpreter"))


def test_without_fusion_each_operation_rounds(tmp_path: Path) -> None:
    kernel = load(3, tmp_path)
    want = result(kernel, np.float32, "interpreter", fuse=False)
    np.testing.assert_array_equal(result(kernel, np.float32, "cpu", fuse=False), want)
    assert np.any(want != result(kernel, np.float32, "interpreter"))


@tilewright.jit
def held(x_ptr, y_ptr, z_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y, z = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i)
    product = x * y
    total = product
    for _ in range(n):
        total = total + z  # rounded: the first iteration takes what the loop was given
    tl.store(out_ptr + i, total)
    tl.store(out_ptr + N + i, product + z)  # rounded: a loop lies between
    again = x * y
    tl.store(out_ptr + 2 * N + i, again + z)
    tl.store(out_ptr + 3 * N + i, again)


@pytest.mark.parametrize("backend", ["reference", "interpreter", "cpu", "simulated"])
def test_a_loop_between_product_and_sum_rounds_the_product(backend: str) -> None:
    x, y, z = inputs(np.float32)
    out = np.zeros(4 * N, np.float32)
    with running_on(backend):
        run(held, x, y, z, out, 1, N=N)
    stages = out.reshape(4, N)
    once = (x.astype(np.float64) * y + z).astype(np.float32)
    twice = x * y + z
    assert np.any(once != twice)
    np.testing.assert_array_equal(stages[0], twice)
    np.testing.assert_array_equal(stages[1], twice)
    np.testing.assert_array_equal(stages[2], twice if backend == "reference" else once)  # no pass has run there
    np.testing.assert_array_equal(stages[3], x * y)


@tilewright.jit
def taken_away(x_ptr, y_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    total, half = tl.load(x_ptr + i), tl.load(x_ptr + i)
    for _ in range(n):
        y = tl.load(y_ptr + i)
        total = total - y
        half = half + y * 0.5  # exact: the same with and without fusion
    tl.store(out_ptr + i, total)
    tl.store(out_ptr + N + i, half)


@pytest.mark.parametrize("backend", ["interpreter", "cpu", "simulated"])
def test_what_a_loop_adds_to_a_tile_is_rounded_in_every_iteration(backend: str) -> None:
    x, y, _ = inputs(np.float32)
    out = np.zeros(2 * N, np.float32)
    with running_on(backend):
        run(taken_away, x, y, out, 7, N=N)
    total, half = x.copy(), x.copy()
    for _ in range(7):
        total = total - y
        half = half + y * np.float32(0.5)
    np.testing.assert_array_equal(out.reshape(2, N), [total, half])
