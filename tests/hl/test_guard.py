"""Guards: which calls go straight to the binding of the call before, and which must not."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl


@hl.kernel
def shifted(x, by: hl.constexpr, kind: torch.dtype, extents, name: str = "add"):
    out = torch.empty_like(x, dtype=kind)
    for rows in hl.tile(x.size(0)):
        value = x[rows] + by * extents[0]
        out[rows] = (value if name == "add" else -value).to(kind)
    return out


X = torch.arange(5.0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((X, 3, torch.float32, (2, 7)), X + 6),
        ((X, 2.0, torch.float32, (2, 7)), X + 4),
        ((X, 2, torch.float64, (2, 7)), X.double() + 4),
        ((X, 2, torch.float32, (3, 7)), X + 6),
        ((X, 2, torch.float32, [2, 7]), X + 4),
        ((X, 2, torch.float32, (2,)), X + 4),
        ((X, 2, torch.float32, (2, 7), "less"), -(X + 4)),
        ((X, hl.constexpr(2), torch.float32, (2, 7)), X + 4),
    ],
)
def test_a_call_that_differs_in_a_constant_is_another_one(other, expected):
    args = (X, 2, torch.float32, (2, 7))
    shifted.reset()
    torch.testing.assert_close(shifted(*args), X + 4)
    torch.testing.assert_close(shifted(*other), expected)
    torch.testing.assert_close(shifted(*args), X + 4)


def test_calls_with_constants_types_lists_and_defaults_need_no_key(monkeypatch):
    args = (X, 2, torch.float32, [2, 7], "add")
    shifted(*args)
    shifted(*args)
    monkeypatch.setattr(shifted, "_key", None)
    torch.testing.assert_close(shifted(*args[:-1]), X + 4)
    torch.testing.assert_close(shifted(*args), X + 4)
