"""Gradients of what the host knows: numbers that it computes, and sums over several loops with its bounds."""

import pytest
import torch

from tilewright import hl


@hl.kernel
def scaled(x, n: int):
    out = torch.empty_like(x)
    c = 1 / n
    for tile in hl.tile(x.size(0)):
        v = x[tile]
        powers = (v.abs() + 1) ** c + torch.exp(v * (n / 7)) + c / (2 + v * v)
        out[tile] = (
            (v * c + c - v / (c + 1)) * torch.where(v > c, v, c) + powers + torch.maximum(v, torch.full_like(v, c))
        )
    return out


def scaled_eagerly(v, n):
    c = 1 / n
    powers = (v.abs() + 1) ** c + torch.exp(v * (n / 7)) + c / (2 + v * v)
    return (v * c + c - v / (c + 1)) * torch.where(v > c, v, c) + powers + torch.maximum(v, torch.full_like(v, c))


@pytest.mark.parametrize("n", [3, 5])
def test_numbers_of_the_host(n):
    x = torch.randn(11, requires_grad=True)
    y = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad(scaled(x, n).sin().sum(), x)
    (expected,) = torch.autograd.grad(scaled_eagerly(y, n).sin().sum(), y)
    torch.testing.assert_close(grad, expected, atol=1e-5, rtol=1e-5)


@hl.kernel
def boxes(x, r: int):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        total = hl.zeros([rows, columns], dtype=x.dtype)
        for i in range(-r, r + 1):
            for j in range(-r, r + 1):
                total = total + x[rows.index + i, columns.index + j]
        out[rows, columns] = total / (2 * r + 1) ** 2
    return out


def test_a_sum_over_two_loops_with_bounds_of_the_host():
    x = torch.randn(7, 9, dtype=torch.float64, requires_grad=True)
    y = x.detach().requires_grad_()
    padded = torch.nn.functional.pad(y[None, None], (2, 2, 2, 2))
    (expected,) = torch.autograd.grad(torch.nn.functional.avg_pool2d(padded, 5, stride=1).sin().sum(), y)
    (grad,) = torch.autograd.grad(boxes(x, 2).sin().sum(), x)
    torch.testing.assert_close(grad, expected, atol=1e-6, rtol=1e-6)  # the number of the host is float32
    assert "reversed" not in hl.grad(boxes).to_hl((x, 2))  # the gradient of a sum needs no history
