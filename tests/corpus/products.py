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
    dc, da, db = new.normal(m, n, dtype=c.dtype), torch.empty_like(a), torch.empty_like(b)
    persistent_kernel[(3,)](dc, b.T.contiguous(), da, new.zeros(k), m, k, n, BM=16, BN=16, BK=16)
    persistent_kernel[(3,)](dc.T.contiguous(), a.T.contiguous(), db, new.zeros(k), n, k, m, BM=16, BN=16, BK=16)
    x, y = leaves(a, b)
    want = F.linear(x, y, bias.double())
    return [(c, want), *zip((da, db), gradients(want, dc, x, y), strict=True)]


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
    a, b, c, dc, da, db = (new.normal(m, k), new.normal(k, n), new.zeros(m, n), new.normal(m, n), new.zeros(m, k),
                           new.zeros(k, n))  # fmt: skip
    for x, y, out in ((a, b, c), (dc, b.T.contiguous(), da), (a.T.contiguous(), dc, db)):
        rows, columns, inner = *out.shape, x.shape[1]
        grid = (triton.cdiv(rows, 16) * triton.cdiv(columns, 16), 4)
        split_k_kernel[grid](x, y, out, rows, columns, inner, BM=16, BN=16, BK=16, SPLIT=4)
    p, q = leaves(a, b)
    want = p @ q
    return [(c, want), *zip((da, db), gradients(want, dc, p, q), strict=True)]


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
    x, y, z, dz = new.normal(b, 16, 32), new.normal(b, 32, 16), new.empty(b, 16, 16), new.normal(b, 16, 16)
    dx, dy, grid = new.empty(b, 16, 32), new.empty(b, 32, 16), (triton.cdiv(b, 2),)
    batched_kernel[grid](x, y, z, b, M=16, N=16, K=32, BB=2)
    batched_kernel[grid](dz, y.mT.contiguous(), dx, b, M=16, N=32, K=16, BB=2)
    batched_kernel[grid](x.mT.contiguous(), dz, dy, b, M=32, N=16, K=16, BB=2)
    p, q = leaves(x, y)
    want = p @ q
    return [(z, want), *zip((dx, dy), gradients(want, dz, p, q), strict=True)]


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


