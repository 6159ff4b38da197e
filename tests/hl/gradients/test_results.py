"""Results of the forward pass that the backward pass loads instead of computing them again."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients.compare import check
from tilewright import hl

X = torch.randn(7, 20, generator=torch.Generator().manual_seed(0))


@hl.kernel
def softmax(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], -1)
    return out


@hl.kernel
def product(x, y):
    out = x.new_empty([x.size(0), y.size(1)])
    for m, n in hl.tile(out.shape):
        acc = hl.zeros([m, n])
        for k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[m, k], y[k, n])
        out[m, n] = torch.relu(acc)
    return out


@hl.kernel
def in_an_arm(x):
    out = torch.zeros_like(x)
    for rows in hl.tile(x.size(0), block_size=2):
        values = torch.exp(x[rows, :])
        if rows.begin > 2:
            out[rows, :] = values
        else:
            out[rows, :] = values * 2
    return out


@hl.kernel
def into(x, out):
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.exp(x[rows, :])


@hl.kernel
def half(x):
    out = torch.empty_like(x, dtype=torch.bfloat16)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.exp(x[rows, :]).to(torch.bfloat16)
    return out


@hl.kernel
def twice(x):
    out, other = torch.empty_like(x), torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.exp(x[rows, :])
    for rows in hl.tile(x.size(0)):
        other[rows, :] = x[rows, :] + 1
    return out, other


def saved(kernel, *args):
    """Names of what each loop saves."""
    return [set(plan.saved) for plan in hl.grad(kernel).plan(args)]


def test_a_softmax_keeps_its_result_alone():
    assert saved(softmax, X) == [{"out"}]
    check(softmax, lambda x: x.softmax(-1), X)


def test_the_result_of_a_product_stands_for_the_product():
    y = X.t().contiguous()
    assert hl.grad(product).to_hl((X, y)).count("hl.dot") == 2
    check(product, lambda x, y: torch.relu(x @ y), X, y)


@pytest.mark.parametrize("kernel", [in_an_arm, twice, half], ids=lambda kernel: kernel.name)
def test_what_is_elsewhere_or_something_else_is_computed_again(kernel):
    assert all("out" not in names for names in saved(kernel, X))


def test_what_is_stored_in_an_arm_is_not_read_outside():
    check(in_an_arm, lambda x: torch.cat([2 * x[:4].exp(), x[4:].exp()]), X)


def test_results_in_arguments_may_be_written_again():
    x, out = X.clone().requires_grad_(), torch.empty_like(X)
    into(x, out)
    total = out.sum()
    with torch.no_grad():
        out.zero_()
    (grad,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(grad, X.exp())


def test_a_result_that_is_changed_in_place_is_pytorchs_error():
    out = softmax(X.clone().requires_grad_())
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
