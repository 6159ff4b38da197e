"""Random numbers: one stream for one seed, whatever the blocks; PyTorch's own functions draw a seed for each launch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilewright
import tilewright.language as tl
from tilewright import hl
from tilewright.hl import exc


@hl.kernel
def with_seed(x, seed):
    m, n = x.size()
    tiles, rows = torch.empty_like(x), torch.empty_like(x)
    whole = torch.empty([m, n], dtype=torch.int32, device=x.device)
    four = torch.empty([4, n], device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        tiles[tile_m, tile_n] = hl.rand([tile_m, tile_n], seed)
        whole[tile_m, tile_n] = hl.randint([tile_m, tile_n], -3, 9, seed)
    for tile_m in hl.tile(m):
        rows[tile_m, :] = hl.rand([tile_m, n], seed)
    for tile_n in hl.tile(n):
        for at, part in enumerate(hl.rand4x(seed, tile_n.index)):
            four[at, tile_n] = part
    return tiles, rows, whole, four


@hl.kernel
def without_seed(x):
    m, n = x.size()
    uniform, normal, kept = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    coins, again, one_by_one = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    for tile_m, tile_n in hl.tile([m, n]):
        part = x[tile_m, tile_n]
        uniform[tile_m, tile_n] = torch.rand_like(part)
        normal[tile_m, tile_n] = torch.randn([tile_m, tile_n]) + 0 * torch.randn_like(part)
        kept[tile_m, tile_n] = F.dropout(part, 0.25)
        coins[tile_m, tile_n] = torch.bernoulli(part * 0.75)
        again[tile_m, tile_n] = torch.rand([tile_m, tile_n]) + 0 * torch.empty_like(part) + 0 * part.new_empty([])
    for row in hl.grid(m):
        for tile_n in hl.tile(n):
            one_by_one[row, tile_n] = torch.rand_like(x[row, tile_n]) + 0 * torch.empty([tile_n])
    return uniform, normal, kept, coins, again, one_by_one


def with_blocks(kernel, sizes, *args):
    return kernel.bind(args).compile_config(hl.Config(block_sizes=sizes))(*args)


@tilewright.jit
def words(out, seed, n: tl.constexpr):
    lane = tl.arange(0, n)
    tl.store(out + lane, tl.rand(seed, lane))


def test_the_stream_of_a_seed_does_not_depend_on_blocks():
    x = torch.ones(40, 33)
    first = with_blocks(with_seed, [16, 16, 4, 32], x, 5)
    other = with_blocks(with_seed, [1, 64, 64, 1], x, 5)
    for ours, theirs in zip(first, other, strict=True):
        assert torch.equal(ours, theirs)
    tiles, rows, whole, four = first
    assert torch.equal(tiles, rows)
    plain = torch.empty(x.numel())
    words[(1,)](plain, 5, x.numel())
    assert torch.equal(plain.view_as(x), tiles)
    assert whole.min() == -3 and whole.max() == 8
    assert torch.equal(four[0], tiles.flatten()[:33]) and not torch.equal(four[1], four[0])
    assert not torch.equal(with_blocks(with_seed, [16, 16, 4, 32], x, 6)[0], tiles)


def test_functions_of_pytorch_follow_its_generator():
    x = torch.ones(100, 77)
    made = []
    for sizes in ([16, 16, 32], [128, 1, 8]):
        torch.manual_seed(3)
        made.append(with_blocks(without_seed, sizes, x))
    for ours, theirs in zip(*made, strict=True):
        assert torch.equal(ours, theirs)
    uniform, normal, kept, coins, again, one_by_one = made[0]
    assert abs(uniform.mean() - 0.5) < 0.02 and 0 <= uniform.min() and uniform.max() < 1
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.03
    assert abs((kept == 0).double().mean() - 0.25) < 0.02 and kept.max() == 1 / torch.tensor(0.75)
    assert abs(coins.mean() - 0.75) < 0.02 and set(coins.unique().tolist()) == {0, 1}
    assert not torch.equal(uniform, again) and one_by_one.unique().numel() > 0.99 * x.numel()
    assert not torch.equal(with_blocks(without_seed, [16, 16, 32], x)[0], uniform)


def test_offsets_count_the_elements():
    @hl.kernel(config=hl.Config(block_sizes=[16]))
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = hl.rand([tile], 7, offsets=tile.index + 3)
        return out

    plain = torch.empty(33)
    words[(1,)](plain, 7, 33)
    assert torch.equal(kernel(torch.ones(30)), plain[3:])


def test_a_while_cannot_draw_without_a_seed():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            total, count = x[tile], hl.zeros([], dtype=torch.int32)
            while count < 3:
                total, count = total + torch.rand_like(total), count + 1
            out[tile] = total
        return out

    with pytest.raises(exc.UnsupportedOperation, match="every pass would draw the same"):
        kernel(torch.ones(30))
