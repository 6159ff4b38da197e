"""Products of what a loop transposes: their gradients are products as well, and sums of them are not moved."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients.compare import check
from tilewright import hl


@hl.kernel
def scores(x, table):
    out = x.new_empty([x.size(0)], dtype=torch.float32)
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for columns in hl.tile(table.size(0)):
            logits = hl.dot(x[rows, :], table[columns, :].transpose(0, 1), out_dtype=torch.float32)
            total = total + torch.sin(logits).sum(1)
        out[rows] = total
    return out


@hl.kernel
def batched(x, table):
    out = x.new_empty([x.size(0), x.size(1)], dtype=torch.float32)
    for batch, rows in hl.tile([x.size(0), x.size(1)]):
        total = hl.zeros([batch, rows])
        for columns in hl.tile(table.size(1)):
            logits = hl.dot(x[batch, rows, :], table[batch, columns, :].permute(0, 2, 1), out_dtype=torch.float32)
            total = total + torch.sin(logits).sum(-1)
        out[batch, rows] = total
    return out


def reference(x, table):
    return torch.sin(x.float() @ table.float().mT).sum(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", [scores, batched])
def test_transposed_operands(kernel, dtype):
    batch = () if kernel is scores else (3,)
    x, table = (torch.randn(*batch, rows, 16).to(dtype) / 4 for rows in (37, 300))
    check(kernel, reference, x, table)
    lines = hl.grad(kernel).to_hl((x, table)).splitlines()
    products = [line for line in lines if "hl.dot(" in line]
    assert len(products) == 4  # the way there, twice, and one for each gradient; no result is transposed
    assert not any("transpose(hl.dot" in line for line in lines)


def test_sums_of_products_of_16_bits_are_not_rounded_pass_by_pass():
    torch.manual_seed(0)
    x, table = torch.randn(2048, 16).bfloat16() / 4, torch.randn(24, 16).bfloat16() / 4
    given = [one.clone().requires_grad_() for one in (x, table)]
    exact = [one.double().requires_grad_() for one in (x, table)]
    (ours,) = torch.autograd.grad(scores(*given).sum(), given[1])
    (expected,) = torch.autograd.grad(torch.sin(exact[0] @ exact[1].t()).sum(), exact[1])
    wrong = (ours.double() - expected).abs().max() / expected.abs().max()
    assert wrong < 2**-8  # one rounding of the sum, and those of the products' operands
