"""What loops combine in several reductions is one in each iteration of one loop, and computes what they compute."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.loops.subjects import REDUCTION_LOOPS

BM, BN = 8, 64


@tilewright.jit
def pairs(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        left, right = tl.split(tl.reshape(v, (BM, BN // 2, 2)))
        acc += tl.sum(left * left, 1) + tl.sum(right * right, 1)
    tl.store(out + m, acc)


@tilewright.jit
def fours(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        even, odd = tl.split(tl.reshape(v, (BM, BN // 2, 2)))
        a, c = tl.split(tl.reshape(even, (BM, BN // 4, 2)))
        b, d = tl.split(tl.reshape(odd, (BM, BN // 4, 2)))
        acc += tl.sum(a * a, 1) + tl.sum(b * b, 1) + tl.sum(c * c, 1) + tl.sum(d * d, 1)
    tl.store(out + m, acc)


@tilewright.jit
def two_blocks(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, N, 2 * BN):
        n = start + tl.arange(0, BN)
        u = tl.load(x + m[:, None] * N + n, mask=n < N, other=0.0)
        v = tl.load(x + m[:, None] * N + n + BN, mask=n + BN < N, other=0.0)
        acc += u * u + v * v
    tl.store(out + m, tl.sum(acc, 1))


@tilewright.jit
def groups(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, 8), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        acc += tl.sum(tl.reshape(v * v * 2.0, (BM, BN // 8, 8)), 1)
    tl.store(out + m, tl.sum(acc, 1) * 0.5)


@tilewright.jit
def one_row(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    for i in range(BM):
        m = tl.program_id(0) * BM + i
        acc = tl.zeros((8,), tl.float32)
        for start in range(0, N, BN):
            v = tl.load(x + m * N + start + tl.arange(0, BN))
            acc += tl.sum(tl.reshape(v * v, (BN // 8, 8)), 0)
        tl.store(out + m, tl.sum(acc, 0))


@tilewright.jit
def added_behind(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Three sums of one loop, of rows and of tiles, that are added behind it."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    even, odd, first = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32), tl.zeros((BM, BN // 4), tl.float32)
    for start in range(0, N, BN):
        at = x + m[:, None] * N + start
        a = tl.load(at + tl.arange(0, BN // 4))
        n = BN // 4 + tl.arange(0, BN // 4)
        b, c = tl.load(at + n), tl.load(at + BN // 2 + tl.arange(0, BN // 2))
        first += a * a
        even += tl.sum(b * b, 1)
        odd += tl.sum(c * c, 1)
    tl.store(out + m, tl.sum(first, 1) + even + odd)


@tilewright.jit
def two_loops(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Halves of each block in loops of their own."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN // 2)
    even, odd = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + 2 * n)
        even += tl.sum(v * v, 1)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + 2 * n + 1)
        odd += tl.sum(v * v, 1)
    tl.store(out + m, even + odd)


@tilewright.jit
def larger_of_two(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN // 2)
    even, odd = tl.full((BM,), float("-inf"), tl.float32), tl.full((BM,), float("-inf"), tl.float32)
    for start in range(0, N, BN):
        at = x + m[:, None] * N + start + 2 * n
        even = tl.maximum(even, tl.max(tl.load(at), 1))
        odd = tl.maximum(odd, tl.max(tl.load(at + 1), 1))
    tl.store(out + m, tl.maximum(even, odd))


@tilewright.jit
def kept_apart(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """One of two sums is wanted by itself, too."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN // 2)
    even, odd = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        u = tl.load(x + m[:, None] * N + start + 2 * n)
        v = tl.load(x + m[:, None] * N + start + 2 * n + 1)
        even += tl.sum(u * u, 1)
        odd += tl.sum(v * v, 1)
    tl.store(out + m, (even + odd) + (even - even))


