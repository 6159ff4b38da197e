"""Tiles of as many lanes as the program says meet rows of as many elements, where no end of a range cuts them."""

from __future__ import annotations

import pytest
import torch

import tilewright.hl as hl
from tilewright.hl import exc


@pytest.fixture(params=[True, False], ids=["static", "dynamic"])
def static(request):
    return request.param


def chunk_product(static, **options):
    @hl.kernel(static_shapes=static, dot_precision="ieee", **options)
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        chunk = hl.specialize(a.size(1))
        out = torch.empty_like(b)
        for rows, columns in hl.tile([a.size(0), b.size(1)], block_size=[chunk, None]):
            out[rows, columns] = hl.dot(a[rows, :], b[rows, columns]) + b[rows, columns].sum(0)
        return out

    return product


def chunk_product_of_torch(a, b):
    chunk = a.size(1)
    parts = zip(a.split(chunk), b.split(chunk), strict=True)
    return torch.cat([left @ right + right.sum(0) for left, right in parts])


def test_a_product_over_the_lanes_of_a_tile(static):
    product = chunk_product(static)
    for rows, chunk in ((128, 32), (64, 32), (64, 16)):
        a, b = torch.randn(rows, chunk), torch.randn(rows, 50)
        torch.testing.assert_close(product(a, b), chunk_product_of_torch(a, b), atol=1e-4, rtol=1e-4)


def test_its_gradient():
    a, b = torch.randn(64, 16, requires_grad=True), torch.randn(64, 20, requires_grad=True)
    made, expected = chunk_product(True)(a, b), chunk_product_of_torch(a, b)
    grad = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(made, (a, b), grad), torch.autograd.grad(expected, (a, b), grad), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_row_beside_a_tile(static):
    @hl.kernel(static_shapes=static)
    def repeated(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        lanes = hl.specialize(row.size(0))
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0), block_size=lanes):
            out[tile] = x[tile] + row[:] * tile.block_size + tile.index * tile.id
        return out

    row = torch.randn(32)
    for count in (128, 96):
        x, index = torch.randn(count), torch.arange(count)
        torch.testing.assert_close(repeated(x, row), x + (row * 32).repeat(count // 32) + index * (index // 32))
    with pytest.raises(exc.Error, match="32"):  # the last tile would be cut
        repeated(torch.randn(100), row)


def test_tiles_of_two_loops_that_walk_one_chunk():
    @hl.kernel(dot_precision="ieee")
    def lower(x: torch.Tensor) -> torch.Tensor:
        chunks, size = hl.specialize(x.size(0) // 16), 16
        out = torch.empty(x.size(0), size, device=x.device)
        for chunk in hl.grid(chunks):
            begin = chunk * size
            for rows in hl.tile(begin, begin + size, block_size=size):
                for columns in hl.tile(begin, begin + size, block_size=size):
                    scores = hl.dot(x[rows, :], x[columns, :].T)
                    out[rows, :] = torch.where(rows.index[:, None] >= columns.index[None, :], scores, 0.0)
        return out

    x = torch.randn(64, 24)
    expected = torch.cat([torch.tril(part @ part.T) for part in x.split(16)])
    torch.testing.assert_close(lower(x), expected, atol=1e-4, rtol=1e-4)


def test_reductions_in_chunks_leave_them_alone():
    @hl.kernel(config=hl.Config(reduction_loops=[16]))
    def means(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        lanes = hl.specialize(row.size(0))
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0), block_size=lanes):
            value = x[tile] - row[:]
            out[tile] = value - value.mean(0)
        return out

    x, row = torch.randn(128), torch.randn(64)
    value = x.view(2, 64) - row
    expected = (value - value.mean(1, keepdim=True)).view(-1)
    torch.testing.assert_close(means(x, row), expected, atol=1e-5, rtol=1e-5)
