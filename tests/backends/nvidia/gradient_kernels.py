"""The gradient of attention: loops in which products read what is computed of others, as it is and transposed."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def of_keys(
    q, k, v, g, most, less, dk, dv, length, CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr
):
    """Gradients of a block of keys and of values, over the queries; keys are read transposed, and dk is written so."""
    column = tl.program_id(0) * N
    n, w = column + tl.arange(0, N), tl.arange(0, WIDTH)
    dk_sum, dv_sum = tl.zeros([WIDTH, N], tl.float32), tl.zeros([N, WIDTH], tl.float32)
    for start in tl.range(column // M * M if CAUSAL else 0, length, M):
        m = start + tl.arange(0, M)
        queries = tl.load(q + m[:, None] * WIDTH + w[None, :])
        ups = tl.load(g + m[:, None] * WIDTH + w[None, :])
        scores = tl.dot(queries, tl.load(k + n[None, :] * WIDTH + w[:, None]))
        if CAUSAL:
            scores = tl.where(m[:, None] >= n[None, :], scores, -float("inf"))
        shares = tl.exp2(scores - tl.load(most + m)[:, None])
        dv_sum = tl.dot(tl.trans(shares.to(q.dtype.element_ty)), ups, dv_sum)
        values = tl.load(v + n[:, None] * WIDTH + w[None, :])
        parts = (tl.dot(ups, tl.trans(values)) - tl.load(less + m)[:, None]) * shares
        dk_sum = tl.dot(tl.trans(queries), parts.to(q.dtype.element_ty), dk_sum)
    tl.store(dk + n[None, :] * WIDTH + w[:, None], dk_sum)
    tl.store(dv + n[:, None] * WIDTH + w[None, :], dv_sum)


@tw.jit
def of_queries(
    q, k, v, g, most, less, dq, length, CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr
):
    """Gradients of a block of queries, over the keys."""
    row = tl.program_id(0) * M
    m, w = row + tl.arange(0, M), tl.arange(0, WIDTH)
    queries = tl.load(q + m[:, None] * WIDTH + w[None, :])
    ups = tl.load(g + m[:, None] * WIDTH + w[None, :])
    highest, lower = tl.load(most + m), tl.load(less + m)
    dq_sum = tl.zeros([M, WIDTH], tl.float32)
    for start in tl.range(0, tl.minimum(row + M, length) if CAUSAL else length, N):
        n = start + tl.arange(0, N)
        keys = tl.load(k + n[:, None] * WIDTH + w[None, :])
        values = tl.load(v + n[:, None] * WIDTH + w[None, :])
        scores = tl.dot(queries, tl.trans(keys))
        if CAUSAL:
            scores = tl.where(m[:, None] >= n[None, :], scores, -float("inf"))
        shares = tl.exp2(scores - highest[:, None])
        parts = (tl.dot(ups, tl.trans(values)) - lower[:, None]) * shares
        dq_sum = tl.dot(parts.to(q.dtype.element_ty), keys, dq_sum)
    tl.store(dq + m[:, None] * WIDTH + w[None, :], dq_sum)


@tw.jit
def read_otherwise(q, k, v, out, sums, length, M: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr):
    """Shares that a product reads transposed, and whose rows are summed: they stay as they are."""
    n, w = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, WIDTH)
    found, total = tl.zeros([N, WIDTH], tl.float32), tl.zeros([N], tl.float32)
    for start in tl.range(0, length, M):
        m = start + tl.arange(0, M)
        queries = tl.load(q + m[:, None] * WIDTH + w[None, :])
        shares = tl.exp2(tl.dot(queries, tl.load(k + n[None, :] * WIDTH + w[:, None])))
        total += tl.sum(shares, 0)
        values = tl.load(v + m[:, None] * WIDTH + w[None, :])
        found = tl.dot(tl.trans(shares.to(q.dtype.element_ty)), values, found)
    tl.store(out + n[:, None] * WIDTH + w[None, :], found)
    tl.store(sums + n, total)
