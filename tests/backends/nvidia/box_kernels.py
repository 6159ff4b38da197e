"""Products through pointers in spellings whose loads read boxes of tensors, and some whose loads do not."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl

TILES = {"BM": 64, "BN": 64, "BK": 32}


@tw.jit
def store(c, acc, m, n, M, N, cm):
    tl.store(c + m[:, None] * cm + n[None, :], acc, (m[:, None] < M) & (n[None, :] < N))


@tw.jit
def product(
    a, b, c, M, N, K, am, ak, bk, bn, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASK: tl.constexpr = 2,
    OTHER: tl.constexpr = 0, WIDE: tl.constexpr = False, ACC: tl.constexpr = tl.float32,
):  # fmt: skip
    """MASK is 0 for no mask, 1 for rows and columns, 2 for all of it; WIDE computes offsets with 64 bits."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    if WIDE:
        m, n, k = m.to(tl.int64), n.to(tl.int64), k.to(tl.int64)
    left, right = a + m[:, None] * am + k[None, :] * ak, b + k[:, None] * bk + n[None, :] * bn
    acc = tl.zeros((BM, BN), ACC)
    for i in range(tl.cdiv(K, BK)):
        rest = K - i * BK
        if MASK == 0:
            x, y = tl.load(left), tl.load(right)
        elif MASK == 1:
            x, y = tl.load(left, m[:, None] < M, OTHER), tl.load(right, n[None, :] < N, OTHER)
        else:
            x = tl.load(left, (m[:, None] < M) & (k[None, :] < rest), OTHER)
            y = tl.load(right, (n[None, :] < N) & (k[:, None] < rest), OTHER)
        acc = tl.dot(x, y, acc, out_dtype=ACC)
        left += BK * ak
        right += BK * bk
    store(c, acc, m, n, M, N, cm)


