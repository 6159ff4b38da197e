"""Every second element is read by whole loads, which never reach past the first and the last of them."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@tilewright.jit
def exchanged(x, out, n, BLOCK: tl.constexpr):
    """The elements of each pair change places."""
    p, j = tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK // 2), tl.arange(0, BLOCK)
    even, odd = tl.load(x + 2 * p, 2 * p < n), tl.load(x + 2 * p + 1, 2 * p + 1 < n)
    at = tl.program_id(0) * BLOCK + j
    tl.store(out + at, tl.reshape(tl.join(odd, even), (BLOCK,)), at < n)


@tilewright.jit
def sums_of_pairs(x, out, n, BLOCK: tl.constexpr):
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + p, tl.load(x + 2 * p, p < n) + tl.load(x + 2 * p + 1, p < n), p < n)


def at_the_end_of_a_page(x: np.ndarray) -> np.ndarray:
    """A copy that ends where its pages end."""
    pages = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, pages), x.dtype)
    memory[-x.size :] = x
    return memory[-x.size :]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 128, 1000])
def test_pairs_to_the_last_element(dtype: type, n: int) -> None:
    x = at_the_end_of_a_page(np.resize(np.arange(1, 120), n).astype(dtype))
    out = np.zeros(n, dtype)
    exchanged[(-(-n // 128),)](x, out, n, 128)
    assert out.tolist() == x.reshape(-1, 2)[:, ::-1].ravel().tolist()
    sums = np.zeros(n // 2, dtype)
    sums_of_pairs[(-(-n // 128),)](x, sums, n // 2, 64)
    assert sums.tolist() == (x[::2] + x[1::2]).tolist()
