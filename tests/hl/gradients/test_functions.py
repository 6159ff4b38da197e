"""Scans and reductions with functions of the user: in tiles that are cut, from either side, compiled."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients.compare import check
from tilewright import hl


def geometric(a, b):
    return a + b + a * b


@hl.kernel(config=hl.Config(block_sizes=[4, 8]))
def along_tiles(x: torch.Tensor, reverse: hl.constexpr) -> torch.Tensor:
    """Running combinations within each tile; the last one is cut."""
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = hl.associative_scan(geometric, x[rows, columns], 1, reverse)
    return out


def by_tiles(x, reverse):
    def whole(part):
        part = part.flip(1) if reverse else part
        made = (1 + part).cumprod(1) - 1
        return made.flip(1) if reverse else made

    return torch.cat([whole(part) for part in x.split(8, 1)], 1)


@pytest.mark.parametrize("reverse", [False, True])
def test_tiles_that_are_cut(reverse):
    check(along_tiles, by_tiles, torch.rand(6, 19, dtype=torch.float64), reverse)


@hl.kernel
def of_many(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    sums, products = torch.empty_like(x), torch.empty_like(x)
    largest, total = (torch.empty([x.size(0)], dtype=x.dtype) for _ in range(2))
    for rows in hl.tile(x.size(0)):
        values, other = x[rows, :], y[rows, :]
        weighted, _ = hl.associative_scan(lambda a, b, c, d: (a * d + c, b * d), (values, other.detach()), 1)
        sums[rows, :] = weighted
        products[rows, :] = torch.cumprod(values * other, 1)
        largest[rows] = hl.reduce(lambda a, b: torch.where(a > b, a, b), values * other, 1, float("-inf"))
        total[rows] = hl.reduce(torch.add, values, None).expand([rows]) if x.size(0) == 1 else values.sum(1)
    return sums, products, largest, total


def many_reference(x, y):
    state, sums = torch.zeros_like(x[:, 0]), []
    for at in range(x.size(1)):
        state = state * y.detach()[:, at] + x[:, at]
        sums.append(state)
    return torch.stack(sums, 1), (x * y).cumprod(1), (x * y).amax(1), x.sum(1)


def operands(dtype):
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(2, 5, 11, generator=generator, dtype=torch.float64).to(dtype)
    x[1, 3], y[2, 0] = 0.0, 0.0  # running products have a gradient there
    return x, y


def test_rows():
    check(of_many, many_reference, *operands(torch.float64))


@pytest.mark.compiled
def test_compiled():
    check(of_many, many_reference, *operands(torch.float32))
    check(along_tiles, by_tiles, torch.rand(6, 19), False)


@hl.kernel
def in_order(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, least = torch.empty_like(x), torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        out[rows, :], _ = torch.sort(x[rows, :], 1)
        least[rows] = torch.kthvalue(x[rows, :], 3, 1)[0]
    return out, least


@pytest.mark.compiled
def test_sorted_rows():
    x = torch.randn(5, 11, generator=torch.Generator().manual_seed(2))
    check(in_order, lambda x: (x.sort(1)[0], x.kthvalue(3, 1)[0]), x)
