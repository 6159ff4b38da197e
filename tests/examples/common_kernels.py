"""Kernels of the kinds that Triton programs are full of, written as those programs write them."""

import tilewright as triton
import tilewright.language as tl

MODE_PLAIN = tl.constexpr(0)
MODE_GEMMA = tl.constexpr(1)


@triton.jit
def rms_norm(
    y_ptr, y_stride, x_ptr, x_stride, w_ptr, rstd_ptr, n_cols, eps, offset,
    mode: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    y_ptr += row * y_stride
    x_ptr += row * x_stride
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + cols, mask=mask, other=0)
    x_dtype = x.dtype
    w = tl.load(w_ptr + cols, mask=mask, other=0)
    x = x.to(tl.float32)
    if mode == MODE_GEMMA:
        w = w.to(tl.float32)
    rstd = tl.math.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(rstd_ptr + row, rstd)
    x = x * rstd
    if mode == MODE_PLAIN:
        x = x.to(x_dtype)
    y = x * (offset + w)
    tl.store(y_ptr + cols, y.to(x_dtype), mask=mask)


@triton.jit
def cross_entropy(
    x_ptr, x_stride, y_ptr, loss_ptr, n_cols, ignore_index, smoothing,
    HAS_SMOOTHING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loss of a row, and its gradient in place of the logits, in two passes with a running maximum."""
    program_id = tl.program_id(0).to(tl.int64)
    y = tl.load(y_ptr + program_id)
    x_ptr += program_id * x_stride
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK):
            offsets = i + tl.arange(0, BLOCK)
            tl.store(x_ptr + offsets, 0.0, mask=offsets < n_cols)
        return
    loss_ptr += program_id
    m = float("-inf")
    d = 0.0
    total = 0.0
    target = tl.load(x_ptr + y).cast(tl.float32)
    for i in range(0, n_cols, BLOCK):
        offsets = i + tl.arange(0, BLOCK)
        block = tl.load(x_ptr + offsets, mask=offsets < n_cols, other=float("-inf")).cast(tl.float32)
        m_new = tl.maximum(m, tl.max(block))
        if HAS_SMOOTHING:
            total += tl.sum(tl.where(offsets < n_cols, block, 0.0))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(block - m_new))
        m = m_new
    lse = m + tl.log(d)
    loss = lse - target
    if HAS_SMOOTHING:
        loss = (1 - smoothing) * loss + smoothing * (lse - total / n_cols)
    for i in range(0, n_cols, BLOCK):
        offsets = i + tl.arange(0, BLOCK)
        block = tl.load(x_ptr + offsets, mask=offsets < n_cols, other=float("-inf")).cast(tl.float32)
        grad = tl.exp(block - m) / d
        if HAS_SMOOTHING:
            grad -= smoothing / n_cols
            grad = tl.where(offsets != y, grad, grad - (1 - smoothing))
        else:
            grad = tl.where(offsets != y, grad, grad - 1.0)
        tl.store(x_ptr + offsets, grad, mask=offsets < n_cols)
    tl.debug_barrier()
    tl.store(loss_ptr, loss)


@triton.jit
def rotary(
    q_ptr, q_row, cos_ptr, sin_ptr, cos_row, seq_len, N_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BACKWARD: tl.constexpr = False,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    position = pid % seq_len
    half = tl.arange(0, HEAD_DIM // 2)
    cos = tl.load(cos_ptr + position * cos_row + half)
    sin = tl.load(sin_ptr + position * cos_row + half)
    first = pid * q_row + tl.arange(0, N_HEADS)[:, None] * HEAD_DIM + half[None, :]
    second = first + HEAD_DIM // 2
    a = tl.load(q_ptr + first).to(sin.dtype)
    b = tl.load(q_ptr + second).to(sin.dtype)
    if not BACKWARD:
        tl.store(q_ptr + first, a * cos - b * sin)
        tl.store(q_ptr + second, b * cos + a * sin)
    else:
        tl.store(q_ptr + first, a * cos + b * sin)
        tl.store(q_ptr + second, b * cos - a * sin)


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu(a_ptr, b_ptr, c_ptr, stride, n_cols: tl.constexpr, BLOCK: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    a_ptr += program_id * stride
    b_ptr += program_id * stride
    c_ptr += program_id * stride
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    a = tl.load(a_ptr + cols, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask, other=0)
    tl.store(c_ptr + cols, silu(a).cast(b.dtype) * b, mask=mask)


@triton.heuristics({"HAS_STATE": lambda args: args["h0"] is not None})
@triton.autotune(configs=[triton.Config({"BV": 32}, num_warps=2)], key=["K", "V"])
@triton.jit(do_not_specialize=["T"])
def linear_attention(
    q, k, v, h0, o, scale, T, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr,
    HAS_STATE: tl.constexpr,
):  # fmt: skip
    """Causal linear attention in chunks of BT, with block pointers and a carried state."""
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    o_i = tl.arange(0, BT)
    causal = o_i[:, None] >= o_i[None, :]
    b_h = tl.zeros([K, BV], dtype=tl.float32)
    if HAS_STATE:
        p_h = tl.make_block_ptr(h0 + i_h * K * V, (K, V), (V, 1), (0, i_v * BV), (K, BV), (1, 0))
        b_h += tl.load(p_h, boundary_check=(0, 1)).to(tl.float32)
    for i_t in range(tl.cdiv(T, BT)):
        p_q = tl.make_block_ptr(q + i_h * T * K, (T, K), (K, 1), (i_t * BT, 0), (BT, K), (1, 0))
        p_k = tl.make_block_ptr(k + i_h * T * K, (K, T), (1, K), (0, i_t * BT), (K, BT), (0, 1))
        p_v = tl.make_block_ptr(v + i_h * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        p_o = tl.make_block_ptr(o + i_h * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        b_q = (tl.load(p_q, boundary_check=(0, 1)) * scale).to(q.dtype.element_ty)
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_v = tl.load(p_v, boundary_check=(0, 1))
        b_s = tl.where(causal, tl.dot(b_q, b_k, allow_tf32=False), 0)
        b_o = tl.dot(b_s.to(b_q.dtype), b_v, allow_tf32=False)
        b_o += tl.dot(b_q, b_h.to(b_q.dtype), allow_tf32=False)
        b_h += tl.dot(b_k, b_v, allow_tf32=False)
        tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def int4_matmul(
    a_ptr, b_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K, stride_b, group_size,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """C += A · (nibbles of B - zeros) · scales; an int32 holds eight weights of a column; K is split."""
    pid, split = tl.program_id(0), tl.program_id(1)
    num_n = tl.cdiv(N, BLOCK_N)
    offs_m = (pid // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (pid % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_n = tl.max_contiguous(tl.multiple_of(offs_n, BLOCK_N), BLOCK_N)
    offs_k = split * BLOCK_K + tl.arange(0, BLOCK_K)
    shifter = (offs_k % 8) * 4
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K * SPLIT_K)):
        rows = offs_k + k * BLOCK_K * SPLIT_K
        a = tl.load(a_ptr + offs_m[:, None] * K + rows[None, :], mask=offs_m[:, None] < M, other=0.0)
        packed = tl.load(b_ptr + (rows[:, None] // 8) * stride_b + offs_n[None, :])
        group = (k * SPLIT_K + split) * BLOCK_K // group_size
        scales = tl.load(scale_ptr + group * N + offs_n)
        zeros = tl.load(zero_ptr + group * (N // 8) + offs_n // 8)
        zeros = ((zeros >> ((offs_n % 8) * 4)) & 0xF) * scales
        b = ((packed >> shifter[:, None]) & 0xF) * scales[None, :] - zeros[None, :]
        acc += tl.dot(a, b.to(a.dtype))
    tl.atomic_add(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=offs_m[:, None] < M, sem="relaxed")


@triton.jit
def combine_states(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@triton.jit
def state_scan(decay_ptr, x_ptr, out_ptr, T: tl.constexpr, D: tl.constexpr):
    offsets = tl.arange(0, T)[:, None] * D + tl.arange(0, D)[None, :]
    decay = tl.load(decay_ptr + offsets)
    x = tl.load(x_ptr + offsets)
    _, states = tl.associative_scan((decay, x), 0, combine_states)
    tl.store(out_ptr + offsets, states)


@triton.jit
def paged_decode(
    out_ptr, q_ptr, k_cache, v_cache, block_tables, context_lens, scale, max_blocks,
    HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Attention of one query per sequence over keys and values that lie in pages."""
    seq = tl.program_id(0)
    dims = tl.arange(0, HEAD_DIM)
    slots = tl.arange(0, PAGE)
    q = tl.load(q_ptr + seq * HEAD_DIM + dims).to(tl.float32) * scale
    length = tl.load(context_lens + seq)
    m = -float("inf")
    norm = 0.0
    acc = tl.zeros([HEAD_DIM], dtype=tl.float32)
    for page in range(0, tl.cdiv(length, PAGE)):
        physical = tl.load(block_tables + seq * max_blocks + page)
        base = physical.to(tl.int64) * PAGE * HEAD_DIM
        valid = page * PAGE + slots < length
        at = base + slots[:, None] * HEAD_DIM + dims[None, :]
        k = tl.load(k_cache + at, mask=valid[:, None], other=0.0)
        v = tl.load(v_cache + at, mask=valid[:, None], other=0.0)
        scores = tl.where(valid, tl.sum(q[None, :] * k, 1), -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, 0))
        p = tl.exp(scores - m_new)
        shrink = tl.exp(m - m_new)
        acc = acc * shrink + tl.sum(p[:, None] * v, 0)
        norm = norm * shrink + tl.sum(p, 0)
        m = m_new
    tl.store(out_ptr + seq * HEAD_DIM + dims, acc / norm)


