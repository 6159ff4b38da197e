"""Backward kernels of `hl` that a person would write, for `benchmarks.hl_gradients`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tilewright import hl

ROOT = math.sqrt(2 / math.pi)


@hl.kernel
def softmax(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """All computed again."""
    made = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        y, g = torch.softmax(x[rows, :], -1), grad[rows, :]
        made[rows, :] = y * (g - (g * y).sum(-1, keepdim=True))
    return made


@hl.kernel
def geglu(grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of gelu(gate) * up, by the tanh formula."""
    grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
    for m, n in hl.tile(gate.shape):
        x, g = gate[m, n], grad[m, n]
        t = torch.tanh(ROOT * (x + 0.044715 * x * x * x))
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * 0.044715 * x * x)
        grad_gate[m, n] = g * up[m, n] * slope
        grad_up[m, n] = g * 0.5 * x * (1 + t)
    return grad_gate, grad_up


@hl.kernel
def cross_entropy(grad: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of the mean over rows."""
    n, classes = logits.size()
    made = torch.empty_like(logits)
    for rows in hl.tile(n):
        found = torch.softmax(logits[rows, :], -1)
        one = torch.arange(classes, device=logits.device)[None, :] == labels[rows][:, None]
        made[rows, :] = (found - torch.where(one, 1.0, 0.0)) * (grad[()] / n)
    return made


@hl.kernel
def rope(grad: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """A rotation the other way."""
    half = grad.size(-1) // 2
    made = torch.empty_like(grad)
    for b, t in hl.tile([grad.size(0), grad.size(1)]):
        left, right, c, s = grad[b, t, :half], grad[b, t, half:], cos[t, :], sin[t, :]
        made[b, t, :half] = left * c + right * s
        made[b, t, half:] = right * c - left * s
    return made


@hl.kernel
def _through_relu(grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(grad)
    for m, n in hl.tile(grad.shape):
        made[m, n] = torch.where(out[m, n] > 0, grad[m, n], 0.0)
    return made


@hl.kernel
def _times_transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = torch.empty([x.size(0), y.size(0)], dtype=x.dtype, device=x.device)
    for m, n in hl.tile(made.shape):
        acc = hl.zeros([m, n])
        for k in hl.tile(x.size(1)):
            acc = acc + hl.dot(x[m, k], y[n, k].transpose(0, 1))
        made[m, n] = acc
    return made


@hl.kernel
def _transposed_times(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = torch.empty([x.size(1), y.size(1)], dtype=x.dtype, device=x.device)
    for m, n in hl.tile(made.shape):
        acc = hl.zeros([m, n])
        for k in hl.tile(x.size(0)):
            acc = acc + hl.dot(x[k, m].transpose(0, 1), y[k, n])
        made[m, n] = acc
    return made


def product_with_relu(
    grad: torch.Tensor, out: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Three kernels."""
    masked = _through_relu(grad, out)
    return _times_transposed(masked, y), _transposed_times(x, masked)


class Step(torch.autograd.Function):
    """A backward pass by hand as a step of autograd."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[torch.Tensor], Any], out: torch.Tensor, *leaves: torch.Tensor) -> Any:
        """Give `out`; `run` makes the gradients of `leaves` of that of `out`."""
        ctx.run = run
        ctx.save_for_backward(*leaves)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run it."""
        made = ctx.run(*grads)
        return None, None, *(made if isinstance(made, tuple) else (made,))


class Add(torch.autograd.Function):
    """What a person writes around a kernel."""

    @staticmethod
    def forward(ctx: Any, kernel: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        """Call it."""
        ctx.save_for_backward(x, y)
        return kernel(x, y)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient as it came."""
        return None, grads[0], grads[0]
