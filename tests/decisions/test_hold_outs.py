"""Spellings that no rule was written for give what torch gives; how fast they are, `benchmarks/forms.py` tells."""

from __future__ import annotations

import pytest

from tests.decisions.harness import Spelling
from tests.decisions.hold_outs import PRODUCTS, ROWS, VECTORS
from tests.decisions.more_hold_outs import ENDING, MAGNITUDES, NEIGHBOURS, RUNNING

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


@pytest.mark.parametrize("spelling", MAGNITUDES, ids=named)
def test_largest_magnitudes(spelling: Spelling) -> None:
    x, out = torch.randn(16, 1000), torch.zeros(16)
    spelling.fn[2,](x, out, 16, 1000, 1024)
    assert torch.equal(out, x.abs().amax(1))


@pytest.mark.parametrize("columns", [1000, 3, 65])
@pytest.mark.parametrize("spelling", NEIGHBOURS, ids=named)
def test_neighbours_in_rows(spelling: Spelling, columns: int) -> None:
    x, out = torch.randn(5, columns), torch.zeros(5, columns)
    spelling.fn[5,](x, out, 5, columns, 1024)
    around = torch.nn.functional.pad(x, (1, 1))
    torch.testing.assert_close(out, around[:, :-2] + 2 * x + around[:, 2:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spelling", RUNNING, ids=named)
def test_running_sums(spelling: Spelling) -> None:
    x, out = torch.randn(3, 1024), torch.zeros(3, 1024)
    spelling.fn[3,](x, out, 3, 1024, 1024)
    torch.testing.assert_close(out, x.cumsum(1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("rows", "columns"), [(64, 512), (50, 501), (17, 129), (3, 7)])
@pytest.mark.parametrize("spelling", ENDING, ids=named)
def test_vectors_that_end_anywhere(spelling: Spelling, rows: int, columns: int) -> None:
    w, x, out = torch.randn(rows, columns), torch.randn(columns), torch.zeros(rows)
    spelling.fn[-(-rows // 16),](w, x, out, rows, columns, 128)
    torch.testing.assert_close(out, w @ x, rtol=1e-4, atol=1e-4)