@triton.jit
def bucket_of(values_ptr, edges_ptr, out_ptr, n, n_edges, BLOCK: tl.constexpr):
    """Index of the first edge that is not below a value, by bisection of all lanes at once."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(values_ptr + offsets, mask=mask, other=0.0)
    low = tl.zeros([BLOCK], tl.int32)
    high = tl.full([BLOCK], 0, tl.int32) + n_edges
    while tl.max(high - low, axis=0) > 0:
        middle = (low + high) // 2
        edge = tl.load(edges_ptr + middle, mask=middle < n_edges, other=float("inf"))
        go_right = (edge < x) & (low < high)
        low = tl.where(go_right, middle + 1, low)
        high = tl.where(go_right, high, tl.where(low < high, middle, high))
    tl.store(out_ptr + offsets, low, mask=mask)


@triton.jit
def convolution(
    x_ptr, w_ptr, y_ptr, C_IN, H, W, C_OUT, OH, OW, stride_h, stride_w,
    KH: tl.constexpr, KW: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_CI: tl.constexpr, BLOCK_CO: tl.constexpr,
):  # fmt: skip
    """2-D convolution as a matrix product: pixels by output channels, summed over taps and input channels."""
    pixels = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    c_out = tl.program_id(1) * BLOCK_CO + tl.arange(0, BLOCK_CO)
    n = pixels // (OH * OW)
    oh = pixels // OW % OH
    ow = pixels % OW
    acc = tl.zeros((BLOCK_P, BLOCK_CO), tl.float32)
    for tap in tl.static_range(KH * KW):
        kh: tl.constexpr = tap // KW
        kw: tl.constexpr = tap % KW
        row = n * C_IN * H * W + (oh * stride_h + kh) * W + ow * stride_w + kw
        for start in range(0, C_IN, BLOCK_CI):
            c_in = start + tl.arange(0, BLOCK_CI)
            x_mask = (pixels[:, None] < OH * OW * tl.num_programs(2)) & (c_in[None, :] < C_IN)
            x = tl.load(x_ptr + row[:, None] + c_in[None, :] * H * W, mask=x_mask, other=0.0)
            w_at = c_out[None, :] * C_IN * KH * KW + c_in[:, None] * KH * KW + tap
            w = tl.load(w_ptr + w_at, mask=(c_in[:, None] < C_IN) & (c_out[None, :] < C_OUT), other=0.0)
            acc = tl.dot(x, w, acc)
    y_at = n[:, None] * C_OUT * OH * OW + c_out[None, :] * OH * OW + (pixels % (OH * OW))[:, None]
    tl.store(y_ptr + y_at, acc, mask=(pixels[:, None] < OH * OW) & (c_out[None, :] < C_OUT))
