"""A product with weights of 4 bits: two weights in a byte, unpacked in the tile.

The low four bits of byte k are weight 2·k, the high ones weight 2·k + 1, both signed; `hl.join` puts them side by side.
"""

import torch
from check import compare

from tilewright import hl


@hl.kernel(config=hl.Config(block_sizes=[64, 64, 32]))
def matmul_int4(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = packed.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_b in hl.tile(k // 2):
            both = packed[tile_b, tile_n]
            low = (both << 4) >> 4
            high = both >> 4
            pairs = hl.join(low, high).permute(0, 2, 1)
            weights = pairs.reshape([tile_b.block_size * 2, tile_n.block_size]).to(x.dtype)
            columns = tile_b.begin * 2 + hl.arange(tile_b.block_size * 2)
            part = hl.load(x, [tile_m, columns], extra_mask=(columns < k)[None, :])
            acc = hl.dot(part, weights, acc)
        out[tile_m, tile_n] = acc
    return out


def pack(weights: torch.Tensor) -> torch.Tensor:
    """Weights from -8 to 7, [k, n], as bytes [k / 2, n]."""
    low, high = weights[0::2], weights[1::2]
    return ((low & 15) | (high << 4)).to(torch.int8)


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randint(-8, 8, (320, 200), dtype=torch.int8)
    x = torch.randn(100, 320)

    def reference(x, packed):
        return x @ weights.float()

    compare("int4 product", matmul_int4, reference, x, pack(weights), tolerance=1e-3)


if __name__ == "__main__":
    main()
