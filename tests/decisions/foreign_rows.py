"""Reductions of rows and of columns as strangers write them: statistics, extremes, counts, sums.

Written without a look at the rules. Nothing is pinned: `benchmarks/foreign_forms.py` has sizes and what torch does,
`benchmarks/forms.py` times them, and `test_foreign.py` asks for right results.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

VARIANCES: list[Spelling] = []
MOMENTS: list[Spelling] = []
LOGARITHMS: list[Spelling] = []
PLACES: list[Spelling] = []
COLUMNS: list[Spelling] = []
LENGTHS: list[Spelling] = []
COUNTS: list[Spelling] = []


# --- variances of rows, by differences ---

_VARIANCES = "*fp32:16, *fp32:16, i32, i32, 4, 256, 1024"


@spelled(VARIANCES, _VARIANCES)
def variance_two_passes_whole(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        cols = tl.arange(0, ALL)
        ok = cols < N
        x = tl.load(x_ptr + row * N + cols, mask=ok & (row < M), other=0.0)
        mean = tl.sum(x, 0) / N
        d = tl.where(ok, x - mean, 0.0)
        tl.store(y_ptr + row, tl.sum(d * d, 0) / N, mask=row < M)


@spelled(VARIANCES, _VARIANCES)
def variance_two_loops(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            s = tl.zeros((BN,), tl.float32)
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                s += tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
            mean = tl.sum(s, axis=0) / N
            q = tl.zeros((BN,), tl.float32)
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
                d = tl.where(cols < N, x - mean, 0.0)
                q += d * d
            tl.store(y_ptr + row, tl.sum(q, axis=0) / N)


@spelled(VARIANCES, _VARIANCES)
def variance_welford_blocks(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            count = 0.0
            mean = 0.0
            m2 = 0.0
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                ok = cols < N
                x = tl.load(x_ptr + row * N + cols, mask=ok, other=0.0)
                size = min(N - n, BN).to(tl.float32)
                bm = tl.sum(x) / size
                d = tl.where(ok, x - bm, 0.0)
                b2 = tl.sum(d * d)
                delta = bm - mean
                both = count + size
                mean += delta * size / both
                m2 += b2 + delta * delta * count * size / both
                count = both
            tl.store(y_ptr + row, m2 / N)


# --- variances of rows, by sums and sums of squares ---

_MOMENTS = "*fp32:16, *fp32:16, i32, i32, 4, 256, 1024"


@spelled(MOMENTS, _MOMENTS)
def variance_squares(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            s = 0.0
            q = 0.0
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
                s += tl.sum(x)
                q += tl.sum(x * x)
            mean = s / N
            tl.store(y_ptr + row, q / N - mean * mean)


@spelled(MOMENTS, _MOMENTS)
def variance_squares_tile(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    s = tl.zeros((BM, BN), tl.float32)
    q = tl.zeros((BM, BN), tl.float32)
    for n in range(0, N, BN):
        cols = n + tl.arange(0, BN)
        x = tl.load(
            x_ptr + rows[:, None] * N + cols[None, :], mask=(rows < M)[:, None] & (cols < N)[None, :], other=0.0
        )
        s += x
        q += x * x
    mean = tl.sum(s, 1) / N
    tl.store(y_ptr + rows, tl.sum(q, 1) / N - mean * mean, mask=rows < M)


# --- log(sum(exp(x))) of rows ---

_LOGARITHMS = "*fp32:16, *fp32:16, i32, i32, 4, 256, 1024"


@spelled(LOGARITHMS, _LOGARITHMS)
def logsumexp_whole(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            cols = tl.arange(0, ALL)
            x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
            m = tl.max(x, axis=0)
            tl.store(y_ptr + row, m + tl.log(tl.sum(tl.exp(x - m), axis=0)))


@spelled(LOGARITHMS, _LOGARITHMS)
def logsumexp_two_loops(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            best = tl.full((BN,), -float("inf"), tl.float32)
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                best = tl.maximum(best, tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf")))
            m = tl.max(best, axis=0)
            s = tl.zeros((BN,), tl.float32)
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                s += tl.exp(tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf")) - m)
            tl.store(y_ptr + row, m + tl.log(tl.sum(s, axis=0)))


@spelled(LOGARITHMS, _LOGARITHMS)
def logsumexp_online(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            m = -float("inf")
            s = 0.0
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
                new = tl.maximum(m, tl.max(x, 0))
                s = s * tl.exp(m - new) + tl.sum(tl.exp(x - new), 0)
                m = new
            tl.store(y_ptr + row, m + tl.log(s))


@spelled(LOGARITHMS, _LOGARITHMS)
def logsumexp_tile(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    m = tl.full((BM,), -float("inf"), tl.float32)
    for n in range(0, N, BN):
        cols = n + tl.arange(0, BN)
        x = tl.load(
            x_ptr + rows[:, None] * N + cols[None, :],
            mask=(rows < M)[:, None] & (cols < N)[None, :],
            other=-float("inf"),
        )
        m = tl.maximum(m, tl.max(x, 1))
    s = tl.zeros((BM,), tl.float32)
    for n in range(0, N, BN):
        cols = n + tl.arange(0, BN)
        x = tl.load(
            x_ptr + rows[:, None] * N + cols[None, :],
            mask=(rows < M)[:, None] & (cols < N)[None, :],
            other=-float("inf"),
        )
        s += tl.sum(tl.exp(x - m[:, None]), 1)
    tl.store(y_ptr + rows, m + tl.log(s), mask=rows < M)


# --- places of the largest element of rows ---

_PLACES = "*fp32:16, *fp32:16, i32, i32, 4, 256, 1024"


@spelled(PLACES, _PLACES)
def argmax_whole(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            cols = tl.arange(0, ALL)
            x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
            tl.store(y_ptr + row, tl.argmax(x, 0))


@spelled(PLACES, _PLACES)
def argmax_running(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            best = -float("inf")
            at = 0
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
                v, i = tl.max(x, 0, return_indices=True)
                better = v > best
                at = tl.where(better, n + i, at)
                best = tl.where(better, v, best)
            tl.store(y_ptr + row, at)


@spelled(PLACES, _PLACES)
def argmax_lanes(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            best = tl.full((BN,), -float("inf"), tl.float32)
            at = tl.zeros((BN,), tl.int32)
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
                better = x > best
                best = tl.where(better, x, best)
                at = tl.where(better, cols, at)
            top = tl.max(best, 0)
            tl.store(y_ptr + row, tl.min(tl.where(best == top, at, N), 0))


@spelled(PLACES, _PLACES)
def argmax_first_equal(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            cols = tl.arange(0, ALL)
            x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
            top = tl.max(x, 0)
            tl.store(y_ptr + row, tl.min(tl.where(x == top, cols, N), 0))


# --- sums of columns ---

_COLUMNS = "*fp32:16, *fp32:16, i32, i32:16, 16, 128, 1024"


@spelled(COLUMNS, _COLUMNS)
def columns_row_by_row(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    p = x_ptr + cols
    for _ in range(M):
        acc += tl.load(p, mask=cols < N, other=0.0)
        p += N
    tl.store(y_ptr + cols, acc, mask=cols < N)


@spelled(COLUMNS, _COLUMNS)
def columns_each_step(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for m in range(0, M, BM):
        rows = m + tl.arange(0, BM)
        acc += tl.sum(
            tl.load(
                x_ptr + rows[:, None] * N + cols[None, :], mask=(rows < M)[:, None] & (cols < N)[None, :], other=0.0
            ),
            axis=0,
        )
    tl.store(y_ptr + cols, acc, mask=cols < N)


@spelled(COLUMNS, _COLUMNS)
def columns_at_end_downward(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(M, BM) - 1, -1, -1):
        rows = i * BM + tl.arange(0, BM)
        ok = (rows[:, None] < M) & (cols[None, :] < N)
        acc = acc + tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=ok, other=0.0)
    tl.store(y_ptr + cols, tl.sum(acc, axis=0), mask=cols < N)


@spelled(COLUMNS, _COLUMNS)
def columns_descriptor(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    X = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BM, BN])
    n0 = tl.program_id(0) * BN
    acc = tl.zeros((BN,), tl.float32)
    m = 0
    while m < M:
        acc += tl.sum(X.load([m, n0]), 0)
        m += BM
    cols = n0 + tl.arange(0, BN)
    tl.store(y_ptr + cols, acc, mask=cols < N)


# --- lengths of rows ---

_LENGTHS = "*fp32:16, *fp32:16, i32, i32, 4, 256, 1024"


@spelled(LENGTHS, _LENGTHS)
def length_each_step(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            acc = 0.0
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
                acc += tl.sum(x * x)
            tl.store(y_ptr + row, tl.sqrt(acc))


@spelled(LENGTHS, _LENGTHS)
def length_tile(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for n in range(0, N, BN):
        cols = n + tl.arange(0, BN)[None, :]
        x = tl.load(x_ptr + rows * N + cols, mask=(rows < M) & (cols < N), other=0.0).to(tl.float32)
        acc += x * x
    length = tl.sqrt(tl.sum(acc, 1, keep_dims=True))
    tl.store(y_ptr + rows, length, mask=rows < M)


@spelled(LENGTHS, _LENGTHS)
def length_whole(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, ALL)
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=(rows[:, None] < M) & (cols[None, :] < N), other=0.0)
    x = x.to(tl.float32)
    tl.store(y_ptr + rows, tl.sqrt(tl.sum(x * x, axis=1)), mask=rows < M)


# --- numbers of elements that are not zero, of rows ---

_COUNTS = "*fp32:16, *fp32:16, i32, i32, 4, 256, 1024"


@spelled(COUNTS, _COUNTS)
def count_cast(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            count = 0
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
                count += tl.sum((x != 0.0).to(tl.int32))
            tl.store(y_ptr + row, count)


@spelled(COUNTS, _COUNTS)
def count_where(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            count = tl.zeros((BN,), tl.int32)
            for n in range(0, N, BN):
                cols = n + tl.arange(0, BN)
                x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
                count += tl.where(x == 0.0, 0, 1)
            tl.store(y_ptr + row, tl.sum(count, 0))


@spelled(COUNTS, _COUNTS)
def count_tile(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, ALL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    count = tl.zeros((BM,), tl.int32)
    for n in range(0, N, BN):
        cols = n + tl.arange(0, BN)
        ok = (rows[:, None] < M) & (cols[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=ok)
        count += tl.sum(((x != 0.0) & ok).to(tl.int32), 1)
    tl.store(y_ptr + rows, count, mask=rows < M)
