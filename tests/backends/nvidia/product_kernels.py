"""Kernels with products in loops, as people write them: what the software pipeline has to cope with."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, N, K, stride_a, stride_b, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr,
    TRANS_A: tl.constexpr = False, TRANS_B: tl.constexpr = False, EVEN: tl.constexpr = False,
    PRECISION: tl.constexpr = "tf32", CAST: tl.constexpr = None, ACC: tl.constexpr = tl.float32,
):  # fmt: skip
    """C = A @ B; an operand marked TRANS lies in memory with K along its rows' other dim."""
    rows = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    cols = tl.program_id(1) * N_BLOCK + tl.arange(0, N_BLOCK)
    ks = tl.arange(0, K_BLOCK)
    if TRANS_A:
        a_ptrs = a_ptr + ks[None, :] * stride_a + rows[:, None]
    else:
        a_ptrs = a_ptr + rows[:, None] * stride_a + ks[None, :]
    if TRANS_B:
        b_ptrs = b_ptr + cols[None, :] * stride_b + ks[:, None]
    else:
        b_ptrs = b_ptr + ks[:, None] * stride_b + cols[None, :]
    acc = tl.zeros((M_BLOCK, N_BLOCK), ACC)
    for k in range(0, K, K_BLOCK):
        if EVEN:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=ks[None, :] < K - k, other=0)
            b = tl.load(b_ptrs, mask=ks[:, None] < K - k, other=0)
        if CAST is not None:
            a = a.to(CAST)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += K_BLOCK * (stride_a if TRANS_A else 1)
        b_ptrs += K_BLOCK * (1 if TRANS_B else stride_b)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)


@triton.jit
def matmul_by_index(
    a_ptr, b_ptr, c_ptr, N, K, stride_a, stride_b, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr
):
    """C = A @ B with addresses computed from the counter, in steps of more than one."""
    rows = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    cols = tl.program_id(1) * N_BLOCK + tl.arange(0, N_BLOCK)
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        ks = k + tl.arange(0, K_BLOCK)
        a = tl.load(a_ptr + rows[:, None] * stride_a + ks[None, :])
        b = tl.load(b_ptr + ks[:, None] * stride_b + cols[None, :])
        acc += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)


@triton.jit
def converted(
    a_ptr, b_ptr, c_ptr, N, K, stride_a, stride_b, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr
):
    """C = A @ B, with B of another type than A."""
    rows = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    cols = tl.program_id(1) * N_BLOCK + tl.arange(0, N_BLOCK)
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        ks = k + tl.arange(0, K_BLOCK)
        a = tl.load(a_ptr + rows[:, None] * stride_a + ks[None, :])
        b = tl.load(b_ptr + ks[:, None] * stride_b + cols[None, :])
        acc = tl.dot(a, b.to(a.dtype), acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)


@triton.jit
def gated(
    a_ptr, b_ptr, c_ptr, N, K, stride_a, stride_b, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr
):
    """C = (A @ B) * (A @ B') where B' lies N columns to the right: two products of one tile in flight."""
    rows = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    cols = tl.program_id(1) * N_BLOCK + tl.arange(0, N_BLOCK)
    ks = tl.arange(0, K_BLOCK)
    a_ptrs = a_ptr + rows[:, None] * stride_a + ks[None, :]
    b_ptrs = b_ptr + ks[:, None] * stride_b + cols[None, :]
    first = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    second = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for _ in range(0, K, K_BLOCK):
        a = tl.load(a_ptrs)
        first = tl.dot(a, tl.load(b_ptrs), first)
        second = tl.dot(a, tl.load(b_ptrs + N), second)
        a_ptrs += K_BLOCK
        b_ptrs += K_BLOCK * stride_b
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], first * second)


@triton.jit
def persistent(
    a_ptr,
    b_ptr,
    c_ptr,
    N,
    K,
    stride_a,
    stride_b,
    M_BLOCK: tl.constexpr,
    N_BLOCK: tl.constexpr,
    K_BLOCK: tl.constexpr,
    tiles,
):
    """C = A @ B, all tiles of a row of C by one program."""
    rows = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    ks = tl.arange(0, K_BLOCK)
    for tile in range(0, tiles):
        cols = tile * N_BLOCK + tl.arange(0, N_BLOCK)
        a_ptrs = a_ptr + rows[:, None] * stride_a + ks[None, :]
        b_ptrs = b_ptr + ks[:, None] * stride_b + cols[None, :]
        acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
        for _ in range(0, K, K_BLOCK):
            acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
            a_ptrs += K_BLOCK
            b_ptrs += K_BLOCK * stride_b
        tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, context, scale, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    TRANS: tl.constexpr = False,
):  # fmt: skip
    """softmax(Q Kᵀ) V with an online softmax in powers of two; with TRANS, tiles of K are turned after the load."""
    rows = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    cols, depth = tl.arange(0, N_BLOCK), tl.arange(0, DEPTH)
    q = tl.load(q_ptr + rows[:, None] * DEPTH + depth[None, :])
    if TRANS:
        k_ptrs = k_ptr + cols[:, None] * DEPTH + depth[None, :]
    else:
        k_ptrs = k_ptr + cols[None, :] * DEPTH + depth[:, None]
    v_ptrs = v_ptr + cols[:, None] * DEPTH + depth[None, :]
    largest = tl.full((M_BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((M_BLOCK,), tl.float32)
    acc = tl.zeros((M_BLOCK, DEPTH), tl.float32)
    for _ in range(0, context, N_BLOCK):
        k = tl.load(k_ptrs)
        if TRANS:
            k = tl.trans(k)
        scores = tl.dot(q, k)
        new = tl.maximum(largest, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - new[:, None])
        shrink = tl.exp2(largest - new)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptrs)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        largest = new
        k_ptrs += N_BLOCK * DEPTH
        v_ptrs += N_BLOCK * DEPTH
    tl.store(out_ptr + rows[:, None] * DEPTH + depth[None, :], acc / total[:, None])


@triton.jit
def gathered(a_ptr, index_ptr, b_ptr, c_ptr, N, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """C = A[:, index] @ B: the addresses of A are loaded, those of B are not."""
    rows, cols, ks = tl.arange(0, M_BLOCK), tl.arange(0, N_BLOCK), tl.arange(0, K_BLOCK)
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        index = tl.load(index_ptr + k + ks)
        a = tl.load(a_ptr + rows[:, None] * K + index[None, :])
        b = tl.load(b_ptr + (k + ks)[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)


@triton.jit
def squared(x_ptr, n, SIZE: tl.constexpr, TIMES: tl.constexpr):
    """X = X @ X in place, several times: what one iteration stores the next one loads."""
    rows, cols = tl.arange(0, SIZE), tl.arange(0, SIZE)
    for _ in range(0, n):
        x = tl.load(x_ptr + rows[:, None] * SIZE + cols[None, :])
        y = tl.dot(x, x, out_dtype=tl.float16)
        tl.debug_barrier()
        tl.store(x_ptr + rows[:, None] * SIZE + cols[None, :], y)
        tl.debug_barrier()
