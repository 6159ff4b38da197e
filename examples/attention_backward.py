"""Flash attention with a gradient, as a differentiable function of PyTorch.

The forward kernel keeps, besides the output, one number per query: L = log2 Σ exp2(scores). From it the backward
kernels rebuild any block of probabilities P = exp2(scores - L) without storing the matrix. With D = rowsum(dO ∘ O),
dS = P ∘ (dO Vᵀ - D), dV = Pᵀ dO, dQ = dS K · scale and dK = dSᵀ Q · scale. (Dao, 2023.) One kernel walks over the
queries for each block of keys, another over the keys for each block of queries, so nothing is added up atomically.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def tile_ptrs(ptr, rows, stride, HEAD_DIM: tl.constexpr):
    return ptr + rows[:, None] * stride + tl.arange(0, HEAD_DIM)[None, :]


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, stride_head, stride_row, n_ctx, qk_scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = head * stride_head
    rows = start_m + tl.arange(0, BLOCK_M)
    row_mask = rows[:, None] < n_ctx
    q = tl.load(tile_ptrs(q_ptr + base, rows, stride_row, HEAD_DIM), mask=row_mask, other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    end = n_ctx
    if CAUSAL:
        end = tl.minimum(n_ctx, start_m + BLOCK_M)
    for start_n in range(0, end, BLOCK_N):
        cols = start_n + tl.arange(0, BLOCK_N)
        k = tl.load(tile_ptrs(k_ptr + base, cols, stride_row, HEAD_DIM), mask=cols[:, None] < n_ctx, other=0.0)
        v = tl.load(tile_ptrs(v_ptr + base, cols, stride_row, HEAD_DIM), mask=cols[:, None] < n_ctx, other=0.0)
        visible = cols[None, :] < n_ctx
        if CAUSAL:
            visible = visible & (cols[None, :] <= rows[:, None])
        scores = tl.where(visible, tl.dot(q, tl.trans(k)) * qk_scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        shrink = tl.exp2(m - m_new)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        m = m_new
    out_ptrs = tile_ptrs(out_ptr + base, rows, stride_row, HEAD_DIM)
    tl.store(out_ptrs, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=row_mask)
    tl.store(lse_ptr + head * n_ctx + rows, m + tl.log2(total), mask=rows < n_ctx)


@triton.jit
def delta_kernel(out_ptr, grad_ptr, delta_ptr, n_rows, BLOCK_M: tl.constexpr, HEAD_DIM: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = rows[:, None] < n_rows
    out = tl.load(tile_ptrs(out_ptr, rows, HEAD_DIM, HEAD_DIM), mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(tile_ptrs(grad_ptr, rows, HEAD_DIM, HEAD_DIM), mask=mask, other=0.0).to(tl.float32)
    tl.store(delta_ptr + rows, tl.sum(out * grad, axis=1), mask=rows < n_rows)


@triton.jit
def probabilities(q, k, lse, rows, cols, n_ctx, qk_scale, CAUSAL: tl.constexpr):
    """The block of attention weights for these queries (rows) and keys (columns)."""
    visible = (rows[:, None] < n_ctx) & (cols[None, :] < n_ctx)
    if CAUSAL:
        visible = visible & (cols[None, :] <= rows[:, None])
    return tl.where(visible, tl.exp2(tl.dot(q, tl.trans(k)) * qk_scale - lse[:, None]), 0.0)


@triton.jit
def keys_kernel(
    q_ptr, k_ptr, v_ptr, grad_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, stride_head, stride_row, n_ctx, scale, qk_scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start_n = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1)
    base = head * stride_head
    cols = start_n + tl.arange(0, BLOCK_N)
    col_mask = cols[:, None] < n_ctx
    k = tl.load(tile_ptrs(k_ptr + base, cols, stride_row, HEAD_DIM), mask=col_mask, other=0.0)
    v = tl.load(tile_ptrs(v_ptr + base, cols, stride_row, HEAD_DIM), mask=col_mask, other=0.0)
    dk = tl.zeros((BLOCK_N, HEAD_DIM), tl.float32)
    dv = tl.zeros((BLOCK_N, HEAD_DIM), tl.float32)
    first = 0
    if CAUSAL:  # earlier queries do not see these keys
        first = start_n // BLOCK_M * BLOCK_M
    for start_m in range(first, n_ctx, BLOCK_M):
        rows = start_m + tl.arange(0, BLOCK_M)
        row_mask = rows[:, None] < n_ctx
        q = tl.load(tile_ptrs(q_ptr + base, rows, stride_row, HEAD_DIM), mask=row_mask, other=0.0)
        grad = tl.load(tile_ptrs(grad_ptr + base, rows, stride_row, HEAD_DIM), mask=row_mask, other=0.0)
        lse = tl.load(lse_ptr + head * n_ctx + rows, mask=rows < n_ctx, other=0.0)
        delta = tl.load(delta_ptr + head * n_ctx + rows, mask=rows < n_ctx, other=0.0)
        p = probabilities(q, k, lse, rows, cols, n_ctx, qk_scale, CAUSAL)
        dv = tl.dot(tl.trans(p).to(grad.dtype), grad, dv)
        ds = p * (tl.dot(grad, tl.trans(v)) - delta[:, None])
        dk = tl.dot(tl.trans(ds).to(q.dtype), q, dk)
    tl.store(tile_ptrs(dk_ptr + base, cols, stride_row, HEAD_DIM), (dk * scale).to(k.dtype), mask=col_mask)
    tl.store(tile_ptrs(dv_ptr + base, cols, stride_row, HEAD_DIM), dv.to(v.dtype), mask=col_mask)


@triton.jit
def queries_kernel(
    q_ptr, k_ptr, v_ptr, grad_ptr, dq_ptr, lse_ptr, delta_ptr, stride_head, stride_row, n_ctx, scale, qk_scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = head * stride_head
    rows = start_m + tl.arange(0, BLOCK_M)
    row_mask = rows[:, None] < n_ctx
    q = tl.load(tile_ptrs(q_ptr + base, rows, stride_row, HEAD_DIM), mask=row_mask, other=0.0)
    grad = tl.load(tile_ptrs(grad_ptr + base, rows, stride_row, HEAD_DIM), mask=row_mask, other=0.0)
    lse = tl.load(lse_ptr + head * n_ctx + rows, mask=rows < n_ctx, other=0.0)
    delta = tl.load(delta_ptr + head * n_ctx + rows, mask=rows < n_ctx, other=0.0)
    dq = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    end = n_ctx
    if CAUSAL:
        end = tl.minimum(n_ctx, start_m + BLOCK_M)
    for start_n in range(0, end, BLOCK_N):
        cols = start_n + tl.arange(0, BLOCK_N)
        k = tl.load(tile_ptrs(k_ptr + base, cols, stride_row, HEAD_DIM), mask=cols[:, None] < n_ctx, other=0.0)
        v = tl.load(tile_ptrs(v_ptr + base, cols, stride_row, HEAD_DIM), mask=cols[:, None] < n_ctx, other=0.0)
        p = probabilities(q, k, lse, rows, cols, n_ctx, qk_scale, CAUSAL)
        ds = p * (tl.dot(grad, tl.trans(v)) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    tl.store(tile_ptrs(dq_ptr + base, rows, stride_row, HEAD_DIM), (dq * scale).to(q.dtype), mask=row_mask)


class Attention(torch.autograd.Function):
    """``attention(q, k, v, causal)`` for contiguous (batch, heads, n_ctx, head_dim) tensors."""

    @staticmethod
    def forward(ctx, q, k, v, causal):
        batch, heads, n_ctx, head_dim = q.shape
        out = torch.empty_like(q)
        lse = torch.empty((batch * heads, n_ctx), dtype=torch.float32, device=q.device)
        qk_scale = head_dim**-0.5 * 1.4426950408889634  # log2(e): exponentials are powers of two
        meta = {"BLOCK_M": 64, "BLOCK_N": 64, "HEAD_DIM": head_dim, "CAUSAL": causal}
        strides = q.stride(1), q.stride(2)
        forward_kernel[(triton.cdiv(n_ctx, 64), batch * heads)](q, k, v, out, lse, *strides, n_ctx, qk_scale, **meta)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal = causal
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        grad = grad.contiguous()
        batch, heads, n_ctx, head_dim = q.shape
        scale = head_dim**-0.5
        qk_scale = scale * 1.4426950408889634
        delta = torch.empty_like(lse)
        n_rows = batch * heads * n_ctx
        delta_kernel[(triton.cdiv(n_rows, 64),)](out, grad, delta, n_rows, BLOCK_M=64, HEAD_DIM=head_dim)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        meta = {"BLOCK_M": 64, "BLOCK_N": 64, "HEAD_DIM": head_dim, "CAUSAL": ctx.causal}
        grid = (triton.cdiv(n_ctx, 64), batch * heads)
        rest = lse, delta, q.stride(1), q.stride(2), n_ctx, scale, qk_scale
        keys_kernel[grid](q, k, v, grad, dk, dv, *rest, **meta)
        queries_kernel[grid](q, k, v, grad, dq, *rest, **meta)
        return dq, dk, dv, None


attention = Attention.apply


def main() -> None:
    torch.manual_seed(0)
    # A GPU multiplies float32 in tf32, with 10 bits of mantissa, unless a product asks for "ieee".
    single = 1e-5 if torch.get_default_device().type == "cpu" else 1e-2
    for dtype, tolerance in ((torch.float32, single), (torch.float16, 5e-3)):
        for n_ctx, causal in ((256, False), (200, True)):
            q, k, v = (torch.randn(2, 2, n_ctx, 64).to(dtype).requires_grad_() for _ in range(3))
            grad = torch.randn(2, 2, n_ctx, 64).to(dtype)
            out = attention(q, k, v, causal)
            out.backward(grad)
            exact = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
            expected = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=causal)
            expected.backward(grad.double())
            errors = []
            wanted = (expected, *(tensor.grad for tensor in exact))
            for got, want in zip((out, q.grad, k.grad, v.grad), wanted, strict=True):
                errors.append(((got.double() - want).abs().max() / want.abs().max()).item())
            names = ("out", "dq", "dk", "dv")
            shown = "  ".join(f"{name} {error:.1e}" for name, error in zip(names, errors, strict=True))
            print(f"attention  n_ctx {n_ctx}  causal={causal!s:<5}  {dtype!s:<14}  max error of the largest: {shown}")
            assert max(errors) <= tolerance, "attention or its gradient differs from the float64 reference"


if __name__ == "__main__":
    main()
