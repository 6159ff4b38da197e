"""Activations, norms and losses of neural networks, and the derivatives that PyTorch names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tilewright.hl.rows.gather import positions
from tilewright.hl.rows.recipes import count, wide
from tilewright.hl.rows.table import recipe
from tilewright.hl.trace.state import raw_shape


def activation(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A recipe whose first argument comes in the type of computation and whose result is rounded to the type of `x`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @recipe(name)
        def computed(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            args = tuple(wide(arg) if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args)
            return function(wide(x), *args, **kwargs).to(x.dtype)

        return computed

    return register


# --- activations ------------------------------------------------------------------------------------------------


@activation("elu")
def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """Linear above 0, an exponential below."""
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


@activation("celu")
def celu(x: Tensor, alpha: float = 1) -> Any:
    """`elu` with a continuous derivative."""
    return torch.where(x > 0, x, torch.expm1(x / alpha) * alpha)


@recipe("hardtanh")
def hardtanh(x: Tensor, low: float = -1, high: float = 1) -> Any:
    """Between two limits."""
    return x.clamp(low, high)


@activation("hardsigmoid")
def hardsigmoid(x: Tensor) -> Any:
    """A sigmoid of straight lines."""
    return (x + 3).clamp(0, 6) / 6


@activation("hardswish")
def hardswish(x: Tensor) -> Any:
    """x · hardsigmoid(x)."""
    return x * (x + 3).clamp(0, 6) / 6


@recipe("hardshrink")
def hardshrink(x: Tensor, limit: float = 0.5) -> Any:
    """0 near 0."""
    return torch.where((x >= -limit) & (x <= limit), 0, x).to(x.dtype)


@activation("softshrink")
def softshrink(x: Tensor, limit: float = 0.5) -> Any:
    """Nearer to 0 by `limit`, 0 within it."""
    return torch.where(x > limit, x - limit, torch.where(x < -limit, x + limit, x * 0))


@activation("softplus")
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Any:
    """log(1 + exp(βx)) / β, linear above the threshold."""
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


@activation("mish")
def mish(x: Tensor) -> Any:
    """x · tanh(softplus(x))."""
    return x * torch.tanh(torch.log1p(torch.exp(x)))


@recipe("leaky_relu")
def leaky_relu(x: Tensor, slope: float = 0.01) -> Any:
    """A small slope below 0."""
    return torch.where(x > 0, x, (wide(x) * slope).to(x.dtype))


@recipe("_prelu_kernel")
def prelu(x: Tensor, weight: Tensor) -> Any:
    """A learned slope below 0."""
    return torch.where(x > 0, x, weight * x)


@recipe("threshold")
def threshold(x: Tensor, limit: float, value: float) -> Any:
    """`value` up to the limit."""
    return torch.where(x <= limit, value, x).to(x.dtype)


@recipe("log_sigmoid_forward")
def log_sigmoid_forward(x: Tensor) -> Any:
    """log(sigmoid(x)) without overflow, and what its derivative needs on the CPU."""
    y = wide(x)
    rest = torch.exp(-y.abs())
    return (torch.minimum(y, torch.zeros_like(y)) - torch.log1p(rest)).to(x.dtype), rest.to(x.dtype)


@recipe("glu")
def glu(x: Tensor, dim: int = -1) -> Any:
    """The first half times the sigmoid of the second."""
    first, second = x.chunk(2, dim)
    return (wide(first) * torch.sigmoid(wide(second))).to(x.dtype)


# --- derivatives ----------------------------------------------------------------------------------------------------


@activation("sigmoid_backward")
def sigmoid_backward(grad: Tensor, out: Tensor) -> Any:
    """Through `sigmoid`."""
    return grad * (1 - out) * out


@activation("tanh_backward")
def tanh_backward(grad: Tensor, out: Tensor) -> Any:
    """Through `tanh`."""
    return grad * (1 - out * out)


@recipe("threshold_backward")
def threshold_backward(grad: Tensor, x: Tensor, limit: float) -> Any:
    """Through `relu` and `threshold`."""
    return torch.where(x <= limit, 0, grad).to(grad.dtype)


@activation("silu_backward")
def silu_backward(grad: Tensor, x: Tensor) -> Any:
    """Through `silu`."""
    s = torch.sigmoid(x)
    return grad * s * (1 + x * (1 - s))


@activation("gelu_backward")
def gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Any:
    """Through `gelu`."""
    if approximate == "tanh":
        scale = math.sqrt(2 / math.pi)
        t = torch.tanh(scale * (x + 0.044715 * x * x * x))
        inner = scale * (1 + 3 * 0.044715 * x * x)
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (0.5 * (1 + torch.erf(x * math.sqrt(0.5))) + x * density)


@recipe("_softmax_backward_data")
def softmax_backward(grad: Tensor, out: Tensor, dim: int, dtype: torch.dtype) -> Any:
    """Through `softmax`."""
    y, g = wide(out), wide(grad)
    return (y * (g - (g * y).sum(dim, True))).to(dtype)


@recipe("_log_softmax_backward_data")
def log_softmax_backward(grad: Tensor, out: Tensor, dim: int, dtype: torch.dtype) -> Any:
    """Through `log_softmax`."""
    y, g = wide(out), wide(grad)
    return (g - torch.exp(y) * g.sum(dim, True)).to(dtype)


# --- norms --------------------------------------------------------------------------------------------------------


@recipe("native_group_norm")
def native_group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, batch: int, channels: int, inner: int, groups: int, eps: float
) -> Any:
    """Centred and scaled over groups of channels."""
    shape = raw_shape(x)
    y = wide(x).reshape(shape[0], groups, shape[1] // groups, -1)
    n = count(y, [2, 3])
    centre = y.sum((2, 3), True) / n
    shifted = y - centre
    scale = torch.rsqrt((shifted * shifted).sum((2, 3), True) / n + eps)
    out = (shifted * scale).reshape(shape)
    affine = [1, shape[1], *[1] * (x.dim() - 2)]
    if weight is not None:
        out = out * wide(weight).view(affine)
    if bias is not None:
        out = out + wide(bias).view(affine)
    return out.to(x.dtype), centre.view(shape[0], groups), scale.view(shape[0], groups)


# --- losses -------------------------------------------------------------------------------------------------------


def _reduced(loss: Tensor, reduction: int, dtype: torch.dtype) -> Any:
    """PyTorch's numbers: 0 for none, 1 for the mean, 2 for the sum."""
    made = loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()
    return made.to(dtype)


