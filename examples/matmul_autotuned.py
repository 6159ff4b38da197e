"""Matrix multiplication that finds its own tile shape and applies an activation before it writes.

The activation is a string known when the kernel is compiled: each spelling gives another kernel, and the
function that is not asked for leaves no code behind. Indices past the edge of A and B wrap around instead
of being masked: what they read lands in rows and columns of C that are never stored.
"""

import torch

import tilewright as triton
import tilewright.language as tl


def tiles() -> list[triton.Config]:
    """The tile shapes to try."""
    shapes = ((32, 64, 32, 4), (64, 64, 64, 8), (128, 128, 64, 8))
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": group}, num_stages=3, num_warps=8)
        for m, n, k, group in shapes
    ]


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.autotune(configs=tiles(), key=["M", "N", "K"], rep=5)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    stride_am, stride_ak,
    stride_bk, stride_bn,
    stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    pid_m, pid_n = tl.swizzle2d(
        pid // tl.cdiv(N, BLOCK_N), pid % tl.cdiv(N, BLOCK_N), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M
    )
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)

    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)

    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * cols[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str = "") -> torch.Tensor:
    """Return ``activation(a @ b)``; ``activation`` is ``""`` or ``"leaky_relu"``."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, c,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        c.stride(0), c.stride(1),
        ACTIVATION=activation,
    )  # fmt: skip
    return c


def main() -> None:
    torch.manual_seed(0)
    # A GPU multiplies float32 in tf32, with 10 bits of mantissa, unless a product asks for "ieee".
    single = 1e-6 if torch.get_default_device().type == "cpu" else 2e-3
    cases = (
        (torch.float32, single, (256, 256, 256), ""),
        (torch.float32, single, (200, 130, 311), "leaky_relu"),
        (torch.float16, 1e-3, (200, 130, 311), "leaky_relu"),
    )
    for dtype, tolerance, (M, N, K), activation in cases:
        a, b = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
        reference = a.double() @ b.double()
        if activation:
            reference = torch.nn.functional.leaky_relu(reference)
        error = ((matmul(a, b, activation).double() - reference).abs().max() / reference.abs().max()).item()
        print(f"matmul  {M} x {N} x {K}  {dtype!s:<13}  {activation:<10}  max error {error:.1e} of the largest element")
        print(f"  fastest: {matmul_kernel.best_config}")
        assert error <= tolerance, "matmul differs from the float64 reference"


if __name__ == "__main__":
    main()
