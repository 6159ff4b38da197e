"""Spellings that no rule was written for give what torch gives; how fast they are, `benchmarks/forms.py` tells."""

from __future__ import annotations

import pytest

from tests.decisions.harness import Spelling
from tests.decisions.hold_outs import PRODUCTS, ROWS, VECTORS

torch = pytest.importorskip("torch")


def named(spelling: Spelling) -> str:
    return spelling.name


@pytest.mark.parametrize("spelling", PRODUCTS, ids=named)
def test_products(spelling: Spelling) -> None:
    a, b, out = torch.randn(128, 256), torch.randn(256, 128), torch.zeros(128, 128)
    spelling.fn[2, 1](a, b, out, 128, 128, 256, 64, 128, 64)
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spelling", VECTORS, ids=named)
def test_matrices_times_vectors(spelling: Spelling) -> None:
    w, x, out = torch.randn(64, 512), torch.randn(512), torch.zeros(64)
    spelling.fn[2,](w, x, out, 64, 512, 32, 128)
    torch.testing.assert_close(out, w @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spelling", ROWS, ids=named)
def test_sums_of_squares(spelling: Spelling) -> None:
    x, out = torch.randn(32, 512), torch.zeros(32)
    spelling.fn[2,](x, out, 32, 512, 16, 128)
    torch.testing.assert_close(out, x.square().sum(1), rtol=1e-4, atol=1e-4)