@recipe("mse_loss")
def mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Any:
    """Squares of differences."""
    difference = wide(x) - wide(y)
    return _reduced(difference * difference, reduction, x.dtype)


@recipe("smooth_l1_loss")
def smooth_l1_loss(x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0) -> Any:
    """Squares near 0, straight beyond `beta`."""
    d = (wide(x) - wide(y)).abs()
    return _reduced(torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta) if beta else d, reduction, x.dtype)


@recipe("huber_loss")
def huber_loss(x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Any:
    """Squares up to `delta`, straight beyond."""
    d = (wide(x) - wide(y)).abs()
    return _reduced(torch.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction, x.dtype)


@recipe("soft_margin_loss")
def soft_margin_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Any:
    """log(1 + exp(-yx))."""
    return _reduced(torch.log1p(torch.exp(-wide(y) * wide(x))), reduction, x.dtype)


@recipe("binary_cross_entropy")
def binary_cross_entropy(x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Any:
    """Of probabilities; logarithms are at least -100."""
    p, t = wide(x), wide(y)
    loss = (t - 1) * torch.log1p(-p).clamp_min(-100) - t * torch.log(p).clamp_min(-100)
    return _reduced(loss if weight is None else loss * weight, reduction, x.dtype)


@recipe("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Tensor, y: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Any:
    """Of logits, without overflow."""
    z, t = wide(x), wide(y)
    soft = torch.log1p(torch.exp(-z.abs())) + (-z).clamp_min(0)
    loss = (1 - t) * z + (soft if pos_weight is None else (1 + (pos_weight - 1) * t) * soft)
    return _reduced(loss if weight is None else loss * weight, reduction, x.dtype)


@recipe("nll_loss_forward")
def nll_loss_forward(x: Tensor, target: Tensor, weight: Tensor, reduction: int, ignore_index: int) -> Any:
    """(loss, sum of weights) for log probabilities [n, classes] or [classes]."""
    y, t = wide(x), target.unsqueeze(-1)
    hit = (positions(x, x.dim() - 1) == t) & (t != ignore_index)
    each = torch.where(hit, y if weight is None else y * weight, 0)
    share = torch.where(hit, torch.ones_like(y) if weight is None else weight.expand_as(y), 0)
    total = share.sum()
    if reduction == 0:
        return (-each.sum(-1)).to(x.dtype), total.to(x.dtype)
    loss = -each.sum()
    return (loss / total if reduction == 1 else loss).to(x.dtype), total.to(x.dtype)
