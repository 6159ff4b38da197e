"""Products of matrices as libraries write them: in groups, persistent, split, batched, fused, by descriptors."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves

F = torch.nn.functional


@triton.jit
def matmul_kernel(
    A, B, C, M, N, K, sam, sak, sbk, sbn, scm, scn, ACTIVATION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    grid_m, grid_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * grid_n
    first = (pid // in_group) * GROUP
    size = min(grid_m - first, GROUP)
    pid_m, pid_n = first + (pid % in_group) % size, (pid % in_group) // size
    rm, rn = (pid_m * BM + tl.arange(0, BM)) % M, (pid_n * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a = A + (rm[:, None] * sam + rk[None, :] * sak)
    b = B + (rk[:, None] * sbk + rn[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=rk[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK * sak
        b += BK * sbk
    if ACTIVATION == "leaky_relu":
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    c = acc.to(C.dtype.element_ty)
    om, on = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    tl.store(C + scm * om[:, None] + scn * on[None, :], c, mask=(om[:, None] < M) & (on[None, :] < N))


@case({"m": 35, "n": 20, "k": 50}, {"m": 1000, "n": 1111, "k": 777}, 5e-3)
def product_in_groups_with_any_strides(new, m, n, k) -> Pairs:
    pairs = []
    for a, b in (
        (new.normal(m, k, dtype=torch.float16), new.normal(n, k, dtype=torch.float16).T),
        (new.normal(k, m, dtype=torch.float16).T, new.normal(k, n, dtype=torch.float16)),
    ):
        c = new.empty(m, n, dtype=torch.float16)
        matmul_kernel[(triton.cdiv(m, 16) * triton.cdiv(n, 16),)](
            a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), ACTIVATION="leaky_relu", BM=16, BN=16, BK=32,
            GROUP=2,
        )  # fmt: skip
        pairs.append((c, F.leaky_relu(a.double() @ b.double())))
    dc, da, db = new.normal(m, n, dtype=torch.float16), new.empty(m, k), new.empty(k, n)
    for x, y, out in ((dc, b.T, da), (a.T, dc, db)):
        rows, columns, inner = *out.shape, x.shape[1]
        matmul_kernel[(triton.cdiv(rows, 16) * triton.cdiv(columns, 16),)](
            x, y, out, rows, columns, inner, *x.stride(), *y.stride(), *out.stride(), ACTIVATION="", BM=16, BN=16,
            BK=32, GROUP=2,
        )  # fmt: skip
    a64, b64 = leaves(a, b)
    return [*pairs, *zip((da, db), gradients(a64 @ b64, dc, a64, b64), strict=True)]


@triton.jit
def persistent_kernel(A, B, C, bias, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(A, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(B, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(C, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), flatten=True):
        m, n = (tile // across) * BM, (tile % across) * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, acc)
        on = n + tl.arange(0, BN)
        acc += tl.load(bias + on, mask=on < N, other=0.0)[None, :]
        c_desc.store([m, n], acc.to(C.dtype.element_ty))


@case({"m": 40, "n": 24, "k": 32}, {"m": 1000, "n": 1024, "k": 512}, 1e-2)
def product_by_persistent_programs_and_descriptors(new, m, n, k) -> Pairs:
    a, b, bias = new.normal(m, k, dtype=torch.bfloat16), new.normal(n, k, dtype=torch.bfloat16), new.normal(n)
    c = new.empty(m, n, dtype=torch.bfloat16)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=new.device))
    persistent_kernel[(3,)](a, b, c, bias, m, n, k, BM=16, BN=16, BK=16)
    return [(c, F.linear(a.double(), b.double(), bias.double()))]


@triton.jit
def split_k_kernel(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    pid, part = tl.program_id(0), tl.program_id(1)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    rm, rn = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    rk = part * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK * SPLIT)):
        left = K - k * (BK * SPLIT)
        a = tl.load(A + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = tl.load(B + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        if left > 0:
            acc += tl.dot(a, b, input_precision="ieee")
        rk += BK * SPLIT
    tl.atomic_add(C + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N), sem="relaxed")


@case({"m": 10, "n": 20, "k": 100}, {"m": 64, "n": 512, "k": 8192}, 1e-4)
def product_split_along_its_sum(new, m, n, k) -> Pairs:
    a, b, c = new.normal(m, k), new.normal(k, n), new.zeros(m, n)
    grid = (triton.cdiv(m, 16) * triton.cdiv(n, 16), 4)
    split_k_kernel[grid](a, b, c, m, n, k, BM=16, BN=16, BK=16, SPLIT=4)
    return [(c, a.double() @ b.double())]


@triton.jit
def batched_kernel(A, B, C, BATCH, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BB: tl.constexpr):
    """Small matrices, several a program, as one three-dimensional product."""
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    ok = (b < BATCH)[:, None, None]
    x = tl.load(A + (b[:, None, None] * M + m[None, :, None]) * K + k[None, None, :], mask=ok, other=0.0)
    y = tl.load(B + (b[:, None, None] * K + k[None, :, None]) * N + n[None, None, :], mask=ok, other=0.0)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(C + (b[:, None, None] * M + m[None, :, None]) * N + n[None, None, :], z, mask=ok)


@case({"b": 5}, {"b": 5000}, 1e-4)
def batches_of_small_products(new, b) -> Pairs:
    x, y, z = new.normal(b, 16, 32), new.normal(b, 32, 16), new.empty(b, 16, 16)
    batched_kernel[(triton.cdiv(b, 2),)](x, y, z, b, M=16, N=16, K=32, BB=2)
    return [(z, x.double() @ y.double())]


@triton.jit
def gemv_kernel(W, x, y, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BK), tl.float32)
    for k in range(0, K, BK):
        c = k + tl.arange(0, BK)
        w = tl.load(
            W + rows.to(tl.int64)[:, None] * K + c[None, :], mask=(rows < M)[:, None] & (c < K)[None, :], other=0
        )
        acc += w.to(tl.float32) * tl.load(x + c, mask=c < K, other=0.0)[None, :]
    tl.store(y + rows, tl.sum(acc, axis=1), mask=rows < M)


@case({"m": 30, "k": 50}, {"m": 8000, "k": 8192}, 1e-4)
def matrix_times_vector(new, m, k) -> Pairs:
    w, x, y = new.normal(m, k, dtype=torch.bfloat16), new.normal(k), new.empty(m)
    gemv_kernel[(triton.cdiv(m, 8),)](w, x, y, m, k, BM=8, BK=32)
    return [(y, w.double() @ x.double())]


@triton.jit
def mlp_kernel(X, W1, W2, Y, M, H, D: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr):
    """Two products, the first never stored."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    x = tl.load(X + rm[:, None] * D + d[None, :], mask=rm[:, None] < M, other=0.0)
    out = tl.zeros((BM, D), tl.float32)
    for h in range(0, H, BH):
        rh = h + tl.arange(0, BH)
        w1 = tl.load(W1 + d[:, None] * H + rh[None, :], mask=rh[None, :] < H, other=0.0)
        a = tl.maximum(tl.dot(x, w1), 0.0).to(x.dtype)
        w2 = tl.load(W2 + rh[:, None] * D + d[None, :], mask=rh[:, None] < H, other=0.0)
        out = tl.dot(a, w2, out)
    tl.store(Y + rm[:, None] * D + d[None, :], out, mask=rm[:, None] < M)


