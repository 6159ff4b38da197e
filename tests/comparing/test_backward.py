"""`assert_backward`: right and wrong backward kernels, arrays of torch and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError
from tilewright.testing import assert_backward

torch = pytest.importorskip("torch")


@tilewright.jit
def silu(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n)
    tl.store(y_ptr + offsets, tl.load(w_ptr) * x * tl.sigmoid(x), offsets < n)


@tilewright.jit
def silu_backward(x_ptr, w_ptr, dy_ptr, dx_ptr, n, SLOPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, dy = tl.load(x_ptr + offsets, offsets < n), tl.load(dy_ptr + offsets, offsets < n)
    s = tl.sigmoid(x)
    tl.store(dx_ptr + offsets, tl.load(w_ptr) * dy * (s + SLOPE * x * s * (1 - s)), offsets < n)


X, W = torch.randn(100, generator=torch.Generator().manual_seed(0)), torch.tensor([1.5])


def _by_hand(slope: float) -> Any:
    def backward(d_y_ptr: torch.Tensor) -> list[torch.Tensor]:
        dx, s = torch.empty(100), torch.sigmoid(X)
        silu_backward[(4,)](X, W, d_y_ptr, dx, 100, SLOPE=slope, BLOCK=32)
        return [dx, (d_y_ptr * X * s).sum().reshape(1)]

    return backward


def _check(backward: Any) -> None:
    args = (X, W, torch.empty(100), 100)
    assert_backward(silu, backward, args, grid=(4,), wrt=["x_ptr", "w_ptr"], rtol=1e-4, atol=1e-4, BLOCK=32)


def test_right() -> None:
    _check(_by_hand(1.0))


def test_wrong() -> None:
    with pytest.raises(AssertionError, match=r"`x_ptr`: \d+ of 100 elements differ, first at \(0,\)"):
        _check(_by_hand(0.5))


def test_another_shape_and_nothing() -> None:
    with pytest.raises(AssertionError, match=r"`w_ptr`: the gradient has shape \(\)"):
        _check(lambda d_y_ptr: {"x_ptr": _by_hand(1.0)(d_y_ptr)[0], "w_ptr": torch.zeros(())})
    with pytest.raises(ArgumentError, match="no gradient for `w_ptr`"):
        _check(lambda d_y_ptr: _by_hand(1.0)(d_y_ptr)[:1])


def test_arrays_of_numpy() -> None:
    x, w = X.numpy(), W.numpy()

    def backward(d_y_ptr: Any) -> list[Any]:
        s = 1 / (1 + np.exp(-x))
        return [w * d_y_ptr * (s + x * s * (1 - s))]

    args = (x, w, np.empty_like(x), 100)
    assert_backward(silu, backward, args, grid=(4,), wrt=["x_ptr"], rtol=1e-4, atol=1e-4, BLOCK=32)
