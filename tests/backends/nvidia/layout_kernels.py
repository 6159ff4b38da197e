"""Kernels whose layouts the tests look at: small forms of what people write."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, (x + y).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + cols, e / tl.sum(e, axis=0), mask=cols < n)


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, out_ptr, mean_ptr, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    offs = rows[:, None] * stride + cols[None, :]
    x = tl.load(x_ptr + offs).to(tl.float32)
    mean = tl.sum(x, axis=1) / COLS
    centred = x - mean[:, None]
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) / COLS + 1e-5)
    w = tl.load(w_ptr + cols).to(tl.float32)
    b = tl.load(b_ptr + cols).to(tl.float32)
    y = centred * rstd[:, None] * w[None, :] + b[None, :]
    tl.store(out_ptr + offs, y.to(out_ptr.dtype.element_ty))
    tl.store(mean_ptr + rows, mean)


@triton.jit
def running_mean(x_ptr, mean_ptr, out_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The means are read as rows of a tile, and written."""
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    mean_ptrs = mean_ptr + rows
    for _ in range(2):
        mean = tl.load(mean_ptrs)
        x = tl.load(x_ptr + rows[:, None] * COLS + cols[None, :])
        tl.store(out_ptr + rows[:, None] * COLS + cols[None, :], x - mean[:, None])
        tl.store(mean_ptrs, mean * 0.5)
        mean_ptrs += 0


@triton.jit
def transpose(x_ptr, out_ptr, x_stride, out_stride, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows[:, None] * x_stride + rows[None, :])
    tl.store(out_ptr + rows[:, None] + rows[None, :] * out_stride, x)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, bias_ptr, K, stride_a, stride_b, stride_c,
    M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    offs_m, offs_n, offs_k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_a + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_b + offs_n[None, :]
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs).to(a_ptr.dtype.element_ty)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_b
    acc += tl.load(bias_ptr + offs_n)[None, :]
    tl.store(c_ptr + offs_m[:, None] * stride_c + offs_n[None, :], acc.to(OUT))


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, stride, n_ctx, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    offs_m, offs_n, offs_d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + offs_m[:, None] * stride + offs_d[None, :])
    m = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, n_ctx, N):
        k = tl.load(k_ptr + (start + offs_n)[None, :] * stride + offs_d[:, None])
        v = tl.load(v_ptr + (start + offs_n)[:, None] * stride + offs_d[None, :])
        scores = tl.dot(q, k)
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v, acc * alpha[:, None])
        m = m_new
    out = (acc / total[:, None]).to(tl.float16)
    tl.store(out_ptr + offs_m[:, None] * stride + offs_d[None, :], out)


@triton.jit
def two_uses_of_one_range(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, COLS: tl.constexpr):
    """The carried offsets are needed as rows of a tile and as a vector; `unused` is needed by nothing."""
    offs = tl.arange(0, BLOCK)
    unused = tl.arange(0, BLOCK)
    cols = tl.arange(0, COLS)
    for _ in range(0, n, BLOCK):
        x = tl.load(x_ptr + offs[:, None] * COLS + cols[None, :])
        tl.store(out_ptr + offs[:, None] * COLS + cols[None, :], x * 2)
        tl.store(y_ptr + offs, offs)
        offs += BLOCK
        unused += 1


@triton.jit
def control(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """While loops and branches hand over tiles with and without a layout."""
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.zeros((BLOCK,), tl.float32)
    shift = tl.full((BLOCK,), 1, tl.int32)
    i = 0
    while i < n:
        if i % 2 == 0:
            y += x
            step = shift
        else:
            y = y * x
            step = shift + 1
        shift = step
        i += 1 + i // n  # by no constant: a counted loop would become a `for`
    tl.store(out_ptr + offs, y + shift)


@triton.jit
def two_forms(sums_ptr, out_ptr, n, SIZE: tl.constexpr):
    """A `while` loop carries a tile that is needed in two layouts, one of them first through a gather."""
    value = tl.full((SIZE, 1, SIZE), 1, tl.int32)
    i = 0
    while i < n:
        value += 1
        i += 1 + i // n  # by no constant: a counted loop would become a `for`
    wide = tl.broadcast_to(value // value, (SIZE, SIZE, SIZE))
    picked = tl.gather(wide, tl.zeros((SIZE, SIZE, SIZE), tl.int32) + 3, 2)
    rows, middle, cols = (tl.arange(0, SIZE)[:, None, None], tl.arange(0, SIZE)[None, :, None], tl.arange(0, SIZE))
    tl.store(sums_ptr + rows * SIZE + cols, value)
    tl.store(out_ptr + rows * SIZE * SIZE + middle * SIZE + cols, picked)


@triton.jit
def ragged(x_ptr, out_ptr, total_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    x = tl.load(x_ptr + rows[:, None] * COLS + cols[None, :])
    flat = tl.reshape(x, (ROWS * COLS,))
    tl.store(out_ptr + tl.arange(0, ROWS * COLS), flat * 2)
    tl.store(total_ptr + rows, tl.sum(x, axis=1))


@triton.jit
def shuffled(out_ptr, n, BLOCK: tl.constexpr):
    """Each iteration permutes the carried tile, so that each demand for it asks for another layout one earlier."""
    x = tl.arange(0, BLOCK)
    for _ in range(n):
        x = tl.reshape(tl.trans(tl.reshape(x, (2, BLOCK // 2))), (BLOCK,)) + 1
    tl.store(out_ptr + tl.arange(0, BLOCK), x)


@triton.jit
def shapes(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    """Operations that combine or select elements."""
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    both = tl.join(x, x * 2)
    first, second = tl.split(tl.reshape(both, (BLOCK, 2)))
    running = tl.cumsum(first, axis=0)
    picked = tl.gather(second, tl.load(index_ptr + offs), axis=0)
    counts = tl.histogram(tl.load(index_ptr + offs), BLOCK)
    most, where = tl.max(x, axis=0, return_indices=True)
    tl.store(out_ptr + offs, running + picked + counts + most + where + tl.flip(x))


@triton.jit
def nibbles(x_ptr, w_ptr, out_ptr, DEPTH: tl.constexpr, N: tl.constexpr):
    """Two operands are computed from one tile."""
    m, k, n = tl.arange(0, 16), tl.arange(0, DEPTH), tl.arange(0, N)
    packed = tl.load(w_ptr + k[:, None] * N + n[None, :])
    place = x_ptr + m[:, None] * 2 * DEPTH + 2 * k[None, :]
    acc = tl.dot(tl.load(place), ((packed << 4).to(tl.int8) >> 4).to(tl.float16))
    acc = tl.dot(tl.load(place + 1), (packed >> 4).to(tl.float16), acc)
    tl.store(out_ptr + m[:, None] * N + n[None, :], acc)
