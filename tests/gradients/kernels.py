"""Kernels to differentiate, each with the same computation in PyTorch."""

from __future__ import annotations

import tilewright
import tilewright.language as tl


@tilewright.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)


@tilewright.jit
def softmax(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * stride + columns, mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + columns, e / tl.sum(e, axis=0), mask)


@tilewright.jit
def layer_norm(x_ptr, w_ptr, b_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    """Rows in blocks: two loops that sum, one that stores."""
    row = tl.program_id(0)
    x_ptr += row * n
    out_ptr += row * n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total) / n
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, columns < n, other=0.0).to(tl.float32)
        x = tl.where(columns < n, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        x = tl.load(x_ptr + columns, mask, other=0.0).to(tl.float32)
        w, b = tl.load(w_ptr + columns, mask), tl.load(b_ptr + columns, mask)
        tl.store(out_ptr + columns, (x - mean) * rstd * w + b, mask)


@tilewright.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Pointers that move, as Triton's tutorial has them."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * K + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, (rows[:, None] < M) & (depth[None, :] < K - k * BK), other=0.0)
        b = tl.load(b_ptrs, (depth[:, None] < K - k * BK) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK
        b_ptrs += BK * N
    c = tl.where(acc > 0, acc, 0.1 * acc)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], c, (rows[:, None] < M) & (columns[None, :] < N))


@tilewright.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, scale, n, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Online softmax: the running maximum and what it scales are no sums."""
    rows, dims = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + dims[None, :], rows[:, None] < n, other=0.0)
    largest = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(k_ptr + keys[:, None] * D + dims[None, :], keys[:, None] < n, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * D + dims[None, :], keys[:, None] < n, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where((keys[None, :] < n) & (keys[None, :] <= rows[:, None]), s, -1e30)
        now = tl.maximum(largest, tl.max(s, axis=1))
        alpha = tl.exp(largest - now)
        p = tl.exp(s - now[:, None])
        total = total * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p, v, acc * alpha[:, None], input_precision="ieee")
        largest = now
    tl.store(out_ptr + rows[:, None] * D + dims[None, :], acc / total[:, None], rows[:, None] < n)


@tilewright.jit
def gather(table_ptr, index_ptr, out_ptr, n, D: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a table, of which some are wanted several times."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, D)
    rows = tl.load(index_ptr + places, places < n, other=0)
    x = tl.load(table_ptr + rows[:, None] * D + dims[None, :], places[:, None] < n, other=0.0)
    tl.store(out_ptr + places[:, None] * D + dims[None, :], x * x, places[:, None] < n)


@tilewright.jit
def scatter(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    rows = tl.load(index_ptr + places, mask, other=0)
    tl.atomic_add(out_ptr + rows, tl.exp(tl.load(x_ptr + places, mask, other=0.0)), mask)


@tilewright.jit
def recurrence(x_ptr, w_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    """A loop whose carried value is no sum, inside of one whose is."""
    lanes = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + lanes)
    total = tl.zeros((BLOCK,), tl.float32)
    for outer in range(2):
        s = tl.zeros((BLOCK,), tl.float32)
        for step in range(steps + outer):
            s = tl.sin(w * s + tl.load(x_ptr + step * BLOCK + lanes))
        total += s * s
    tl.store(out_ptr + lanes, total)


@tilewright.jit
def branches(x_ptr, flag_ptr, out_ptr, BLOCK: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * BLOCK + lanes)
    y = x
    if tl.load(flag_ptr + row) > 0:
        y = tl.exp(x) * tl.sum(x)
        if tl.sum(x) > 0:
            y = y * 2
    else:
        for _ in range(3):
            y = y * x
    tl.store(out_ptr + row * BLOCK + lanes, y)


@tilewright.jit
def scaled(x_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, offsets < n) / scale, offsets < n)


@tilewright.jit
def stored_twice(x_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes)
    tl.store(out_ptr + lanes, x * 5)
    tl.store(out_ptr + lanes, x * x, lanes < BLOCK // 2)


@tilewright.jit
def shapes(x_ptr, y_ptr, out_ptr):
    """What moves elements, and running sums."""
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 4)[None, :]
    x, y = tl.load(x_ptr + i * 4 + j), tl.load(y_ptr + tl.arange(0, 8))
    both = tl.join(tl.trans(x), tl.broadcast_to(y[None, :], (4, 8)))
    first, second = tl.split(both)
    z = tl.reshape(first * first + second, (32,))
    z = tl.cumsum(z, 0) + tl.gather(z, 31 - tl.arange(0, 32) // 2, 0)
    tl.store(out_ptr + tl.arange(0, 32), z)
