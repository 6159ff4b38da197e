"""Dropout that keeps no mask: the backward pass draws the same numbers again from the same seed.

The numbers depend on the seed and the place of an element alone, so both passes may have other block sizes.
"""

import torch
from check import best

from tilewright import hl


@hl.kernel(config=hl.Config(block_sizes=[1024]))
def dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        keep = hl.rand([tile], seed) >= p
        out[tile] = torch.where(keep, x[tile] / (1 - p), 0.0)
    return out


@hl.kernel(config=hl.Config(block_sizes=[4096]))
def dropout_backward(grad: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    out = torch.empty_like(grad)
    for tile in hl.tile(grad.numel()):
        keep = hl.rand([tile], seed) >= p
        out[tile] = torch.where(keep, grad[tile] / (1 - p), 0.0)
    return out


def main() -> None:
    x, p, seed = torch.randn(100_000), 0.25, 7
    out, back = dropout(x, p, seed), dropout_backward(torch.ones_like(x), p, seed)
    error = (out - x * back).abs().max().item()
    dropped = (out == 0).double().mean().item()
    assert error <= 1e-6 and abs(dropped - p) < 0.01
    times = best(dropout, x, p, seed), best(torch.nn.functional.dropout, x, p)
    print(f"{'dropout':<24} max error {error:.1e}  hl {times[0]:8.3f} ms  torch {times[1]:8.3f} ms")


if __name__ == "__main__":
    main()