@tw.jit
def described(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Descriptors that the kernel makes; the strides of the second come as 64 bits."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N.to(tl.int64), 1], [BK, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(left.load([m, k]), right.load([k, n]), acc)
    store(c, acc, m + tl.arange(0, BM), n + tl.arange(0, BN), M, N, N)


@tw.jit
def batched(a, b, c, M, N, K, az, am, bz, bn, cz, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """B by columns, batches by pointers that are moved first, places in a tile that lie before the tensor."""
    z = tl.program_id(2)
    a, b, c = a + z * az, b + z * bz, c + z * cz
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(-BK, K, BK):
        k = i + tl.arange(0, BK)
        inside = (k >= 0) & (k < K)
        x = tl.load(a + m[:, None] * am + k[None, :], (m < M)[:, None] & inside[None, :], 0)
        y = tl.load(b + k[:, None] + n[None, :] * bn, inside[:, None] & (n < N)[None, :], 0)
        acc = tl.dot(x, y, acc)
    store(c, acc, m, n, M, N, cm)


@tw.jit
def of_numbers(a, b, c, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Strides are numbers; rows of B are as long as its tile."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], m[:, None] < M, 0)
        y = tl.load(b + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    store(c, acc, m, n, M, N, N)


@tw.jit
def persistent(a, b, c, M, N, K, tiles, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = tile // columns * BM + tl.arange(0, BM), tile % columns * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for i in range(0, K, BK):
            k = i + tl.arange(0, BK)
            x = tl.load(a + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), 0)
            y = tl.load(b + k[:, None] * N + n[None, :], (k[:, None] < K) & (n[None, :] < N), 0)
            acc = tl.dot(x, y, acc)
        store(c, acc, m, n, M, N, N)


@tw.jit
def wrapped(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ALL: tl.constexpr = False,
    FIRST: tl.constexpr = 0,
):  # fmt: skip
    """ALL stores the rows and columns behind the last ones, too; matrices begin FIRST elements on."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + FIRST + (m % M)[:, None] * K + k[None, :], b + FIRST + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK * N
    if ALL:
        tl.store(c + m[:, None] * 128 + n[None, :], acc)
    else:
        store(c, (acc * 1.0).to(c.dtype.element_ty), m, n, M, N, N)


@tw.jit
def wrapped_and_added(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The product is added to what the result is."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + (m % M)[:, None] * K + k[None, :], b + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK * N
    tl.atomic_add(c + m[:, None] * N + n[None, :], acc, (m < M)[:, None] & (n < N)[None, :])


@tw.jit
def wrapped_sums(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Sums of the rows of a product, chosen by a branch: each is of one row, and of all columns."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    left, right = a + (m % M)[:, None] * K + k[None, :], b + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK * N
    sums = tl.sum(acc, 1)
    if M > 1000:
        sums += 1
    tl.store(c + m[:, None], sums[:, None], m[:, None] < M)


@tw.jit
def ahead(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Operands are loaded an iteration before they are used."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    x, y = (
        tl.load(left, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0),
        tl.load(right, mask=(n[None, :] < N) & (k[:, None] < K), other=0.0),
    )
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        left += BK
        right += BK * N
        u = tl.load(left, mask=(m[:, None] < M) & (k[None, :] < K - i - BK), other=0.0)
        v = tl.load(right, mask=(n[None, :] < N) & (k[:, None] < K - i - BK), other=0.0)
        acc = tl.dot(x, y, acc)
        x, y = u, v
    store(c, acc, m, n, M, N, N)


@tw.jit
def nested(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for block in range(0, K, 2 * BK):
        for i in range(block, block + 2 * BK, BK):
            k = i + tl.arange(0, BK)
            acc = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]), acc)
    store(c, acc, m, n, M, N, N)


@tw.jit
def backwards(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = K - BK - i + tl.arange(0, BK)
        acc = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]), acc)
    store(c, acc, m, n, M, N, N)


@tw.jit
def downwards(
    a, b, c, M, N, K, am, bk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WAY: tl.constexpr = 0,
    OWN: tl.constexpr = True,
):  # fmt: skip
    """Blocks of K from its end: a loop that counts down, one that counts whole blocks, or one over all with a mask."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    if not OWN:
        am = K
    acc = tl.zeros((BM, BN), tl.float32)
    if WAY == 0:
        for i in range(K - BK, -1, -BK):
            k = i + tl.arange(0, BK)
            acc = tl.dot(tl.load(a + m[:, None] * am + k[None, :]), tl.load(b + k[:, None] * bk + n[None, :]), acc)
    elif WAY == 1:
        for i in range(K // BK):
            k = K - BK - i * BK + tl.arange(0, BK)
            acc = tl.dot(tl.load(a + m[:, None] * am + k[None, :]), tl.load(b + k[:, None] * bk + n[None, :]), acc)
    else:
        for i in range(tl.cdiv(K, BK)):
            k = (tl.cdiv(K, BK) - 1 - i) * BK + tl.arange(0, BK)
            x = tl.load(a + m[:, None] * am + k[None, :], k[None, :] < K, 0)
            acc = tl.dot(x, tl.load(b + k[:, None] * bk + n[None, :], k[:, None] < K, 0), acc)
    store(c, acc, m, n, M, N, N)


@tw.jit
def growing(a, b, c, M, N, K, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Pointers go one block further in each iteration."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(count):
        acc = tl.dot(tl.load(left, m[:, None] < M, 0), tl.load(right, n[None, :] < N, 0), acc)
        left += BK * (i + 1)
        right += BK * N * (i + 1)
    store(c, acc, m, n, M, N, N)


@tw.jit
def far(a, b, c, M, N, K, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Pointers go as far as an argument says, times a block."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(count):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK * N
    store(c, acc, m, n, M, N, N)


@tw.jit
def shifted(a, b, c, M, N, K, first, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows that begin where an argument says: it may be negative."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a + (m + first)[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * N + n[None, :], n[None, :] < N, 0)
        acc = tl.dot(x, y, acc)
    store(c, acc, m, n, M, N, N)


def aligned(rows: int, columns: int, dtype: Any = np.float16) -> np.ndarray[Any, Any]:
    """An array at a multiple of 64."""
    size = rows * columns * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:size].view(dtype).reshape(rows, columns)


def operands(m: int, n: int, k: int, dtype: Any = np.float16, out: Any = np.float32) -> list[np.ndarray[Any, Any]]:
    """A and B of small integers, and room for the result."""
    random = np.random.default_rng(m + n + k)
    found = [aligned(m, k, dtype), aligned(k, n, dtype), aligned(m, n, out)]
    for array in found[:2]:
        array[:] = random.integers(-3, 4, array.shape)
    found[2][:] = -1
    return found
