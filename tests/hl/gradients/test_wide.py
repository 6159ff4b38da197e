"""Gradients of 16 bits between the operations of a derived loop, which are not rounded."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl

DRAW = torch.Generator().manual_seed(0)


@hl.kernel
def chain(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.sin(torch.exp(x[rows, :] * 0.3) * 0.7) * 1.1
    return out


@hl.kernel
def one_by_one(x):
    out = torch.empty_like(x)
    for i, j in hl.grid(x.shape):
        out[i, j] = torch.sin(torch.exp(x[i, j] * 0.3) * 0.7) * 1.1
    return out


@hl.kernel
def scaled_rows(x, scales):
    """Numbers without dimensions beside tiles."""
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        factor = torch.exp(scales[i] * 0.5) * 0.7
        out[i, :] = torch.where(x[i, :] > 0, x[i, :] * factor * 1.1, factor * 0.3)
    return out


def reference(x):
    return torch.sin(torch.exp(x * 0.3) * 0.7) * 1.1


def gradient(function, x, up):
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(leaf), leaf, up.to(leaf.dtype))
    return found.double()


@pytest.mark.parametrize("kernel", [chain, one_by_one])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_they_are_nearer_to_what_they_should_be(kernel, dtype):
    x, up = (torch.randn(20, 32, generator=DRAW).to(dtype) for _ in range(2))
    exact = gradient(reference, x.double(), up)
    ours, eager = ((gradient(function, x, up) - exact).norm() for function in (kernel, reference))
    assert ours < 0.8 * eager


def test_numbers_beside_tiles():
    x, scales, up = (torch.randn(shape, generator=DRAW).bfloat16() for shape in ((20, 32), (20,), (20, 32)))
    given = [one.clone().requires_grad_() for one in (x, scales)]
    exact = [one.double().requires_grad_() for one in (x, scales)]
    found = torch.autograd.grad(scaled_rows(*given), given, up)
    factor = torch.exp(exact[1] * 0.5) * 0.7
    expected = torch.where(exact[0] > 0, exact[0] * factor[:, None] * 1.1, factor[:, None] * 0.3)
    for one, other in zip(found, torch.autograd.grad(expected, exact, up.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=4e-2)


def test_one_rounding_is_left():
    text = hl.grad(chain).to_hl((torch.randn(8, 16, dtype=torch.bfloat16),))
    assert text.count(".to(torch.bfloat16)") == 1


@hl.kernel
def scaled_twice(x, y):
    out = x.new_empty([x.size(0), y.size(1)])
    for m in hl.tile(x.size(0)):
        out[m, :] = torch.exp2((torch.mm(x[m, :], y[:, :]) * 0.25) - 1.0)
    return out


def test_factors_between_which_there_was_a_rounding_are_one():
    args = [torch.randn(16, 16, dtype=torch.bfloat16) for _ in range(2)]
    text = hl.grad(scaled_twice).to_hl(args)
    assert f" * {0.25 * 0.6931471805599453})" in text and "0.6931471805599453)" not in text


@hl.kernel
def masked_product(x, y):
    out = x.new_empty([x.size(0), y.size(1)])
    for m in hl.tile(x.size(0)):
        weights = torch.sigmoid(torch.mm(x[m, :], y[:, :]) * 0.5)
        out[m, :] = torch.where(m.index[:, None] > 3, weights * 0.25, 0.0)
    return out


def test_products_take_what_is_rounded_once():
    x, y = torch.randn(16, 32, generator=DRAW), torch.randn(32, 16, generator=DRAW)
    pairs = [(one.bfloat16().requires_grad_(), one.bfloat16().double().requires_grad_()) for one in (x, y)]
    made = masked_product(*(one for one, _ in pairs))
    scores = torch.sigmoid((pairs[0][1] @ pairs[1][1]) * 0.5) * 0.25
    expected = torch.where(torch.arange(16)[:, None] > 3, scores, 0.0)
    up = torch.randn(16, 16, generator=DRAW).bfloat16()
    grads = torch.autograd.grad(made, [one for one, _ in pairs], up)
    exact = torch.autograd.grad(expected, [one for _, one in pairs], up.double())
    for one, other in zip(grads, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)
