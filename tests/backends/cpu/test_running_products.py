"""Running products: lanes before the first hold one, so that nothing is multiplied that a select drops afterwards."""

from __future__ import annotations

import re

import pytest

import tilewright
import tilewright.language as tl

torch = pytest.importorskip("torch")


@tilewright.jit
def products(x, out, N: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.cumprod(tl.load(x + i), 0, reverse=REVERSE))


@tilewright.jit
def _times(a, b):
    return b * a


@tilewright.jit
def of_one_number(x, out, N: tl.constexpr, REVERSE: tl.constexpr):
    tl.store(
        out + tl.arange(0, N), tl.associative_scan(tl.full((N,), tl.load(x), x.dtype.element_ty), 0, _times, REVERSE)
    )


def _expected(x: torch.Tensor, reverse: bool) -> torch.Tensor:
    return x.flip(0).cumprod(0).flip(0) if reverse else x.cumprod(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32, torch.int8])
@pytest.mark.parametrize("reverse", [False, True])
def test_values(dtype, reverse):
    x = 1 + torch.rand(64) / 16 if dtype.is_floating_point else torch.randint(-3, 4, (64,))
    x = x.to(dtype)
    out = torch.empty_like(x)
    products[(1,)](x, out, 64, reverse)
    torch.testing.assert_close(
        out, _expected(x, reverse).to(dtype), rtol=0.02 if dtype == torch.float16 else 1e-5, atol=0
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_numbers_that_have_no_neighbour_keep_their_bits(reverse):
    """The first of a running product is the number itself: zeros keep their signs, subnormal numbers their bits."""
    x = torch.tensor([-0.0] + [1.0] * 30 + [1e-40])
    out = torch.empty_like(x)
    products[(1,)](x, out, 32, reverse)
    first = -1 if reverse else 0
    assert out.view(torch.int32)[first] == x.view(torch.int32)[first]
    assert bool(torch.signbit(out[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
@pytest.mark.parametrize("reverse", [False, True])
def test_one_number_everywhere(dtype, reverse):
    x, out = torch.tensor([-1], dtype=dtype), torch.empty(32, dtype=dtype)
    of_one_number[(1,)](x, out, 32, reverse)
    torch.testing.assert_close(out, _expected(x.expand(32), reverse).to(dtype))


def test_no_product_is_dropped():
    x = torch.rand(64)
    text = products[(1,)](x, torch.empty_like(x), 64, False).asm["llir"]
    shuffled = re.findall(r"shufflevector <\d+ x float> %\S+, <\d+ x float> (\S+)", text)
    assert "splat" in shuffled, shuffled
    assert not re.search(r"select <\d+ x i1> <", text)
