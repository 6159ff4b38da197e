"""Who stores what: loads that touch other elements of one tensor, and types of what loops keep and sum."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients.compare import check, gradients
from tests.hl.gradients.examples import kernel
from tilewright import hl


@hl.kernel
def thirds(x):
    out = torch.empty([x.size(0), 4])
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, 0:4] * x[rows, 8:12]
    return out


@hl.kernel
def overlapping(x):
    out = torch.empty([x.size(0), 5])
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, 0:5] * x[rows, 4:9]
    return out


@hl.kernel
def every_other(x):
    out = torch.empty([x.size(0), 6])
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, 0:12:2] * x[rows, 1:12:2]
    return out


@hl.kernel
def in_arms(x):
    out = torch.empty([x.size(0), 6])
    for rows in hl.tile(x.size(0), block_size=2):
        if rows.begin > 2:
            out[rows, :] = x[rows, 0:6] * 2
        else:
            out[rows, :] = x[rows, 6:12] * 3
    return out


@hl.kernel
def from_the_third_row(x):
    out = torch.zeros([x.size(0), 12])
    for at in hl.grid(2, x.size(0)):
        out[at, :] = x[at, :].sin()
    return out


X = torch.randn(7, 12, generator=torch.Generator().manual_seed(0))
REFERENCES = [
    (from_the_third_row, lambda x: torch.cat([0 * x[:2], x[2:].sin()]), "store", "zeros"),
    (thirds, lambda x: x[:, 0:4] * x[:, 8:12], "store", "zeros"),
    (overlapping, lambda x: x[:, 0:5] * x[:, 4:9], "add", "zeros"),
    (every_other, lambda x: x[:, ::2] * x[:, 1::2], "store", "empty"),
    (in_arms, lambda x: torch.where(torch.arange(7)[:, None] > 3, x[:, :6] * 2, x[:, 6:] * 3), "store", "zeros"),
]


@pytest.mark.parametrize(
    ("function", "reference", "form", "made"), REFERENCES, ids=[str(case[0]) for case in REFERENCES]
)
def test_parts_of_a_row(function, reference, form, made):
    """What touches other elements is stored; where nobody or two touch an element, zeros are there first."""
    gradient = hl.grad(function)
    assert [owner.form for plan in gradient.plan((X,)) for owner in plan.owners] == [form]
    assert f"grad_x = torch.{made}(" in gradient.to_hl((X,))
    check(function, reference, X)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_16_bits_keep_16_bits_and_sum_32(dtype):
    """Operands are kept as the products read them; sums over passes are not rounded from pass to pass."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((40, 500), (500, 30)))
    made = hl.kernel(kernel("matmul.matmul").fn, config=hl.Config(block_sizes=[16, 16, 16]))
    text = hl.grad(made).to_hl((x, y, torch.relu))
    assert f"grad_of_acc = torch.empty([40, 30], dtype={dtype}" in text
    assert text.count("hl.dot") == 2  # the signs of the result are read, and nothing is multiplied again
    assert all("hl.dot" not in line or ".to(" not in line for line in text.splitlines())
    wide = gradients(lambda x, y: torch.relu(x @ y), (x.double(), y.double()))
    for ours, eager, exact in zip(
        gradients(lambda x, y: made(x, y, torch.relu), (x, y)),
        gradients(lambda x, y: torch.relu(x @ y), (x, y)),
        wide,
        strict=True,
    ):
        ours, eager = ((one.double() - exact).abs().max() for one in (ours, eager))
        assert ours <= 1.5 * eager


@hl.kernel
def reads_the_value(x, y):
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype)
    for m, n in hl.tile(out.shape):
        acc = hl.zeros([m, n])
        for k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[m, k], y[k, n])
        out[m, n] = torch.tanh(acc)
    return out


def test_a_rounded_result_does_not_stand_for_a_value_that_is_read():
    x, y = torch.randn(20, 30).bfloat16(), torch.randn(30, 10).bfloat16()
    assert hl.grad(reads_the_value).to_hl((x, y)).count("hl.dot") == 3
    check(reads_the_value, lambda x, y: torch.tanh(x @ y), x, y)
