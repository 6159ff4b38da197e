"""Places made of quotients and remainders: the elements are right wherever rows end, and rows are read whole."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.flat_rows import cropped, flipped, padded, planes
from tests.backends.cpu.harness import Compiled
from tests.backends.cpu.test_every_second import at_the_end_of_a_page
from tests.backends.nvidia.laying import built_ir


def expected(kernel: Any, x: np.ndarray, w: int, wide: int) -> np.ndarray:
    if kernel is padded:
        return np.pad(x[: x.size // w * w].reshape(-1, w), ((0, 0), (0, wide - w)), constant_values=-1).ravel()
    rows = x.reshape(-1, wide)[:, :w]
    return (rows[:, ::-1] if kernel is flipped else rows).ravel()


def check_rows(kernel: Any, w: int, wide: int, dtype: type, block: int) -> None:
    """Rows that end where memory does, and what lies behind the result, which stays."""
    columns = w if kernel is padded else wide
    x = at_the_end_of_a_page(np.resize(np.arange(1, 120), 15 * columns).astype(dtype))
    want = expected(kernel, x, w, wide)
    out = np.zeros(want.size + 40, dtype)
    kernel[(-(-want.size // block),)](x, out, w, wide, want.size, block)
    assert out[: want.size].tolist() == want.tolist() and not out[want.size :].any()


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("w", "wide"), [(1, 1), (1, 3), (3, 7), (16, 16), (16, 48), (17, 17), (33, 40), (100, 101)])
@pytest.mark.parametrize("kernel", [cropped, flipped, padded, planes], ids=lambda kernel: kernel.fn.__name__)
def test_rows_of_any_width(kernel: Any, w: int, wide: int, dtype: type) -> None:
    check_rows(kernel, w, wide, dtype, 128)


@tilewright.jit
def backwards(x, out, w, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + n - 1 - i, (i < n) & (i % 3 != 1), 5), i < n)


@pytest.mark.parametrize("n", [1, 15, 100, 1000])
def test_backwards_under_a_mask(n: int) -> None:
    x, out = at_the_end_of_a_page(np.arange(n, dtype=np.float32)), np.zeros(n + 40, np.float32)
    backwards[(-(-n // 128),)](x, out, 0, 0, n, 128)
    want = np.where(np.arange(n) % 3 != 1, x[::-1], 5)
    assert out[:n].tolist() == want.tolist() and not out[n:].any()


@pytest.mark.parametrize("family", ["avx512", "avx2", "sse2", "neon", "sve"])
@pytest.mark.parametrize("kernel", [cropped, flipped], ids=lambda kernel: kernel.fn.__name__)
def test_on_other_processors(kernel: Any, family: str) -> None:
    types = {"x": "*fp32", "out": "*fp32", "w": "i32", "wide": "i32", "n": "i32"}
    made = Compiled(built_ir(kernel, types, BLOCK=64), isa=FAMILIES[family].isa)
    for w in (1, 21, 32, 60):
        x = np.arange(15 * 64, dtype=np.float32)
        want = expected(kernel, x, w, 64)
        out = np.zeros(want.size, np.float32)
        made((-(-want.size // 64),), x, out, w, 64, want.size)
        np.testing.assert_array_equal(out, want)


def read_whole(kernel: Any) -> bool:
    """Whether a kernel for AVX-512 has loads of vectors."""
    types = {"x": "*fp32", "out": "*fp32", "w": "i32", "wide": "i32", "n": "i32"}
    text = Compiled(built_ir(kernel, types, BLOCK=64), isa=FAMILIES["avx512"].isa).program.llvm
    return re.search(r"= load <\d+ x float>|call <\d+ x float> @llvm.masked.load", text) is not None


@pytest.mark.parametrize("kernel", [cropped, flipped, padded, planes, backwards], ids=lambda kernel: kernel.fn.__name__)
def test_rows_are_read_whole(kernel: Any) -> None:
    assert read_whole(kernel)


@tilewright.jit
def indexed(x, out, w, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i // w * 2, i < n) + tl.load(x + i * i % w, i < n), i < n)


def test_what_is_no_row_is_gathered_as_before() -> None:
    assert not read_whole(indexed)


@tilewright.jit
def before_the_first(x, out, w, n, BLOCK: tl.constexpr):
    """Unsigned numbers begin anew behind the largest one, in the first vector."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = i.to(tl.uint32) - 3
    w = w.to(tl.uint32)
    tl.store(out + i, tl.load(x + j // w * 2 * w + j % w, (i >= 3) & (i < n), 7), i < n)


@pytest.mark.parametrize("w", [5, 16, 40, 100])
def test_numbers_that_begin_anew(w: int) -> None:
    n = 300
    x, out = np.random.default_rng(w).standard_normal(4 * n + 4 * w).astype(np.float32), np.zeros(n, np.float32)
    before_the_first[(-(-n // 64),)](x, out, w, n, 64)
    j = np.arange(3, n) - 3
    np.testing.assert_array_equal(out, [7, 7, 7, *x[j // w * 2 * w + j % w]])
