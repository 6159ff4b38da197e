"""Softmax of rows, three ways: PyTorch's function, its definition, and one pass over tiles of the row.

The third carries the running maximum and sum from tile to tile, so that a row need not fit anywhere; the carried state
is found by the compiler.
"""

import torch
from check import compare

from tilewright import hl


@hl.kernel
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=-1)
    return out


@hl.kernel
def softmax_by_hand(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        exps = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[rows, :] = exps / torch.sum(exps, dim=1, keepdim=True)
    return out


@hl.kernel
def softmax_online(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        largest = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(n):
            values = x[rows, columns]
            new = torch.maximum(largest, torch.amax(values, dim=1))
            total = total * torch.exp(largest - new) + torch.exp(values - new[:, None]).sum(dim=1)
            largest = new
        for columns in hl.tile(n):
            out[rows, columns] = torch.exp(x[rows, columns] - largest[:, None]) / total[:, None]
    return out


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(1003, 1000)
    for kernel in (softmax, softmax_by_hand, softmax_online):
        compare(kernel.name, kernel, lambda x: torch.softmax(x, dim=-1), x)


if __name__ == "__main__":
    main()
