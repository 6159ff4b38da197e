"""Rows of different lengths, stored one behind the other: sums, means, softmax, and a dense copy.

`hl.jagged_tile(lengths)` loops to the longest row of a tile of rows; lanes past the end of their own row are invalid,
and no statement sees them.
"""

from itertools import pairwise

import torch
from check import compare

from tilewright import hl


@hl.kernel(config=hl.Config(block_sizes=[8, 32, 32]))
def jagged_sum(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    rows, width = offsets.size(0) - 1, x.size(1)
    out = torch.zeros([rows, width], dtype=x.dtype, device=x.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        for tile_n in hl.tile(width):
            total = hl.zeros([tile_b, tile_n], dtype=torch.float32)
            for tile_k in hl.jagged_tile(lengths):
                total = total + x[starts[:, None] + tile_k.index[None, :], tile_n].sum(dim=1)
            out[tile_b, tile_n] = total
    return out


@hl.kernel(config=hl.Config(block_sizes=[8, 32, 32]))
def jagged_mean(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    rows, width = offsets.size(0) - 1, x.size(1)
    out = torch.zeros([rows, width], dtype=x.dtype, device=x.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        for tile_n in hl.tile(width):
            total = hl.zeros([tile_b, tile_n], dtype=torch.float32)
            for tile_k in hl.jagged_tile(lengths):
                total = total + x[starts[:, None] + tile_k.index[None, :], tile_n].sum(dim=1)
            count = torch.maximum(lengths, torch.full_like(lengths, 1)).to(torch.float32)
            out[tile_b, tile_n] = total / count[:, None]
    return out


@hl.kernel(config=hl.Config(block_sizes=[32, 32, 32]))
def jagged_softmax(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for row in hl.grid(offsets.size(0) - 1):
        begin, end = offsets[row], offsets[row + 1]
        for tile_n in hl.tile(x.size(1)):
            largest = hl.full([tile_n], float("-inf"), dtype=torch.float32)
            total = hl.zeros([tile_n], dtype=torch.float32)
            for tile_k in hl.tile(begin, end):
                values = x[tile_k, tile_n]
                new = torch.maximum(largest, torch.amax(values, 0))
                total = total * torch.exp(largest - new) + torch.exp(values - new[None, :]).sum(0)
                largest = new
            for tile_k in hl.tile(begin, end):
                out[tile_k, tile_n] = torch.exp(x[tile_k, tile_n] - largest[None, :]) / total[None, :]
    return out


@hl.kernel(config=hl.Config(block_sizes=[8, 32]))
def to_dense(x: torch.Tensor, offsets: torch.Tensor, longest: hl.constexpr) -> torch.Tensor:
    rows = offsets.size(0) - 1
    out = torch.zeros([rows, longest], dtype=x.dtype, device=x.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        for tile_k in hl.jagged_tile(lengths):
            out[tile_b, tile_k] = x[starts[:, None] + tile_k.index[None, :]]
    return out


@hl.kernel(config=hl.Config(block_sizes=[32, 32, 32]))
def jagged_dense(x: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), weights.size(2)], dtype=x.dtype, device=x.device)
    for row in hl.grid(offsets.size(0) - 1):
        begin, end = offsets[row], offsets[row + 1]
        for tile_r in hl.tile(begin, end):
            for tile_n in hl.tile(weights.size(2)):
                acc = hl.zeros([tile_r, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(x.size(1)):
                    acc = torch.addmm(acc, x[tile_r, tile_k], weights[row, tile_k, tile_n])
                out[tile_r, tile_n] = acc
    return out


def by_rows(function):
    """A reference that applies `function` to each row's part."""
    return lambda x, offsets: [function(x[a:b]) for a, b in pairwise(offsets)]


def main() -> None:
    torch.manual_seed(0)
    lengths = torch.randint(0, 100, (57,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    x = torch.randn(int(offsets[-1]), 48)
    longest = int(lengths.max())
    sums = by_rows(lambda r: r.sum(0))
    compare("jagged sum", jagged_sum, lambda *a: torch.stack(sums(*a)), x, offsets, tolerance=1e-4)
    compare(
        "jagged mean",
        jagged_mean,
        lambda *a: torch.stack(by_rows(lambda r: r.sum(0) / max(len(r), 1))(*a)),
        x,
        offsets,
    )
    compare("jagged softmax", jagged_softmax, lambda *a: torch.cat(by_rows(lambda r: r.softmax(0))(*a)), x, offsets)

    def dense_reference(x, offsets):
        return torch.stack(by_rows(lambda r: torch.nn.functional.pad(r, (0, longest - len(r))))(x, offsets))

    weights = torch.randn(len(lengths), 48, 40)

    def products(x, offsets, weights):
        return torch.cat([x[a:b] @ weight for (a, b), weight in zip(pairwise(offsets), weights, strict=True)])

    compare("jagged by dense", jagged_dense, products, x, offsets, weights, tolerance=1e-4)
    compare("jagged to dense", lambda x, o: to_dense(x, o, longest), dense_reference, x[:, 0].contiguous(), offsets)


if __name__ == "__main__":
    main()
