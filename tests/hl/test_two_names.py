"""Two names of one tensor: a change in place is seen by both, through loops and branches, as in PyTorch."""

import pytest
import torch

from tilewright import hl


@hl.kernel
def summed(x):
    first, second = torch.empty([x.size(0)], dtype=x.dtype), torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        a = b = hl.zeros([rows], dtype=x.dtype)
        for columns in hl.tile(x.size(1)):
            a += x[rows, columns].sum(1)
            b += x[rows, columns].square().sum(1)
        first[rows], second[rows] = a, b
    return first, second


@hl.kernel
def one_changed(x):
    first, second = torch.empty([x.size(0)]), torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a = hl.zeros([rows])
        b = a
        for column in hl.grid(x.size(1)):
            a.add_(x[rows, column])
        first[rows], second[rows] = a, b
    return first, second


@hl.kernel
def rebound(x):
    first, second = torch.empty([x.size(0)]), torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a = b = hl.zeros([rows])
        for column in hl.grid(x.size(1)):
            a, b = b + x[rows, column], a * 2
        first[rows], second[rows] = a, b
    return first, second


@hl.kernel
def branched(x):
    first, second = torch.empty([x.size(0)]), torch.empty([x.size(0)])
    for row in hl.grid(x.size(0)):
        a = b = x[row, 0] * 1
        if x[row, 1] > 0:
            a += 5
        a += 1
        first[row], second[row] = a, b
    return first, second


@pytest.mark.parametrize("kernel", [summed, one_changed, rebound, branched], ids=lambda kernel: kernel.fn.__name__)
def test_as_in_pytorch(kernel):
    x = torch.randn(9, 5)
    expected = hl.kernel(kernel.fn, ref_mode=hl.RefMode.EAGER)(x)
    for one, other in zip(kernel(x), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_gradient_is_that_of_what_is_computed():
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    y = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad(sum(part.sin().sum() for part in summed(x)), x)
    total = y.sum(1) + y.square().sum(1)
    (expected,) = torch.autograd.grad(2 * total.sin().sum(), y)
    torch.testing.assert_close(grad, expected)


@hl.kernel
def parted(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a = b = hl.zeros([rows])
        for column in hl.grid(x.size(1)):
            a += x[rows, column]
            b = b * 2
        out[rows] = a + b
    return out


@hl.kernel
def met(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a, b = hl.zeros([rows]), hl.zeros([rows])
        for column in hl.grid(x.size(1)):
            a += x[rows, column]
            b = a
        out[rows] = a + b
    return out


@pytest.mark.parametrize("kernel", [parted, met], ids=lambda kernel: kernel.fn.__name__)
def test_one_in_some_passes_only_is_refused(kernel):
    with pytest.raises(hl.exc.ControlFlowTensorMismatch, match="one tensor .* changed in place") as caught:
        kernel(torch.randn(9, 5))
    assert "for column in" in caught.value.location.source_line() and ".clone()" in caught.value.hint
