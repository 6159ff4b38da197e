"""Matrix multiplication in tiles, with programs grouped so that neighbours share operands in cache.

A program computes one BLOCK_M x BLOCK_N tile of C. Programs are numbered so that GROUP_M tiles of a
column of C come one after another: they need the same columns of B. One kernel serves float32,
float16, bfloat16 and int8; the accumulator's type, the precision of float32 products and whether K
needs masks are compile-time parameters.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    stride_am, stride_ak,
    stride_bk, stride_bn,
    stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACC_TYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    programs_in_group = GROUP_M * num_pid_n
    group = pid // programs_in_group
    first_pid_m = group * GROUP_M
    group_rows = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % programs_in_group) % group_rows
    pid_n = (pid % programs_in_group) // group_rows

    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_TYPE)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=mask_m, other=0)
            b = tl.load(b_ptrs, mask=mask_n, other=0)
        else:
            left = K - k * BLOCK_K
            a = tl.load(a_ptrs, mask=mask_m & (offs_k[None, :] < left), other=0)
            b = tl.load(b_ptrs, mask=mask_n & (offs_k[:, None] < left), other=0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=ACC_TYPE)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask_m & mask_n)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    precision: str = "ieee",
    tile: tuple[int, int, int] = (128, 128, 64),
    group: int = 8,
) -> torch.Tensor:
    """Return ``a @ b`` for matrices of any strides (int8 operands give an int32 result).

    ``precision`` is ``"ieee"`` or ``"tf32"`` (float32 operands only); ``tile`` is (BLOCK_M, BLOCK_N, BLOCK_K).
    """
    (M, K), N = a.shape, b.shape[1]
    integer = a.dtype == torch.int8
    if out is None:
        out = torch.empty((M, N), dtype=torch.int32 if integer else a.dtype, device=a.device)
    BLOCK_M, BLOCK_N, BLOCK_K = tile
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    matmul_kernel[grid](
        a, b, out,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        GROUP_M=group,
        ACC_TYPE=tl.int32 if integer else tl.float32,
        PRECISION=precision,
        EVEN_K=K % BLOCK_K == 0,
    )  # fmt: skip
    return out


def main() -> None:
    torch.manual_seed(0)
    tolerances = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.int8: 0.0}
    for dtype, tolerance in tolerances.items():
        for M, N, K in ((256, 256, 256), (200, 130, 311)):
            if dtype == torch.int8:
                a, b = torch.randint(-128, 128, (M, K), dtype=dtype), torch.randint(-128, 128, (K, N), dtype=dtype)
            else:
                a, b = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
            reference = a.double() @ b.double()
            error = ((matmul(a, b).double() - reference).abs().max() / reference.abs().max()).item()
            print(f"matmul  {M} x {N} x {K}  {dtype!s:<14}  max error {error:.1e} of the largest element")
            assert error <= tolerance, "matmul differs from the float64 reference"


if __name__ == "__main__":
    main()
