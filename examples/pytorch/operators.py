"""RMSNorm and cross entropy as operators of PyTorch: kernels with a backward, for eager and compiled models alike.

Each operator is a function that allocates, launches and returns; `register_autograd` gives it a backward, which
launches kernels again. `transformer.py` trains a model with them.
"""

import torch

import tilewright
import tilewright.language as tl
from tilewright.torch import triton_op


@tilewright.jit
def rms_norm_forward(x_ptr, w_ptr, out_ptr, scale_ptr, n, eps, BLOCK: tl.constexpr):
    """One row: out = x * w / sqrt(mean(x * x) + eps); the factor of the row is kept for the backward."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + i, i < n, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / n + eps)
    tl.store(scale_ptr + row, scale)
    tl.store(out_ptr + row * n + i, x * scale * tl.load(w_ptr + i, i < n), i < n)


@tilewright.jit
def rms_norm_backward(grad_ptr, x_ptr, w_ptr, scale_ptr, dx_ptr, dw_ptr, n, BLOCK: tl.constexpr):
    """One row of dx, and its share of dw."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + i, i < n, other=0.0)
    grad = tl.load(grad_ptr + row * n + i, i < n, other=0.0)
    scale = tl.load(scale_ptr + row)
    weighted = grad * tl.load(w_ptr + i, i < n, other=0.0)
    along = tl.sum(weighted * x, 0) * scale * scale / n
    tl.store(dx_ptr + row * n + i, scale * (weighted - x * along), i < n)
    tl.store(dw_ptr + row * n + i, grad * x * scale, i < n)


@triton_op("examples::rms_norm", mutates_args=())
def rms_norm_with_scale(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalised rows of `x`, and the factor of each row."""
    rows, n = x.shape
    out, scale = torch.empty_like(x), x.new_empty(rows)
    rms_norm_forward[(rows,)](x, weight, out, scale, n, eps, BLOCK=tilewright.next_power_of_2(n))
    return out, scale


@triton_op("examples::rms_norm_grad", mutates_args=())
def rms_norm_grad(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of `x` and of the weight."""
    rows, n = x.shape
    dx, dw = torch.empty_like(x), torch.empty_like(x)
    rms_norm_backward[(rows,)](grad, x, weight, scale, dx, dw, n, BLOCK=tilewright.next_power_of_2(n))
    return dx, dw.sum(0)


def _keep_for_rms_norm(ctx, inputs, output):
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _rms_norm_backward(ctx, grad, _):
    return (*rms_norm_grad(grad.contiguous(), *ctx.saved_tensors), None)


rms_norm_with_scale.register_autograd(_rms_norm_backward, setup_context=_keep_for_rms_norm)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm over the last dimension.

    Args:
        x: (..., n).
        weight: (n,).
        eps: keeps rows of zeros finite.
    """
    return rms_norm_with_scale(x.reshape(-1, x.shape[-1]), weight, eps)[0].view(x.shape)


@tilewright.jit
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, grad_ptr, n, BLOCK: tl.constexpr):
    """One row: the loss, and the gradient of the logits, in one pass over the row."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * n + i, i < n, other=float("-inf"))
    target = tl.load(target_ptr + row)
    top = tl.max(x, 0)
    e = tl.exp(x - top)
    total = tl.sum(e, 0)
    tl.store(loss_ptr + row, tl.log(total) + top - tl.load(logits_ptr + row * n + target))
    tl.store(grad_ptr + row * n + i, e / total - tl.where(i == target, 1.0, 0.0), i < n)


@triton_op("examples::cross_entropy", mutates_args=())
def cross_entropy_with_grad(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each row, and the gradient of the logits for a gradient of one."""
    rows, n = logits.shape
    loss, grad = logits.new_empty(rows), torch.empty_like(logits)
    cross_entropy_kernel[(rows,)](logits, target, loss, grad, n, BLOCK=tilewright.next_power_of_2(n))
    return loss, grad


cross_entropy_with_grad.register_autograd(
    lambda ctx, grad, _: (ctx.saved_tensors[0] * grad[:, None], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1]),
)


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy.

    Args:
        logits: (rows, classes).
        target: (rows,), class numbers.
    """
    return cross_entropy_with_grad(logits, target)[0].mean()
