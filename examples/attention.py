"""Flash attention, forward pass: softmax(Q Kᵀ · scale) V without ever storing the matrix of scores.

A program owns BLOCK_M queries of one head and walks over the keys in blocks of BLOCK_N, keeping for
each query the running maximum and the running sum of an online softmax. Exponentials are powers of
two: log2(e) is folded into the scale. With CAUSAL, blocks of keys left of the diagonal need no mask
and are walked first; only the blocks on the diagonal are masked. (Dao et al., 2022.)
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def attend(
    acc, l_i, m_i, q,
    k_ptrs, v_ptrs, stride_kn, stride_vn,
    offs_m, offs_n, start, end, n_ctx, qk_scale,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    k_ptrs += start * stride_kn
    v_ptrs += start * stride_vn
    for start_n in range(start, end, BLOCK_N):
        if MASKED:
            cols = start_n + offs_n
            k = tl.load(k_ptrs, mask=cols[None, :] < n_ctx, other=0.0)
            v = tl.load(v_ptrs, mask=cols[:, None] < n_ctx, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)
        qk = tl.dot(q, k)
        if MASKED:
            visible = cols[None, :] < n_ctx
            if CAUSAL:
                visible = visible & (cols[None, :] <= offs_m[:, None])
            qk = tl.where(visible, qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
        p = tl.exp2(qk * qk_scale - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    return acc, l_i, m_i


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,
    stride_qh, stride_qm, stride_kh, stride_kn, stride_vh, stride_vn, stride_oh, stride_om,
    n_ctx, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)

    q_ptrs = q_ptr + head * stride_qh + offs_m[:, None] * stride_qm + offs_d[None, :]
    k_ptrs = k_ptr + head * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]  # a transposed view of K
    v_ptrs = v_ptr + head * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < n_ctx, other=0.0)

    m_i = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    qk_scale = scale * 1.4426950408889634  # log2(e)

    if CAUSAL:
        unmasked_end = start_m
        end = min(start_m + BLOCK_M, n_ctx)
    else:
        unmasked_end = n_ctx // BLOCK_N * BLOCK_N
        end = n_ctx
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn,
        offs_m, offs_n, 0, unmasked_end, n_ctx, qk_scale, BLOCK_N, CAUSAL, False,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        acc, l_i, m_i = attend(
            acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn,
            offs_m, offs_n, unmasked_end, end, n_ctx, qk_scale, BLOCK_N, CAUSAL, True,
        )  # fmt: skip

    out = acc / l_i[:, None]
    out_ptrs = out_ptr + head * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < n_ctx)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    out: torch.Tensor | None = None,
    tile: tuple[int, int] = (64, 64),
) -> torch.Tensor:
    """Return the attention of contiguous ``q``, ``k``, ``v`` of shape (batch, heads, sequence, head dimension).

    The head dimension is a power of two; ``tile`` is (BLOCK_M, BLOCK_N) with BLOCK_M a multiple of BLOCK_N.
    """
    batch, heads, n_ctx, head_dim = q.shape
    out = torch.empty_like(q) if out is None else out
    BLOCK_M, BLOCK_N = tile
    grid = (triton.cdiv(n_ctx, BLOCK_M), batch * heads)
    attention_kernel[grid](
        q, k, v, out,
        q.stride(1), q.stride(2), k.stride(1), k.stride(2), v.stride(1), v.stride(2), out.stride(1), out.stride(2),
        n_ctx, head_dim**-0.5,
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, HEAD_DIM=head_dim,
        CAUSAL=causal, EVEN=n_ctx % BLOCK_N == 0,
    )  # fmt: skip
    return out


def main() -> None:
    torch.manual_seed(0)
    # A GPU multiplies float32 in tf32, with 10 bits of mantissa, unless a product asks for "ieee".
    single = 1e-5 if torch.get_default_device().type == "cpu" else 5e-3
    for dtype, tolerance in ((torch.float32, single), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)):
        for n_ctx in (256, 200):
            q, k, v = (torch.randn(2, 3, n_ctx, 64).to(dtype) for _ in range(3))
            for causal in (False, True):
                reference = torch.nn.functional.scaled_dot_product_attention(
                    q.double(), k.double(), v.double(), is_causal=causal
                )
                error = (attention(q, k, v, causal).double() - reference).abs().max().item()
                print(f"attention  2 x 3 x {n_ctx} x 64  causal={causal!s:<5}  {dtype!s:<14}  max error {error:.1e}")
                assert error <= tolerance, "attention differs from the float64 reference"


if __name__ == "__main__":
    main()
