"""Views of negated numbers, whose memory holds them with the other sign, are refused, by remembered launches too."""

import pytest
import torch

import tilewright
import tilewright.language as tl
from tilewright import hl


@tilewright.jit
def copy(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@hl.kernel
def doubled(x):
    out = torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


def test_a_launch():
    x, out = torch.randn(8), torch.empty(8)
    for _ in range(2):  # the second time the launch is known
        copy[(1,)](x, out, 8)
        assert torch.equal(out, x)
        with pytest.raises(tilewright.errors.ArgumentError, match="`x` is a view of negated numbers") as caught:
            copy[(1,)](torch._neg_view(x), out, 8)
        assert "x.resolve_neg()" in caught.value.hint
        with pytest.raises(tilewright.errors.ArgumentError, match="`y` is a view of negated numbers"):
            copy[(1,)](x, torch._neg_view(out), 8)


def test_a_kernel_of_hl():
    imaginary = torch.randn(8, dtype=torch.complex64).conj().imag
    assert imaginary.is_neg()
    for _ in range(2):
        torch.testing.assert_close(doubled(imaginary.resolve_neg()), imaginary * 2)
        with pytest.raises(tilewright.errors.ArgumentError, match="view of negated numbers"):
            doubled(imaginary)
