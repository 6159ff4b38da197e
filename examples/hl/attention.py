"""Attention over tiles of keys, full and causal: scores never leave fast memory.

The running maximum, sum and weighted values are the state that the loop over keys carries. The causal form stops at the
last key that a tile of queries may see.
"""

import math

import torch
import torch.nn.functional as F
from check import compare

from tilewright import hl

LOG2_E = 1.4426950408889634


@hl.kernel(config=hl.Config(block_sizes=[1, 64, 64]))
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: hl.constexpr) -> torch.Tensor:
    length, width = q.size(-2), q.size(-1)
    scale = LOG2_E / math.sqrt(width)
    queries, keys, values = (t.reshape([-1, t.size(-2), width]) for t in (q, k, v))
    transposed = keys.transpose(1, 2)
    out = torch.empty_like(queries)
    for tile_b, tile_m in hl.tile([queries.size(0), length]):
        largest = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, width], dtype=torch.float32)
        query = queries[tile_b, tile_m, :]
        for tile_n in hl.tile(tile_m.end if causal else keys.size(1)):
            scores = torch.bmm(query, transposed[tile_b, :, tile_n]) * scale
            if causal:
                seen = tile_m.index[:, None] >= tile_n.index[None, :]
                scores = torch.where(seen[None, :, :], scores, float("-inf"))
            new = torch.maximum(largest, torch.amax(scores, -1))
            weights = torch.exp2(scores - new[:, :, None])
            shrink = torch.exp2(largest - new)
            total = total * shrink + weights.sum(-1)
            acc = torch.baddbmm(acc * shrink[:, :, None], weights.to(values.dtype), values[tile_b, tile_n, :])
            largest = new
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out.view(q.size())


def main() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 300, 64) for _ in range(3))
    for causal in (False, True):
        compare(
            "causal attention" if causal else "attention",
            lambda q, k, v, causal=causal: attention(q, k, v, causal),
            lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
            q,
            k,
            v,
            tolerance=1e-4,
        )


if __name__ == "__main__":
    main()