@case({"m": 20, "h": 40, "d": 16}, {"m": 2000, "h": 512, "d": 128}, 1e-2)
def two_products_in_one_kernel(new, m, h, d) -> Pairs:
    x, w1 = new.normal(m, d, dtype=torch.float16), new.normal(d, h, dtype=torch.float16)
    w2, y = new.normal(h, d, dtype=torch.float16), new.empty(m, d)
    mlp_kernel[(triton.cdiv(m, 16),)](x, w1, w2, y, m, h, D=d, BM=16, BH=16)
    return [(y, (x.double() @ w1.double()).relu() @ w2.double())]


@triton.jit
def lora_kernel(X, A, B, which, Y, M, N, K: tl.constexpr, R: tl.constexpr, BN: tl.constexpr):
    """A low-rank addition, the adapter by row; negative adapters add nothing."""
    row = tl.program_id(0)
    adapter = tl.load(which + row)
    if adapter < 0:
        return
    r, k = tl.arange(0, R), tl.arange(0, K)
    x = tl.load(X + row * K + k)
    low = tl.sum(tl.load(A + adapter * R * K + r[:, None] * K + k[None, :]) * x[None, :], 1)
    for n in range(0, N, BN):
        c = n + tl.arange(0, BN)
        b = tl.load(B + adapter * N * R + c[:, None] * R + r[None, :], mask=c[:, None] < N, other=0.0)
        y = tl.load(Y + row * N + c, mask=c < N, other=0.0)
        tl.store(Y + row * N + c, y + tl.sum(b * low[None, :], 1), mask=c < N)


@case({"m": 6, "n": 20, "k": 16}, {"m": 500, "n": 2000, "k": 1024}, 1e-4)
def low_rank_adapters_by_row(new, m, n, k) -> Pairs:
    x, a, b, y = new.normal(m, k), new.normal(3, 8, k), new.normal(3, n, 8), new.normal(m, n)
    which = new.integers(3, m, low=-1)
    add = torch.einsum("mnr,mrk,mk->mn", b.double()[which], a.double()[which], x.double())
    want = y.double() + add * (which >= 0)[:, None]
    lora_kernel[(m,)](x, a, b, which, y, m, n, K=k, R=8, BN=16)
    return [(y, want)]


@triton.jit
def block_sparse_kernel(A, B, C, rows, cols, N, BLOCK: tl.constexpr):
    """Blocks of a sparse matrix by their coordinates times a dense one."""
    i = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    o = tl.arange(0, BLOCK)
    row, col = tl.load(rows + i), tl.load(cols + i)
    a = tl.load(A + i * BLOCK * BLOCK + o[:, None] * BLOCK + o[None, :])
    b = tl.load(B + (col * BLOCK + o)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
    tl.atomic_add(C + (row * BLOCK + o)[:, None] * N + n[None, :], tl.dot(a, b, input_precision="ieee"), n[None, :] < N)


@case({"blocks": 3, "n": 20}, {"blocks": 20, "n": 500}, 1e-4)
def block_sparse_product_and_gradient(new, blocks, n) -> Pairs:
    keep = (new.uniform(blocks, blocks) < 0.6).nonzero()
    rows, cols = keep[:, 0].contiguous(), keep[:, 1].contiguous()
    a, b, c = new.normal(len(keep), 16, 16), new.normal(blocks * 16, n), new.zeros(blocks * 16, n)
    dc, db = new.normal(blocks * 16, n), new.zeros(blocks * 16, n)
    grid = (len(keep), triton.cdiv(n, 16))
    block_sparse_kernel[grid](a, b, c, rows, cols, n, BLOCK=16)
    block_sparse_kernel[grid](a.transpose(1, 2).contiguous(), dc, db, cols, rows, n, BLOCK=16)
    dense = torch.zeros(blocks, blocks, 16, 16, dtype=torch.float64, device=a.device)
    dense[rows, cols] = a.double()
    (leaf,) = leaves(b)
    want = dense.transpose(1, 2).reshape(blocks * 16, -1) @ leaf
    return [(c, want), (db, *gradients(want, dc, leaf))]
