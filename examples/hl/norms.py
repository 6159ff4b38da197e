"""Layer norm and RMS norm, forward and backward.

The gradients of the weights are sums over rows: each program adds its rows up and then to the result, atomically.
"""

import torch
import torch.nn.functional as F
from check import compare

from tilewright import hl


@hl.kernel
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        out[rows, :] = F.layer_norm(x[rows, :], [n], weight[:], bias[:], eps)
    return out


@hl.kernel
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        scale = torch.rsqrt((values * values).mean(dim=-1, keepdim=True) + eps)
        out[rows, :] = values * scale * weight[:]
    return out


@hl.kernel
def rms_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
    for rows in hl.tile(x.size(0)):
        values, upstream = x[rows, :], grad[rows, :]
        scale = torch.rsqrt((values * values).mean(dim=-1, keepdim=True) + eps)
        normal = values * scale
        scaled = upstream * weight[:]
        grad_x[rows, :] = scale * (scaled - normal * (scaled * normal).mean(dim=-1, keepdim=True))
        hl.atomic_add(grad_weight, [slice(None)], (upstream * normal).sum(dim=0))
    return grad_x, grad_weight


@hl.kernel
def layer_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
    for rows in hl.tile(x.size(0)):
        values, upstream = x[rows, :], grad[rows, :]
        centred = values - values.mean(dim=-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + eps)
        normal = centred * scale
        scaled = upstream * weight[:]
        inner = scaled - scaled.mean(dim=-1, keepdim=True)
        grad_x[rows, :] = scale * (inner - normal * (scaled * normal).mean(dim=-1, keepdim=True))
        hl.atomic_add(grad_weight, [slice(None)], (upstream * normal).sum(dim=0))
        hl.atomic_add(grad_bias, [slice(None)], upstream.sum(dim=0))
    return grad_x, grad_weight, grad_bias


def gradients(forward, grad, *leaves):
    """PyTorch's gradients of `forward(*leaves)`."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    return torch.autograd.grad(forward(*leaves), leaves, grad)


def main() -> None:
    torch.manual_seed(0)
    x, grad, weight, bias, eps = torch.randn(515, 384), torch.randn(515, 384), torch.rand(384), torch.randn(384), 1e-5
    compare("layer norm", layer_norm, lambda x, w, b, eps: F.layer_norm(x, [384], w, b, eps), x, weight, bias, eps)
    compare("rms norm", rms_norm, lambda x, w, eps: F.rms_norm(x, [384], w, eps), x, weight, eps)

    def layer_reference(grad, x, weight, eps):
        return gradients(lambda x, w, b: F.layer_norm(x, [384], w, b, eps), grad, x, weight, torch.zeros(384))

    def rms_reference(grad, x, weight, eps):
        return gradients(lambda x, w: F.rms_norm(x, [384], w, eps), grad, x, weight)

    compare("layer norm backward", layer_norm_backward, layer_reference, grad, x, weight, eps, tolerance=2e-4)
    compare("rms norm backward", rms_norm_backward, rms_reference, grad, x, weight, eps, tolerance=2e-4)


if __name__ == "__main__":
    main()