@triton.jit
def outer_kernel(dy, x, dw, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BK + tl.arange(0, BK)
    out = tl.load(dy + rows, mask=rows < M)[:, None] * tl.load(x + c, mask=c < K)[None, :]
    at = dw + rows.to(tl.int64)[:, None] * K + c[None, :]
    tl.store(at, out.to(dw.dtype.element_ty), mask=(rows < M)[:, None] & (c < K)[None, :])


@case({"m": 30, "k": 50}, {"m": 8000, "k": 8192}, 4e-3)
def matrix_times_vector(new, m, k) -> Pairs:
    w, x, y = new.normal(m, k, dtype=torch.bfloat16), new.normal(k), new.empty(m)
    dy, dx, dw = new.normal(m), new.empty(k), torch.empty_like(w)
    gemv_kernel[(triton.cdiv(m, 8),)](w, x, y, m, k, BM=8, BK=32)
    gemv_kernel[(triton.cdiv(k, 8),)](w.T.contiguous(), dy, dx, k, m, BM=8, BK=32)
    outer_kernel[(triton.cdiv(m, 8), triton.cdiv(k, 32))](dy, x, dw, m, k, BM=8, BK=32)
    a, b = leaves(w, x)
    want = a @ b
    return [(y, want), *zip((dw, dx), gradients(want, dy, a, b), strict=True)]


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


@triton.jit
def mlp_backward_kernel(X, W1, W2, DY, DX, DW1, DW2, M, H, D: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr):
    """The first product again; gradients of both matrices are summed by atomics."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    x = tl.load(X + rm[:, None] * D + d[None, :], mask=rm[:, None] < M, other=0.0)
    dy = tl.load(DY + rm[:, None] * D + d[None, :], mask=rm[:, None] < M, other=0.0)
    dx = tl.zeros((BM, D), tl.float32)
    for start in range(0, H, BH):
        rh = start + tl.arange(0, BH)
        at1, at2 = d[:, None] * H + rh[None, :], rh[:, None] * D + d[None, :]
        w1 = tl.load(W1 + at1, mask=rh[None, :] < H, other=0.0)
        w2 = tl.load(W2 + at2, mask=rh[:, None] < H, other=0.0)
        a = tl.dot(x, w1)
        da = tl.where(a > 0, tl.dot(dy, w2.T), 0.0).to(x.dtype)
        dx = tl.dot(da, w1.T, dx)
        tl.atomic_add(DW1 + at1, tl.dot(x.T, da), mask=rh[None, :] < H)
        tl.atomic_add(DW2 + at2, tl.dot(tl.maximum(a, 0.0).to(x.dtype).T, dy), mask=rh[:, None] < H)
    tl.store(DX + rm[:, None] * D + d[None, :], dx, mask=rm[:, None] < M)


@case({"m": 20, "h": 40, "d": 16}, {"m": 2000, "h": 512, "d": 128}, 1e-2)
def two_products_in_one_kernel(new, m, h, d) -> Pairs:
    x, w1 = new.normal(m, d, dtype=torch.float16), new.normal(d, h, dtype=torch.float16)
    w2, y = new.normal(h, d, dtype=torch.float16), new.empty(m, d)
    mlp_kernel[(triton.cdiv(m, 16),)](x, w1, w2, y, m, h, D=d, BM=16, BH=16)
    dy, dx, dw1, dw2 = new.normal(m, d, dtype=torch.float16), new.empty(m, d), new.zeros(d, h), new.zeros(h, d)
    mlp_backward_kernel[(triton.cdiv(m, 16),)](x, w1, w2, dy, dx, dw1, dw2, m, h, D=d, BM=16, BH=16)
    inputs = [*leaves(x, w1, w2)]
    want = (inputs[0] @ inputs[1]).relu() @ inputs[2]
    return [(y, want), *zip((dx, dw1, dw2), gradients(want, dy, *inputs), strict=True)]


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


@triton.jit
def lora_backward_kernel(X, A, B, which, DY, DX, DA, DB, N, K: tl.constexpr, R: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0)
    adapter = tl.load(which + row)
    r, k = tl.arange(0, R), tl.arange(0, K)
    if adapter < 0:
        tl.store(DX + row * K + k, tl.zeros((K,), tl.float32))
        return
    x = tl.load(X + row * K + k)
    a_at = adapter * R * K + r[:, None] * K + k[None, :]
    a = tl.load(A + a_at)
    low = tl.sum(a * x[None, :], 1)
    dlow = tl.zeros((R,), tl.float32)
    for n in range(0, N, BN):
        c = n + tl.arange(0, BN)
        b_at = adapter * N * R + c[:, None] * R + r[None, :]
        dy = tl.load(DY + row * N + c, mask=c < N, other=0.0)[:, None]
        dlow += tl.sum(tl.load(B + b_at, mask=c[:, None] < N, other=0.0) * dy, 0)
        tl.atomic_add(DB + b_at, dy * low[None, :], mask=c[:, None] < N)
    tl.store(DX + row * K + k, tl.sum(a * dlow[:, None], 0))
    tl.atomic_add(DA + a_at, dlow[:, None] * x[None, :])


@case({"m": 6, "n": 20, "k": 16}, {"m": 500, "n": 2000, "k": 1024}, 1e-4)
def low_rank_adapters_by_row(new, m, n, k) -> Pairs:
    x, a, b, y = new.normal(m, k), new.normal(3, 8, k), new.normal(3, n, 8), new.normal(m, n)
    which = new.integers(3, m, low=-1)
    inputs = p, q, r = [*leaves(x, a, b)]
    low = (q[which] @ p[:, :, None]) * (which >= 0)[:, None, None]
    want = y.double() + (r[which] @ low)[:, :, 0]
    lora_kernel[(m,)](x, a, b, which, y, m, n, K=k, R=8, BN=16)
    dy, made = new.normal(m, n), (new.empty(m, k), new.zeros(*a.shape), new.zeros(*b.shape))
    lora_backward_kernel[(m,)](x, a, b, which, dy, *made, n, K=k, R=8, BN=16)
    return [(y, want), *zip(made, gradients(want, dy, *inputs), strict=True)]


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
