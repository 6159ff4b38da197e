"""A library of kernels as other people write it: `silu(a) * b`, forward and backward.

It says `import triton` and knows nothing of Tilewright, nor of the device that its tensors are on.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(a_ptr + i, mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + i, mask, other=0.0)
    tl.store(out_ptr + i, a * tl.sigmoid(a) * b, mask)


@triton.jit
def backward_kernel(grad_ptr, a_ptr, b_ptr, grad_a_ptr, grad_b_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    grad = tl.load(grad_ptr + i, mask, other=0.0)
    a = tl.load(a_ptr + i, mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + i, mask, other=0.0)
    gate = tl.sigmoid(a)
    tl.store(grad_a_ptr + i, grad * b * gate * (1 + a * (1 - gate)), mask)
    tl.store(grad_b_ptr + i, grad * a * gate, mask)


class SiluProduct(torch.autograd.Function):
    """The product and its gradients for tensors of one shape."""

    @staticmethod
    def forward(ctx, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        forward_kernel[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), BLOCK=1024)
        ctx.save_for_backward(a, b)
        return out

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = ctx.saved_tensors
        grad, grad_a, grad_b = grad.contiguous(), torch.empty_like(a), torch.empty_like(b)
        grid = (triton.cdiv(a.numel(), 1024),)
        backward_kernel[grid](grad, a, b, grad_a, grad_b, a.numel(), BLOCK=1024)
        return grad_a, grad_b