@tilewright.jit
def overwritten_between(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """What the first loop reads is written before the sums are added."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN // 2)
    even, odd = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + 2 * n)
        even += tl.sum(v * v, 1)
    tl.store(x + m[:, None] * N + 2 * n, tl.zeros((BM, BN // 2), tl.float32))
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + 2 * n + 1)
        odd += tl.sum(v * v, 1)
    tl.store(out + m, even + odd)


@tilewright.jit
def largest(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.full((BM, 8), float("-inf"), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        acc = tl.maximum(acc, tl.max(tl.reshape(v, (BM, BN // 8, 8)), 1))
    tl.store(out + m, tl.max(acc, 1))


@tilewright.jit
def difference(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Halves that cancel: infinities must give what they give."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        acc += tl.sum(v * v, 1) + tl.sum(v * v, 1) - tl.sum(v * v, 1)
    tl.store(out + m, acc)


@tilewright.jit
def begun(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """A sum that does not begin with nothing."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.full((BM, 8), 1.0, tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        acc += tl.sum(tl.reshape(v * v, (BM, BN // 8, 8)), 1)
    tl.store(out + m, tl.sum(acc, 1) - 8.0)


@tilewright.jit
def written(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """A loop that writes what it reads next."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, 8), tl.float32)
    for start in range(0, N, BN):
        at = x + m[:, None] * N + start + tl.arange(0, BN)
        v = tl.load(at)
        acc += tl.sum(tl.reshape(v * v, (BM, BN // 8, 8)), 1)
        tl.store(at + BN, v, mask=start + tl.arange(0, BN) + BN < N)
    tl.store(out + m, tl.sum(acc, 1))


@tilewright.jit
def columns(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Sums of columns, two rows at a time."""
    n = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for m in range(0, N, 2):
        acc += tl.sum(tl.load(x + m * M + n)[None, :], 0) + tl.sum(tl.load(x + (m + 1) * M + n)[None, :], 0)
    tl.store(out + n, acc)


@tilewright.jit
def kept(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Partial sums that are stored, too."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, 8), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        acc += tl.sum(tl.reshape(v * v, (BM, BN // 8, 8)), 1)
    tl.store(x + m[:, None] * N + tl.arange(0, 8), acc)
    tl.store(out + m, tl.sum(acc, 1))


@tilewright.jit
def exponentials(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """What is computed of loads, of numbers of rows, and left out by masks whose other value is no nothing."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    top = tl.full((BM,), float("-inf"), tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        top = tl.maximum(top, tl.max(tl.load(x + m[:, None] * N + n, n < N, float("-inf")), 1))
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        total += tl.sum(tl.exp(tl.load(x + m[:, None] * N + n, n < N, float("-inf")) - top[:, None]), 1)
    tl.store(out + m, total)


@tilewright.jit
def spread(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Differences to a mean, in tiles that are reduced after the loop; and three results of one loop."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    total, squares, low = tl.zeros((BM, BN), tl.float32), tl.zeros((BM,), tl.float32), tl.full((BM,), 9.0, tl.float32)
    for start in range(0, N, BN):
        n = (start + tl.arange(0, BN))[None, :]
        v = tl.load(x + m[:, None] * N + n, n < N, 0.0)
        total += v
        squares += tl.sum(v * v, 1)
        low = tl.minimum(low, tl.min(tl.where(n < N, v, 9.0), 1))
    mean, moved = tl.sum(total, 1) / N, tl.zeros((BM, BN), tl.float32)
    for start in range(0, N, BN):
        n = (start + tl.arange(0, BN))[None, :]
        d = tl.where(n < N, tl.load(x + m[:, None] * N + n, n < N, 0.0) - mean[:, None], 0.0)
        moved += d * d
    tl.store(out + m, tl.sum(moved, 1) - (squares - mean * mean * N) + low)


@tilewright.jit
def rest_behind(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Whole blocks without masks, and what is left of the row behind them."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    acc, whole = tl.zeros((BM, BN), tl.float32), N // BN * BN
    for start in range(0, whole, BN):
        v = tl.load(x + m[:, None] * N + start + n)
        acc += v * v
    v = tl.load(x + m[:, None] * N + whole + n, mask=whole + n < N, other=0.0)
    acc += v * v
    tl.store(out + m, tl.sum(acc, 1))


@tilewright.jit
def rest_overwritten(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """What is left of the row changes between the loop and the rest."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    acc, whole = tl.zeros((BM, BN), tl.float32), N // BN * BN
    for start in range(0, whole, BN):
        v = tl.load(x + m[:, None] * N + start + n)
        acc += v * v
    tl.store(x + m[:, None] * N + n, tl.zeros((BM, BN), tl.float32), mask=n < N)
    v = tl.load(x + m[:, None] * N + whole + n, mask=whole + n < N, other=0.0)
    acc += v * v
    tl.store(out + m, tl.sum(acc, 1))


@tilewright.jit
def from_the_last_block(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Downwards from the block that the last element is in."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc, start = tl.zeros((BM,), tl.float32), (N - 1) // BN * BN
    while start >= 0:
        n = start + tl.arange(0, BN)
        v = tl.load(x + m[:, None] * N + n, mask=n < N, other=0.0)
        acc += tl.sum(v * v, 1)
        start -= BN
    tl.store(out + m, acc)


@tilewright.jit
def signs(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Integers, of choices by what is loaded; nothing is masked, so all is counted."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    count = tl.zeros((BM,), tl.int32)
    for start in range(0, N, BN):
        v = tl.load(x + m[:, None] * N + start + tl.arange(0, BN))
        count += tl.sum(tl.where(v > 0, 1, 2), 1)
    tl.store(out + m, count.to(tl.float32))


@tilewright.jit
def counts(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Truth values of what is loaded and of places, as numbers: what is masked by places alone need not be computed."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    many, other, few = tl.zeros((BM,), tl.int32), tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.int32)
    for start in range(0, N, BN):
        n = (start + tl.arange(0, BN))[None, :]
        inside = (m < M)[:, None] & (n < N)
        v = tl.load(x + m[:, None] * N + n, mask=inside)
        many += tl.sum(((v > 0) & inside).to(tl.int32), 1)
        other += tl.sum((inside & (v < 0.5)).to(tl.float32), 1)
        few += tl.sum((tl.load(x + m[:, None] * N + n, mask=inside, other=2.0) > 1).to(tl.int32), 1)
    tl.store(out + m, many.to(tl.float32) + 10000 * other + 0.25 * (few - (tl.cdiv(N, BN) * BN - N)))


@tilewright.jit
def masked_at_the_end(x, v, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Elements behind the end that are no nothing: exp(-inf - v), exp(3 - v), and 7."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    less, total, most = tl.load(v + m), tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    count = tl.zeros((BM,), tl.int32)
    for start in range(0, N, BN):
        at, inside = x + m[:, None] * N + start + tl.arange(0, BN), start + tl.arange(0, BN) < N
        total += tl.sum(tl.exp(tl.load(at, inside, -float("inf")) - less[:, None]), 1)
        most = tl.maximum(most, tl.max(tl.exp(tl.load(at, inside, 3.0) - less[:, None]), 1))
        count += tl.sum(tl.where(tl.load(at, inside, 9.0) > 5, 7, 1), 1)
    tl.store(out + m, total)
    tl.store(out + M + m, most)
    tl.store(out + 2 * M + m, count.to(tl.float32))


@tilewright.jit
def branches_in_a_row(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """A sum that a branch would hand on, and nobody takes."""
    for i in tl.static_range(BM):
        m, acc = tl.program_id(0) * BM + i, tl.zeros((BN,), tl.float32)
        if m < M:
            for start in range(0, N, BN):
                n = start + tl.arange(0, BN)
                v = tl.load(x + m * N + n, mask=n < N, other=0.0)
                acc += v * v
            tl.store(out + m, tl.sum(acc, 0))


@tilewright.jit
def kept_exponentials(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """What is stored in its own shape is not computed again for a reduction of reductions."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM)[:, None, None], tl.arange(0, 64)[None, None, :]
    at = x + m * N + tl.arange(0, 2)[None, :, None] * 64 + n
    e = tl.exp(tl.load(at))
    total = tl.sum(tl.sum(e, 2), 1)
    tl.store(at, e)
    tl.store(out + tl.program_id(0) * BM + tl.arange(0, BM), total)


def launched(kernel, x):
    M, N = x.shape
    out = np.zeros(M, np.float32)
    compiled = kernel[(M // BM,)](x, out, M, N, BM, BN)
    return out, [d for d in compiled.decisions if d.subject == REDUCTION_LOOPS.name]


def numbers(N, M=16):
    return np.random.default_rng(N).standard_normal((M, N)).astype(np.float32)


@pytest.mark.parametrize("N", [64, 192, 1024])
@pytest.mark.parametrize("kernel", [pairs, fours, groups, one_row], ids=lambda kernel: kernel.fn.__name__)
def test_sums(kernel, N):
    x = numbers(N)
    out, found = launched(kernel, x)
    np.testing.assert_allclose(out, (x * x).sum(1), rtol=1e-5)
    assert any(d.taken for d in found)


@pytest.mark.parametrize("N", [64, 192, 1024])
@pytest.mark.parametrize("kernel", [added_behind, two_loops, kept_apart], ids=lambda kernel: kernel.fn.__name__)
def test_sums_that_are_added_behind_loops(kernel, N):
    x = numbers(N)
    out, found = launched(kernel, x)
    np.testing.assert_allclose(out, (x * x).sum(1), rtol=1e-5)
    assert kernel is kept_apart or all(d.taken for d in found)


def test_the_larger_of_two_and_what_is_overwritten():
    x = numbers(256)
    out, found = launched(larger_of_two, x)
    np.testing.assert_array_equal(out, x.max(1))
    assert all(d.taken for d in found)
    out, _ = launched(overwritten_between, x.copy())
    np.testing.assert_allclose(out, (x * x).sum(1), rtol=1e-5)


@pytest.mark.parametrize("N", [1, 63, 64, 65, 128, 200, 1000])
def test_two_blocks_under_masks(N):
    x = numbers(N)
    out, _ = launched(two_blocks, x)
    np.testing.assert_allclose(out, (x * x).sum(1), rtol=1e-5)


@pytest.mark.parametrize("N", [1, 63, 64, 65, 200, 1000])
@pytest.mark.parametrize("kernel", [rest_behind, from_the_last_block], ids=lambda kernel: kernel.fn.__name__)
def test_ends_anywhere(kernel, N):
    """However the last block is written, the loop is that through all elements of a row."""
    x = numbers(N)
    out, found = launched(kernel, x)
    np.testing.assert_allclose(out, (x * x).sum(1), rtol=1e-5)
    assert N == 1 or [d.text for d in found] == ["16384 elements of a row at a time"]
    assert N == 1 or "sum(j < arg3) " in kernel.warmup(x, out, *x.shape, BM, BN, grid=(2,)).asm["nest"]


@pytest.mark.parametrize("N", [100, 200])
def test_a_rest_that_is_overwritten_is_read_behind_it(N):
    x, whole = numbers(N), N // BN * BN
    out, _ = launched(rest_overwritten, x.copy())
    rest = x[:, max(whole, BN) :]
    np.testing.assert_allclose(out, (x[:, :whole] ** 2).sum(1) + (rest * rest).sum(1), rtol=1e-5)


@pytest.mark.parametrize("N", [128, 192, 1024])
def test_maxima(N):
    x = numbers(N) - 5
    out, _ = launched(largest, x)
    np.testing.assert_array_equal(out, x.max(1))


@pytest.mark.parametrize("kernel", [pairs, groups, difference], ids=lambda kernel: kernel.fn.__name__)
def test_what_is_not_finite_stays(kernel):
    x = numbers(256)
    x[0, 3], x[1, 17], x[2, 255] = np.inf, np.nan, -np.inf
    out, _ = launched(kernel, x)
    squares = (x * x).sum(1)
    with np.errstate(invalid="ignore"):
        expected = squares + squares - squares if kernel is difference else squares
    np.testing.assert_allclose(out, expected, rtol=1e-4)


@pytest.mark.parametrize("N", [1, 63, 64, 65, 1000, 20000])
def test_computed_elements(N):
    x = numbers(N)
    out, found = launched(exponentials, x)
    np.testing.assert_allclose(out, np.exp(x - x.max(1)[:, None]).sum(1), rtol=1e-4)
    assert N == 1 or [d.taken for d in found] == [True, True]  # else there is no loop
    out, found = launched(spread, x)
    np.testing.assert_allclose(out, x.min(1), rtol=1e-3, atol=N * 1e-5)
    assert N == 1 or [d.taken for d in found] == [True, True]  # else there is no loop


@pytest.mark.parametrize("N", [63, 64, 200, 1000])
def test_counts(N):
    x = numbers(N)
    out, found = launched(counts, x)
    expected = (x > 0).sum(1) + 10000 * (x < 0.5).sum(1) + 0.25 * (x > 1).sum(1)
    np.testing.assert_allclose(out, expected)
    assert [d.taken for d in found] == [True]


@pytest.mark.parametrize("N", [1, 63, 64, 65, 1000, 1024])
def test_masked_elements_at_the_end_count_as_often_as_there_are_some(N):
    """A row less minus infinity is infinite, and no number if an element of minus infinity is among it."""
    x, v, out = np.minimum(numbers(N), 2), np.linspace(-1, 1, 16, dtype=np.float32), np.zeros((3, 16), np.float32)
    v[3] = -np.inf
    compiled = masked_at_the_end[(2,)](x, v, out, 16, N, BM, BN)
    rest = -N % BN
    with np.errstate(invalid="ignore"):
        padded = [np.pad(x, ((0, 0), (0, rest)), constant_values=other) for other in (-np.inf, 3.0)]
        total, most = (np.exp(each - v[:, None]) for each in padded)
    np.testing.assert_allclose(out[0], total.sum(1), rtol=1e-4)
    np.testing.assert_allclose(out[1], most.max(1), rtol=1e-5)
    np.testing.assert_array_equal(out[2], np.full(16, N + 7 * rest))
    found = {d.taken for d in compiled.decisions if d.subject == REDUCTION_LOOPS.name}
    assert N <= BN or found == {True}


def test_branches_hand_on_nothing_that_nobody_takes():
    x = numbers(200)
    out, found = launched(branches_in_a_row, x)
    np.testing.assert_allclose(out, (x * x).sum(1), rtol=1e-5)
    assert {d.text for d in found} == {"16384 elements of a row at a time"}


def test_choices_and_what_is_kept():
    x = numbers(192)
    out, found = launched(signs, x)
    np.testing.assert_array_equal(out, np.where(x > 0, 1, 2).sum(1))
    assert [d.taken for d in found] == [True]
    x = numbers(128)
    want = np.exp(x).sum(1)
    out, found = launched(kept_exponentials, x)
    np.testing.assert_allclose(out, want, rtol=1e-5)
    assert not any(d.taken for d in found)


def test_sums_of_columns():
    x = numbers(96, 16)  # as 96 rows of 16
    out, _ = launched(columns, x)
    np.testing.assert_allclose(out, x.reshape(96, 16).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", [begun, written, kept], ids=lambda kernel: kernel.fn.__name__)
def test_others_stay_as_they_are(kernel):
    x = numbers(256)
    out, found = launched(kernel, x.copy())
    expected = 4 * (x[:, :BN] ** 2).sum(1) if kernel is written else (x * x).sum(1)
    np.testing.assert_allclose(out, expected, rtol=1e-4)
    assert not any(d.taken for d in found)


@tilewright.jit
def selected_by_rows(x, y, out, N, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, min(N, tl.program_id(0) * BM + BM), BN):
        n = start + tl.arange(0, BN)
        a, b = tl.load(x + n)[None, :], tl.load(y + m[:, None] * N + n)
        seen = n[None, :] <= m[:, None]
        if HOW == "alone":
            acc += tl.sum(tl.where(seen, a, 0.0) + tl.zeros((BM, BN), tl.float32), 1)
        elif HOW == "product":
            acc += tl.sum(tl.where(seen, a * b, 0.0), 1)
        elif HOW == "difference":
            acc += tl.sum(tl.where(seen, a - b, 0.0), 1)
        elif HOW == "exponential":
            acc += tl.sum(tl.where(seen, tl.exp(a - b), 0.0), 1)
        else:
            acc = tl.maximum(acc, tl.max(tl.where(seen, a, -float("inf")) + tl.zeros((BM, BN), tl.float32), 1))
    tl.store(out + m, acc)


@pytest.mark.parametrize("how", ["alone", "product", "difference", "exponential", "maximum"])
def test_conditions_of_rows_and_columns_mask_what_all_rows_share(how):
    """As a causal mask does: an element that is loaded once for all rows counts in some of them."""
    N = 128
    rng = np.random.default_rng(0)
    x, y, out = rng.standard_normal(N, np.float32), rng.standard_normal((N, N), np.float32), np.zeros(N, np.float32)
    selected_by_rows[(N // 32,)](x, y, out, N, HOW=how, BM=32, BN=32)
    seen = np.tri(N, dtype=bool)
    made = {
        "alone": x + 0 * y,
        "product": x * y,
        "difference": x - y,
        "exponential": np.exp(x - y),
        "maximum": x + 0 * y,
    }
    expected = np.where(seen, made[how], -np.inf).max(1, initial=0) if how == "maximum" else (made[how] * seen).sum(1)
    np.testing.assert_allclose(out, expected, rtol=2e-4, atol=2e-4)


@tilewright.jit
def every_second(x, w, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, even = tl.program_id(0) * BM + tl.arange(0, BM), tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        n = start + 2 * tl.arange(0, BN // 2)
        even += tl.sum(tl.load(x + m[:, None] * N + n) * tl.load(w + n), 1)
    tl.store(out + m, even)


def test_rows_of_every_second_element_are_no_dot():
    x, w, out = (np.random.default_rng(4).random(size).astype(np.float32) for size in ((32, 512), 512, 32))
    every_second[(1,)](x, w, out, 32, 512, 32, BN)
    compiled = every_second.warmup(x, w, out, 32, 512, 32, BN, grid=(1,))
    (said,) = [d for d in compiled.decisions if d.subject == REDUCTION_LOOPS.name]
    assert said.taken and said.text.endswith("elements of a row at a time"), "a dot would read operands one by one"
    np.testing.assert_allclose(out, x[:, ::2] @ w[::2], rtol=1e-5)
