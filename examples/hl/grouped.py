"""Products of groups of rows, each with a matrix of its own: given by offsets, or chosen row by row.

The bounds of the inner loops are data, read from a tensor. A mixture of experts gathers its rows by a sorted order and
scatters the results back.
"""

import torch
from check import compare

from tilewright import hl


@hl.kernel(config=hl.Config(block_sizes=[32, 32, 32]))
def grouped_matmul(x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    groups, width, columns = weights.size()
    out = torch.empty([x.size(0), columns], dtype=x.dtype, device=x.device)
    for group in hl.grid(groups):
        begin, end = offsets[group], offsets[group + 1]
        if begin < end:
            for tile_m in hl.tile(begin, end):
                for tile_n in hl.tile(columns):
                    acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                    for tile_k in hl.tile(width):
                        acc = torch.addmm(acc, x[tile_m, tile_k], weights[group, tile_k, tile_n])
                    out[tile_m, tile_n] = acc
    return out


@hl.kernel(config=hl.Config(block_sizes=[32, 32, 32]))
def mixture(x: torch.Tensor, weights: torch.Tensor, order: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    experts, width, columns = weights.size()
    out = torch.empty([x.size(0), columns], dtype=x.dtype, device=x.device)
    for expert in hl.grid(experts):
        begin, end = offsets[expert], offsets[expert + 1]
        for tile_m in hl.tile(begin, end):
            rows = order[tile_m]
            for tile_n in hl.tile(columns):
                acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(width):
                    acc = torch.addmm(acc, x[rows, tile_k], weights[expert, tile_k, tile_n])
                out[rows, tile_n] = acc
    return out


def main() -> None:
    torch.manual_seed(0)
    x, weights = torch.randn(200, 70), torch.randn(5, 70, 90)
    offsets = torch.tensor([0, 40, 40, 90, 190, 200])

    def reference(x, weights, offsets):
        bounds = zip(offsets[:-1], offsets[1:], weights, strict=True)
        return torch.cat([x[begin:end] @ weight for begin, end, weight in bounds])

    compare("grouped products", grouped_matmul, reference, x, weights, offsets, tolerance=2e-4)
    choice = torch.randint(0, 5, (200,))
    order = choice.argsort()
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), choice.bincount(minlength=5).cumsum(0)])

    def by_expert(x, weights, order, ends):
        return torch.einsum("rk,rkn->rn", x, weights[choice])

    compare("mixture of experts", mixture, by_expert, x, weights, order, ends, tolerance=2e-4)


if __name__ == "__main__":
    main()
