"""Kernels that only the benchmarks need."""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def empty_kernel(a, b, c, d, e, f):
    """Do nothing: what is timed is the launch."""


@triton.jit
def few_rows_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A product of so few rows that each block of columns has one program: B is read once, A by all of them."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    mask_m = offs_m[:, None] < M
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :]
        b_ptrs = b_ptr + (k + offs_k)[:, None] * stride_bk + offs_n[None, :]
        a = tl.load(a_ptrs, mask=mask_m, other=0, eviction_policy="evict_last")
        b = tl.load(b_ptrs, eviction_policy="evict_first")
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask_m)
