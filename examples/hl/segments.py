"""Sums of segments: rows with the same number, which stand one behind the other, are added up.

A scan with a function of two values carries the running sum and the segment that it belongs to. The last row of each
segment in a tile adds the sum to the result; a segment may reach over several tiles, so that is done atomically.
"""

import torch
from check import compare

from tilewright import hl


def add_within(left_sum, left_segment, right_sum, right_segment):
    """The running sum starts again where another segment begins."""
    return torch.where(left_segment == right_segment, left_sum + right_sum, right_sum), right_segment


@hl.kernel(config=hl.Config(block_sizes=[64, 32]))
def segment_sum(x: torch.Tensor, segments: torch.Tensor, count: hl.constexpr) -> torch.Tensor:
    rows, width = x.size()
    out = torch.zeros([count, width], dtype=x.dtype, device=x.device)
    for tile_r, tile_w in hl.tile([rows, width]):
        inside = tile_r.index < rows
        mine = hl.load(segments, [tile_r], extra_mask=inside)
        behind = hl.load(segments, [tile_r.index + 1], extra_mask=tile_r.index + 1 < rows)
        values = x[tile_r, tile_w]
        wide = mine[:, None].expand(values.shape)
        sums, _ = hl.associative_scan(add_within, (values, wide), dim=0)
        last = (mine != behind) | (tile_r.index + 1 >= tile_r.end)
        hl.atomic_add(out, [mine, tile_w], torch.where(last[:, None], sums, 0.0))
    return out


def main() -> None:
    torch.manual_seed(0)
    count = 40
    segments = torch.randint(0, count, (1000,)).sort()[0]
    x = torch.randn(1000, 50)

    def reference(x, segments):
        return torch.zeros(count, x.size(1)).index_add_(0, segments, x)

    compare("segment sum", lambda x, s: segment_sum(x, s, count), reference, x, segments, tolerance=1e-4)


if __name__ == "__main__":
    main()
