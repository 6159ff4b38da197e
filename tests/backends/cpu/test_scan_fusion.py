"""Stores that run in the loop of the scan that they store: every direction and dim, and where they must wait."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.plan.subjects import FUSION
from tilewright.ir.subjects import REDUCTION

_RNG = np.random.default_rng(5)


def _numbers(*shape: int, dtype: type = np.int32) -> np.ndarray:
    return _RNG.integers(-9, 9, shape).astype(dtype)


def _joined(made) -> list[bool]:
    """The answers to whether a store runs in another loop."""
    return [d.taken for d in made.decisions if d.subject == FUSION.name]


@tilewright.jit
def row(x, out, n, B: tl.constexpr, FROM_END: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, i < n, 0)
    tl.store(out + i, tl.cumsum(value, 0, reverse=FROM_END) * 2 - value, i < n)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.float16, np.int8])
@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize(("n", "block"), [(64, 64), (61, 64), (3, 64), (150, 128), (20, 4), (1, 1), (90, 96)])
def test_rows(dtype: type, from_end: bool, n: int, block: int) -> None:
    x, out = (_numbers(n) % 3).astype(dtype), np.full(n, 77, dtype)
    made = row[(-(-n // block),)](x, out, n, block, from_end)
    padded = np.pad(x, (0, -n % block)).reshape(-1, block).astype(np.int64)
    sums = padded[:, ::-1].cumsum(1)[:, ::-1] if from_end else padded.cumsum(1)
    assert out.tolist() == (2 * sums - padded).reshape(-1)[:n].astype(dtype).tolist()
    assert _joined(made) == [True] * (block > 1)  # of one element there is nothing to scan


@tilewright.jit
def tile(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, FROM_END: tl.constexpr):
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (i < rows) & (j < columns)
    value = tl.load(x + i * columns + j, inside, 1)
    tl.store(out + i * columns + j, tl.cumprod(value, AXIS, reverse=FROM_END) + i, inside)


@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(5, 40), (8, 64), (30, 3), (1, 1)])
def test_tiles(shape: tuple[int, int], axis: int, from_end: bool) -> None:
    x, out = _numbers(*shape), np.full(shape, 77, np.int32)
    made = tile[(1,)](x, out, *shape, 32, 64, axis, from_end)
    want = np.flip(np.flip(x, axis).cumprod(axis, np.int32), axis) if from_end else x.cumprod(axis, np.int32)
    assert out.tolist() == (want + np.arange(shape[0], dtype=np.int32)[:, None]).tolist()
    assert _joined(made) == [True]


@tilewright.jit
def across(x, out, N: tl.constexpr):
    """What is stored lies along the other dim."""
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + j * N + i, tl.cumsum(tl.load(x + i * N + j), 1))


def test_stores_across_are_apart() -> None:
    x, out = _numbers(32, 32), np.zeros((32, 32), np.int32)
    made = across[(1,)](x, out, 32)
    assert out.tolist() == x.cumsum(1).T.tolist()
    assert True not in _joined(made)


@tilewright.jit
def wanted_elsewhere(x, out, tops, other, N: tl.constexpr):
    """The largest sum waits for all sums, and so does the store that is scaled by it."""
    i = tl.arange(0, N)
    sums = tl.cumsum(tl.load(x + i), 0)
    tl.store(out + i, sums + 1)
    top = tl.max(sums, 0)
    tl.store(tops, top)
    tl.store(other + i, top - sums)


def test_results_that_others_read() -> None:
    x, out, other, tops = _numbers(96), np.zeros(96, np.int32), np.zeros(96, np.int32), np.zeros(1, np.int32)
    wanted_elsewhere[(1,)](x, out, tops, other, 96)
    sums = x.cumsum()
    assert out.tolist() == (sums + 1).tolist() and tops[0] == sums.max()
    assert other.tolist() == (sums.max() - sums).tolist()


@tilewright.jit
def costly(x, out, totals, N: tl.constexpr):
    """An exponential of sums, and one before them, that another pass wants too."""
    i = tl.arange(0, N)
    value = tl.exp(tl.load(x + i))
    grown = tl.exp(-tl.cumsum(value, 0))
    tl.store(out + i, grown)
    tl.store(totals, tl.sum(grown, 0))
    tl.store(totals + 1, tl.max(value, 0))


def test_costly_results_that_others_read() -> None:
    x, out, totals = _RNG.random(64, np.float32), np.zeros(64, np.float32), np.zeros(2, np.float32)
    costly[(1,)](x, out, totals, 64)
    value = np.exp(x)
    np.testing.assert_allclose(out, np.exp(-value.cumsum()), rtol=1e-4)
    np.testing.assert_allclose(totals, [out.sum(), value.max()], rtol=1e-5)


@tilewright.jit
def shifted_back(x, at, N: tl.constexpr):
    """The store writes what the scan has yet to read, if it runs too early."""
    i = tl.arange(0, N)
    tl.store(x + i + at, tl.cumsum(tl.load(x + i), 0))


@pytest.mark.parametrize("at", [0, 1, 3, 16])
def test_stores_to_what_is_scanned(at: int) -> None:
    x = _numbers(96 + at)
    want = np.concatenate([x[:at], x[:96].cumsum()]).tolist()
    shifted_back[(1,)](x, at, 96)
    assert x.tolist() == want


@tilewright.jit
def stored_between(x, y, out, N: tl.constexpr):
    """A store between the scan and its own changes what both have read."""
    i = tl.arange(0, N)
    value = tl.load(x + i)
    sums = tl.cumsum(value, 0)
    tl.store(x + i, tl.load(y + N - 1 - i))
    tl.store(out + i, sums + value + tl.load(x + i))


def test_stores_between() -> None:
    x, y, out = _numbers(96), _numbers(96), np.zeros(96, np.int32)
    want = x.cumsum() + x + y[::-1]
    stored_between[(1,)](x, y, out, 96)
    assert out.tolist() == want.tolist() and x.tolist() == y[::-1].tolist()


@tilewright.jit
def later(a, b):
    return tl.maximum(a, b)


@tilewright.jit
def last_place(value, place, other, there):
    return tl.where(other >= value, other, value), tl.where(other >= value, there, place)


@tilewright.jit
def places(x, tops, at, any_so_far, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    top, place = tl.associative_scan((value, i), 0, last_place)
    tl.store(tops + i, top)
    tl.store(at + i, place)
    tl.store(any_so_far + i, tl.associative_scan(value > 5, 0, later), i < N - 1)


def test_several_results_and_truth() -> None:
    x, tops, at, seen = _numbers(64), np.zeros(64, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int8)
    places[(1,)](x, tops, at, seen, 64)
    best = np.maximum.accumulate(x)
    assert tops.tolist() == best.tolist()
    assert at.tolist() == [max(k for k in range(n + 1) if x[k] == best[n]) for n in range(64)]
    assert seen.tolist() == [*(np.maximum.accumulate(x > 5)[:-1].astype(int)), 0]


@tilewright.jit
def in_a_loop(x, out, n, B: tl.constexpr):
    before = 0
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        value = tl.load(x + i, i < n, 0)
        tl.store(out + i, before + tl.cumsum(value, 0), i < n)
        before += tl.sum(value, 0)


def test_scans_in_loops() -> None:
    x, out = _numbers(777), np.zeros(777, np.int32)
    in_a_loop[(1,)](x, out, 777, 128)
    assert out.tolist() == x.cumsum().tolist()


def test_past_the_caches() -> None:
    """16 MiB and more."""
    x, out = _numbers(1 << 22, dtype=np.float32), np.zeros(1 << 22, np.float32)
    row[(1 << 10,)](x, out, x.size, 1 << 12, False)
    want = 2 * x.reshape(-1, 1 << 12).cumsum(1) - x.reshape(-1, 1 << 12)
    assert np.array_equal(out, want.reshape(-1))


@tilewright.jit
def with_totals(x, out, totals, rows, columns, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, END: tl.constexpr):
    """Twice: what is carried on to the next part is a total."""
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    before = tl.zeros((C if AXIS == 0 else R,), totals.dtype.element_ty)
    for part in range(2):
        inside = (i < rows) & (j < columns)
        at = part * rows * columns + i * columns + j
        value = tl.load(x + at, inside, 0)
        tl.store(out + at, tl.cumsum(value, AXIS, reverse=END) + tl.expand_dims(before, AXIS), inside)
        before += tl.sum(value, AXIS)
    tl.store(totals + tl.arange(0, C if AXIS == 0 else R), before)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.float16])
@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(5, 40), (8, 64), (30, 3), (1, 1)])
def test_totals(shape: tuple[int, int], axis: int, from_end: bool, dtype: type) -> None:
    x, out = (_numbers(2, *shape) % 3).astype(dtype), np.full((2, *shape), 77, dtype)
    totals = np.zeros(64 if axis == 0 else 32, dtype)
    made = with_totals[(1,)](x, out, totals, *shape, 32, 64, axis, from_end)
    along = axis + 1
    sums = np.flip(np.flip(x, along).cumsum(along), along) if from_end else x.cumsum(along)
    sums[1] += np.expand_dims(x[0].sum(axis), axis).astype(dtype)
    assert out.tolist() == sums.tolist()
    assert totals[: shape[1 - axis]].tolist() == x.sum((0, along)).tolist()
    said = [d.text for d in made.decisions if d.subject == REDUCTION.name]
    assert any(text == "the last element of a scan of the same elements" for text in said) == (dtype is not np.float16)


@tilewright.jit
def blocks_of_a_row(x, out, n, HOW: tl.constexpr, B: tl.constexpr):
    before = 0.0 if HOW == "sum" else 1.0
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        value = tl.load(x + i, i < n, 0.0 if HOW == "sum" else 1.0)
        if HOW == "sum":
            tl.store(out + i, tl.cumsum(value, 0) + before, i < n)
            before += tl.sum(value, 0)
        else:
            tl.store(out + i, tl.cumprod(value, 0) * before, i < n)
            before *= tl.reduce(value, 0, _times)


@tilewright.jit
def _times(a, b):
    return a * b


@pytest.mark.parametrize("how", ["sum", "product"])
@pytest.mark.parametrize("n", [1, 63, 64, 100, 1000])
def test_a_carry_from_block_to_block(how: str, n: int) -> None:
    x, out = np.random.default_rng(n).uniform(0.9, 1.1, n).astype(np.float32), np.zeros(n, np.float32)
    blocks_of_a_row[(1,)](x, out, n, how, 64)
    want = x.astype(np.float64).cumsum() if how == "sum" else x.astype(np.float64).cumprod()
    np.testing.assert_allclose(out, want, rtol=1e-4)
