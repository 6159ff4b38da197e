"""Element by element: addition, a bias row with GELU, and a gated unit.

Statements in a loop over tiles are ordinary PyTorch; a chain of them is one pass over memory. The last tile of a range
may be cut: masks are the compiler's affair.
"""

import torch
import torch.nn.functional as F
from check import compare

from tilewright import hl


@hl.kernel
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@hl.kernel
def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(x.shape):
        out[tile_m, tile_n] = F.gelu(x[tile_m, tile_n] + bias[tile_n])
    return out


@hl.kernel
def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(gate)
    for tile_m, tile_n in hl.tile(gate.shape):
        out[tile_m, tile_n] = F.gelu(gate[tile_m, tile_n], approximate="tanh") * up[tile_m, tile_n]
    return out


def main() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(1_000_003), torch.randn(1_000_003)
    compare("add", add, torch.add, x, y)
    matrix, other, bias = torch.randn(1000, 700), torch.randn(1000, 700), torch.randn(700)
    compare("bias and gelu", bias_gelu, lambda x, bias: F.gelu(x + bias), matrix, bias)
    compare("geglu", geglu, lambda gate, up: F.gelu(gate, approximate="tanh") * up, matrix, other)


if __name__ == "__main__":
    main()
