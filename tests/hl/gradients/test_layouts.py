"""The elements of a gradient lie as those of its tensor: PyTorch keeps it as `.grad` then, and need not copy it."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients.compare import check
from tilewright import hl


@hl.kernel
def rows_of_views(x, y):
    """The gradient of `x` is stored, that of `y` is summed in an inner loop."""
    turned, out = y.transpose(0, 1), torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows], dtype=x.dtype)
        for columns in hl.tile(turned.size(1)):
            total = total + (x[rows, :] @ turned[:, columns]).sin().sum(1)
        out[rows] = total
    return out


def reference(x, y):
    return (x @ y.t()).sin().sum(1)


@pytest.mark.parametrize("form", ["plain", "transposed", "of one row", "with gaps", "expanded"])
def test_gradients_have_the_strides_of_their_tensors(form: str) -> None:
    x, y = torch.randn(37, 16), torch.randn(50, 16)
    forms = {
        "plain": x,
        "transposed": x.t().contiguous().t(),
        "of one row": x[:1].t().contiguous().t(),
        "with gaps": torch.randn(37, 32)[:, ::2],
        "expanded": x[:1].expand(37, 16),
    }
    given = [forms[form].requires_grad_(), y.requires_grad_()]
    grads = torch.autograd.grad(rows_of_views(*given).sum(), given)
    dense = form in ("plain", "transposed", "of one row")
    assert grads[0].stride() == (given[0].stride() if dense else (16, 1))
    assert grads[1].is_contiguous()
    check(rows_of_views, reference, forms[form].detach(), y.detach())


def test_three_dimensions() -> None:
    @hl.kernel
    def doubled(x):
        out = torch.empty_like(x)
        for one, other in hl.tile([x.size(0), x.size(1)]):
            out[one, other, :] = x[one, other, :] * x[one, other, :]
        return out

    x = torch.randn(4, 5, 6).permute(2, 0, 1).requires_grad_()
    (grad,) = torch.autograd.grad(doubled(x).sum(), x)
    assert grad.stride() == x.stride()
    torch.testing.assert_close(grad, 2 * x)
