"""Kernels whose names are those that derived kernels give: they mean what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.hl.gradients.compare import check, leaves
from tilewright import hl


@hl.kernel(autotune_effort="none")
def softmax_backward(out, grad_out):
    grad_x = torch.empty_like(out)
    for rows in hl.tile(out.size(0)):
        product = grad_out[rows, :] * out[rows, :]
        grad_x[rows, :] = product - out[rows, :] * product.sum(-1, keepdim=True)
    return grad_x


@hl.kernel(autotune_effort="none")
def scaled(x, parts_x, grad_x):
    grad_grad_x = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        grad_out = x[rows, :] * parts_x[:]
        grad_grad_x[rows, :] = grad_out * grad_x[rows, :]
    return grad_grad_x


@hl.kernel(autotune_effort="none")
def times(x, grad_x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :].sin() * grad_x
    return out


def random(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def test_gradients_of_gradients_by_hand() -> None:
    def reference(out: Any, up: Any) -> Any:
        return up * out - out * (up * out).sum(-1, keepdim=True)

    check(softmax_backward, reference, *random((7, 5), (7, 5)))
    check(scaled, lambda x, w, y: x * w * y, *random((7, 5), (5,), (7, 5)))


def test_a_number_with_the_name_of_a_gradient_is_refused() -> None:
    with pytest.raises(hl.exc.NotDifferentiable, match="grad_x is a number, and the name of a gradient") as caught:
        times(*leaves(tuple(random((7, 5)))), 3)
    assert caught.value.location is not None and caught.value.hint
