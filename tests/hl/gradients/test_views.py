"""Gradients of views are added into those of the tensors that they are views of, and extremes that cancel have none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tilewright import hl

LOGITS = torch.randn(9, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([3, 3, 0, 19, 5, 7, 3, 11, 1])


@hl.kernel
def losses_of(logits, labels):
    n, classes = logits.size()
    flat = logits.view(-1)
    losses = logits.new_empty([n])
    for rows in hl.tile(n):
        values = logits[rows, :]
        largest = torch.amax(values, -1)
        total = torch.log(torch.exp(values - largest[:, None]).sum(-1)) + largest
        losses[rows] = total - flat[rows.index * classes + labels[rows]]
    return losses


@hl.kernel
def of_two(logits, flat, labels):
    n, classes = logits.size()
    out = logits.new_empty([n])
    for rows in hl.tile(n):
        out[rows] = (logits[rows, :] ** 2).sum(-1) * flat[rows.index * classes + labels[rows]]
    return out


@hl.kernel
def squares_beside(logits, flat, labels):
    n, classes = logits.size()
    out = logits.new_empty([n])
    for rows in hl.tile(n):
        out[rows] = logits[rows, :].sum(-1) + flat[rows.index * classes + labels[rows]] ** 2
    return out


def _agrees(call, reference, *args):
    made = [arg.detach().clone().requires_grad_() for arg in args]
    twins = [arg.detach().clone().requires_grad_() for arg in args]
    found, expected = call(*made), reference(*twins)
    up = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(1))
    grads = torch.autograd.grad(found, made, up)
    for one, other in zip(grads, torch.autograd.grad(expected, twins, up), strict=True):
        torch.testing.assert_close(one, other)


def _forms(kernel, *args):
    (plan,) = hl.grad(kernel).plan(args)
    return {owner.tensor: owner.form for owner in plan.owners}


@pytest.mark.parametrize("double", [False, True])
def test_a_view_subscripted_by_data_needs_no_tensor_of_its_own(double):
    kernel = hl.kernel(losses_of.fn)
    before = (lambda x: x * 2) if double else (lambda x: x)
    _agrees(
        lambda x: kernel(before(x), LABELS),
        lambda x: F.cross_entropy(before(x), LABELS, reduction="none"),
        LOGITS,
    )
    assert _forms(kernel, LOGITS, LABELS) == {"logits": "store", "flat": "joined"}
    text = hl.grad(kernel).to_hl((LOGITS, LABELS))
    assert "grad_flat = grad_logits.view([180])" in text and "zeros" not in text


def test_what_else_a_row_has_does_not_matter():
    def picked(x):
        return x.view(-1)[torch.arange(9) * 20 + LABELS]

    kernel = hl.kernel(squares_beside.fn)
    _agrees(lambda x: kernel(x, x.view(-1), LABELS), lambda x: x.sum(-1) + picked(x) ** 2, LOGITS)
    kernel = hl.kernel(of_two.fn)  # it would load the rows once more
    _agrees(lambda x: kernel(x, x.view(-1), LABELS), lambda x: (x**2).sum(-1) * picked(x), LOGITS)


def test_a_view_of_the_caller_may_be_asked_for_its_gradient():
    kernel, x = hl.kernel(squares_beside.fn), LOGITS.clone().requires_grad_()
    view = x.view(-1)
    for_x, for_view = torch.autograd.grad(kernel(x, view, LABELS).sum(), (x, view))
    places = torch.arange(9) * 20 + LABELS
    expected = torch.zeros_like(LOGITS).view(-1).index_add(0, places, 2 * LOGITS.view(-1)[places])
    torch.testing.assert_close(for_view, expected)
    torch.testing.assert_close(for_x, expected.view_as(LOGITS) + 1)


def test_tensors_that_are_no_views_keep_gradients_of_their_own():
    kernel = hl.kernel(squares_beside.fn)
    places = torch.arange(9) * 20 + LABELS
    _agrees(lambda x, y: kernel(x, y, LABELS), lambda x, y: x.sum(-1) + y[places] ** 2, LOGITS, LOGITS.view(-1) + 1)
    _agrees(  # the same memory, but another graph
        lambda x: kernel(x, x.detach().view(-1).requires_grad_(), LABELS),
        lambda x: x.sum(-1) + x.detach().view(-1)[places] ** 2,
        LOGITS,
    )
    _agrees(
        lambda x: kernel(x * 2, (x * 2).view(-1), LABELS),
        lambda x: 2 * x.sum(-1) + (2 * x.view(-1)[places]) ** 2,
        LOGITS,
    )


def test_a_transposed_tensor_is_no_view_in_the_same_order():
    kernel, square = hl.kernel(squares_beside.fn), LOGITS[:, :9].contiguous()
    _agrees(
        lambda x: kernel(x, x.t().contiguous().view(-1), LABELS % 9),
        lambda x: x.sum(-1) + x.t().reshape(-1)[torch.arange(9) * 9 + LABELS % 9] ** 2,
        square,
    )


def test_deterministic_algorithms_keep_it_apart():
    kernel = hl.kernel(losses_of.fn)
    torch.use_deterministic_algorithms(True)
    try:
        assert _forms(kernel, LOGITS, LABELS) == {"logits": "store", "flat": "sorted"}
        _agrees(lambda x: kernel(x, LABELS), lambda x: F.cross_entropy(x, LABELS, reduction="none"), LOGITS)
    finally:
        torch.use_deterministic_algorithms(False)


def shifted(values, largest):
    return torch.exp(values - largest[:, None]).sum(-1).log() + largest


def not_shifted(values, largest):
    return torch.exp(values - largest[:, None]).sum(-1).log() + 2 * largest


def joined(values, largest):
    return torch.exp(values - largest[:, None]).sum(-1).log() + torch.stack([largest, largest], -1).sum(-1)


def compared(values, largest):
    return torch.where(values == largest[:, None], values, 0.0).sum(-1)


def normed(values, largest):
    return torch.logsumexp(values / largest[:, None], -1)


def weighed(values, largest):
    weights = torch.exp(values - largest[:, None])
    return ((weights / weights.sum(-1)[:, None]) * values).sum(-1)


@pytest.mark.parametrize("extreme", [torch.amax, torch.amin])
@pytest.mark.parametrize("body", [shifted, not_shifted, joined, compared, normed, weighed])
def test_extremes_have_gradients_unless_they_cancel(body, extreme):
    @hl.kernel
    def kernel(x):
        out = x.new_empty([x.size(0)])
        for rows in hl.tile(x.size(0)):
            values = x[rows, :]
            out[rows] = body(values, extreme(values, -1))
        return out

    _agrees(kernel, lambda x: body(x, extreme(x, -1)), LOGITS)
    text = hl.grad(kernel).to_hl((LOGITS,))
    assert (" == " in text) == (body not in (shifted, weighed))
