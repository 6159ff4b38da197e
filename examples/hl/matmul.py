"""Products of matrices: with an epilogue given as a function, in batches, and with the inner dimension split.

An epilogue is any function on tiles; it is traced with the kernel. A split product sums its parts either atomically,
or in a second loop behind the first one.
"""

from collections.abc import Callable

import torch
from check import compare

from tilewright import hl


@hl.kernel
def matmul(
    x: torch.Tensor, y: torch.Tensor, epilogue: Callable[[torch.Tensor], torch.Tensor] = lambda acc: acc
) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = epilogue(acc)
    return out


@hl.kernel(config=hl.Config(block_sizes=[1, 64, 64, 64]))
def bmm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    b, m, k = x.size()
    n = y.size(2)
    out = torch.empty([b, m, n], dtype=x.dtype, device=x.device)
    for tile_b, tile_m, tile_n in hl.tile([b, m, n]):
        acc = hl.zeros([tile_b, tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.baddbmm(acc, x[tile_b, tile_m, tile_k], y[tile_b, tile_k, tile_n])
        out[tile_b, tile_m, tile_n] = acc
    return out


@hl.kernel(config=hl.Config(block_sizes=[256, 64, 64, 64]))
def matmul_split_k(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.zeros([m, n], dtype=torch.float32, device=x.device)
    part = hl.register_block_size(64, 1024)
    for tile_m, tile_n, outer in hl.tile([m, n, k], block_size=[None, None, part]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for inner in hl.tile(outer.begin, outer.end):
            acc = torch.addmm(acc, x[tile_m, inner], y[inner, tile_n])
        hl.atomic_add(out, [tile_m, tile_n], acc)
    return out


@hl.kernel(static_shapes=True, config=hl.Config(block_sizes=[64, 64, 64, 64, 64]))
def matmul_in_two_stages(x: torch.Tensor, y: torch.Tensor, parts: hl.constexpr) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    length = hl.cdiv(k, parts)
    partial = torch.empty([parts, m, n], dtype=torch.float32, device=x.device)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n, part in hl.tile([m, n, parts], block_size=[None, None, 1]):  # all in the grid: side by side
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        begin = part.begin * length
        for tile_k in hl.tile(begin, min(begin + length, k)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        partial[part.begin, tile_m, tile_n] = acc
    hl.barrier()
    for tile_m, tile_n in hl.tile([m, n]):
        out[tile_m, tile_n] = partial[:, tile_m, tile_n].sum(dim=0)
    return out


def main() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(500, 300), torch.randn(300, 700)
    compare("matmul", matmul, torch.mm, x, y, tolerance=2e-4)
    scale = torch.relu
    compare("matmul with relu", lambda x, y: matmul(x, y, scale), lambda x, y: torch.relu(x @ y), x, y, tolerance=2e-4)
    half = x.half(), y.half()
    compare("matmul, float16", matmul, torch.mm, *half, tolerance=0.1)
    compare("bmm", bmm, torch.bmm, torch.randn(3, 100, 70), torch.randn(3, 70, 90), tolerance=2e-4)
    deep = torch.randn(100, 3000), torch.randn(3000, 80)
    compare("split, by atomics", matmul_split_k, torch.mm, *deep, tolerance=2e-3)
    compare("split, in two stages", lambda x, y: matmul_in_two_stages(x, y, 8), torch.mm, *deep, tolerance=2e-3)


if __name__ == "__main__":
    main()
