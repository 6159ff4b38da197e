"""Subscripts that are data: rows of a table, the loss of a label, and rotary embedding.

A tensor of indices as subscript gathers; several of one dimension make an outer product, as tiles do.
"""

import torch
import torch.nn.functional as F
from check import compare

from tilewright import hl


@hl.kernel
def embedding(table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    out = torch.empty([tokens.size(0), table.size(1)], dtype=table.dtype, device=table.device)
    for rows, columns in hl.tile([tokens.size(0), table.size(1)]):
        out[rows, columns] = table[tokens[rows], columns]
    return out


@hl.kernel
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    n, classes = logits.size()
    flat = logits.view(-1)
    losses = torch.empty([n], dtype=logits.dtype, device=logits.device)
    for rows in hl.tile(n):
        values = logits[rows, :]
        largest = torch.amax(values, dim=-1, keepdim=True)
        total = torch.log(torch.exp(values - largest).sum(dim=-1)) + largest.squeeze(-1)
        losses[rows] = total - flat[rows.index * classes + labels[rows]]
    return losses.mean()


@hl.kernel
def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.size(-1) // 2
    out = torch.empty_like(x)
    for tile_b, tile_t in hl.tile([x.size(0), x.size(1)]):
        left, right = x[tile_b, tile_t, :half], x[tile_b, tile_t, half:]
        c, s = cos[tile_t, :], sin[tile_t, :]
        out[tile_b, tile_t, :half] = left * c - right * s
        out[tile_b, tile_t, half:] = right * c + left * s
    return out


def rope_reference(x, cos, sin):
    """The same on whole tensors."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def main() -> None:
    torch.manual_seed(0)
    table, tokens = torch.randn(1000, 300), torch.randint(0, 1000, (777,))
    compare("embedding", embedding, lambda table, tokens: F.embedding(tokens, table), table, tokens)
    logits, labels = torch.randn(300, 1000), torch.randint(0, 1000, (300,))
    compare("cross entropy", cross_entropy, F.cross_entropy, logits, labels)
    angles = torch.randn(100, 32)
    compare("rope", rope, rope_reference, torch.randn(6, 100, 64), angles.cos(), angles.sin())


if __name__ == "__main__":
    main()
