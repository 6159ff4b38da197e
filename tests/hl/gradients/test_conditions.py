"""Gradients of what only some passes load: the others leave zeros, not what memory held."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl


@pytest.fixture(autouse=True)
def poisoned():
    """`torch.empty` gives NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@hl.kernel
def in_a_branch(x, y):
    out = torch.zeros([x.size(0)], dtype=x.dtype)
    for i in hl.grid(x.size(0)):
        total = 0.0
        if i % 2 == 0:
            total = total + torch.sin(x[i, 0]) * y[i, 0]
        out[i] = total
    return out


@hl.kernel
def where_data_says_so(x, y):
    out = torch.zeros([x.size(0)], dtype=x.dtype)
    for i in hl.grid(x.size(0)):
        if x[i, 0] > 0:
            out[i] = torch.sin(x[i, 1]) * y[i, 0]
        elif x[i, 1] > 0:
            out[i] = y[i, 2]
    return out


@pytest.mark.parametrize("kernel", [in_a_branch, where_data_says_so], ids=lambda kernel: kernel.name)
def test_elements_that_are_not_loaded(kernel):
    args = [torch.randn(5, 6, generator=torch.Generator().manual_seed(at)) for at in (1, 2)]
    mine, theirs = ([arg.clone().requires_grad_() for arg in args] for _ in range(2))
    up = torch.randn(5)
    found = torch.autograd.grad(kernel(*mine), mine, up)
    reference = kernel.bind(tuple(theirs)).run_ref(*theirs, mode=hl.RefMode.TILED, gradients=True)
    torch.testing.assert_close(found, torch.autograd.grad(reference, theirs, up))
