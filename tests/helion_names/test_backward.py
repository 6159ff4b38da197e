"""`helion.experimental.backward` gives what autograd gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tilewright import hl
from tilewright.helion_names.gradients import backward


@hl.kernel
def scaled(x, y, scale: float):
    x, y = torch.broadcast_tensors(x, y)
    out, twice = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * y[tile] * scale
        twice[tile] = x[tile] * 2
    return out, twice


@hl.kernel
def embedded(table, ids):
    out = torch.empty([ids.size(0), table.size(1)], dtype=table.dtype)
    for rows in hl.tile(ids.size(0)):
        out[rows, :] = table[ids[rows], :]
    return out


@hl.kernel
def largest(x):
    out = torch.empty([x.size(0)], dtype=torch.int64)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows, :].argmax(-1)
    return out


def test_gradients_of_several_results():
    x, y, up, other = torch.randn(4, 9, 20).unbind(0)
    grads, text, code = backward(scaled, (up, other), x, y[0], 0.5, return_code=True)
    torch.testing.assert_close(grads, (up * y[0] * 0.5 + other * 2, (up * x * 0.5).sum(0)), atol=1e-4, rtol=1e-4)
    assert "def scaled_backward(" in text and "tl.load" in code
    with pytest.raises(hl.exc.InvalidAPIUsage, match="2 results, and there are 1 gradients"):
        backward(scaled, up, x, y, 0.5)


def test_tensors_without_a_gradient_have_zeros():
    table, ids, up = torch.randn(7, 5), torch.randint(0, 7, (20,)), torch.randn(20, 5)
    for_table, for_ids = backward(embedded, up, table, ids)
    expected = torch.autograd.grad(F.embedding(ids, given := table.clone().requires_grad_()), given, up)[0]
    torch.testing.assert_close(for_table, expected)
    assert for_ids.dtype == torch.int64 and not for_ids.any()
    assert not backward(largest, torch.zeros(7, dtype=torch.int64), table).any()
    assert not table.requires_grad


def test_what_has_no_gradient_is_helions_error():
    assert issubclass(hl.exc.NotDifferentiable, hl.exc.AutodiffNotSupported)
