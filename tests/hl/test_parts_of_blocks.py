"""Parts of block sizes: views, slices, splits and positions by `tile.block_size // 2`, as int4 kernels have them."""

from __future__ import annotations

from random import Random

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc


def pair_sums(x):
    out = torch.empty([x.size(0) // 2])
    for t in hl.tile(x.size(0)):
        v = x[t].view(t.block_size // 2, 2)
        out[t.begin // 2 + hl.arange(t.block_size // 2)] = v.sum(-1)
    return out


def pooled_rows(x):
    out = torch.empty([x.size(0) // 2, x.size(1)])
    for t in hl.tile(x.size(0)):
        v = x[t, :].reshape(t.block_size // 2, 2, -1)
        out[t.begin // 2 + hl.arange(t.block_size // 2), :] = v.amax(1)
    return out


def evens_minus_odds(x):
    out = torch.empty([x.size(0) // 2])
    for t in hl.tile(x.size(0)):
        even = t.begin + hl.arange(t.block_size // 2) * 2
        out[t.begin // 2 + hl.arange(t.block_size // 2)] = x[even] - x[even + 1]
    return out


def swapped(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = hl.split(x[t].view(t.block_size // 2, 2))
        out[t] = hl.join(b, a).view(t.block_size)
    return out


def int4_by_slices(a, b):
    m, k = a.shape
    n = b.size(1)
    out = torch.zeros(m, n)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k // 2):
            both = b[tile_k, tile_n]
            low, high = (both << 4) >> 4, both >> 4
            part = a[tile_m, tile_k.begin * 2 : tile_k.begin * 2 + tile_k.block_size * 2]
            weights = torch.stack([low.to(a.dtype), high.to(a.dtype)], dim=1)
            acc = torch.addmm(acc, part, weights.reshape(tile_k.block_size * 2, tile_n.block_size))
        out[tile_m, tile_n] = acc
    return out


def int4_by_halves(a, b):
    m, k = a.shape
    n = b.size(1)
    out = torch.zeros(m, n)
    block = hl.register_block_size(k)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k, block_size=block):
            both = b[tile_k.begin // 2 : tile_k.begin // 2 + block // 2, tile_n]
            weights = torch.stack([(both << 4) >> 4, both >> 4], dim=1).view(block, tile_n.block_size).to(a.dtype)
            acc += a[tile_m, tile_k] @ weights
        out[tile_m, tile_n] = acc
    return out


def packed(x):
    out = torch.empty([x.size(0) // 2], dtype=x.dtype)
    block = hl.register_block_size(x.size(0))
    for t in hl.tile(x.size(0), block_size=block):
        lo, hi = hl.split(x[t].view(block // 2, 2))
        out[t.begin // 2 + hl.arange(block // 2)] = lo | (hi << 4)
    return out


def scaled_by_groups(x):
    out = torch.empty_like(x)
    for r, c in hl.tile(x.size()):
        g = x[r, c].view(r.block_size, c.block_size // 8, 8)
        out[r, c] = (g / g.abs().amax(-1, keepdim=True)).view(r.block_size, c.block_size)
    return out


def pair_sums_inferred(x):
    out = torch.empty([x.size(0) // 2])
    for t in hl.tile(x.size(0)):
        out[t.begin // 2 + hl.arange(t.block_size // 2)] = x[t].view(-1, 2).sum(-1)
    return out


def pair_sums_unflattened(x):
    out = torch.empty([x.size(0) // 2])
    for t in hl.tile(x.size(0)):
        v = x[t].unflatten(0, (t.block_size // 2, 2)).sum(1)
        b = t.begin // 2
        out[b : b + t.block_size // 2] = v
    return out


def two_halves(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        half = t.block_size // 2
        out[t.begin : t.begin + half] = x[t.begin : t.begin + half]
        out[t.begin + half : t.begin + t.block_size] = x[t.begin + half : t.begin + t.block_size]
    return out


def quarters(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t].view(t.block_size // 4, 4).softmax(-1).view(t.block_size)
    return out


def rotated(x):
    out = torch.empty_like(x)
    for r, c in hl.tile(x.size()):
        pairs = x[r, c].reshape(r.block_size, c.block_size // 2, 2)
        a, b = pairs.unbind(-1)
        out[r, c] = torch.stack([a.cos(), b.sin()], -1).reshape(r.block_size, c.block_size)
    return out


def folded(x):
    out = torch.empty([x.size(0) // 2])
    for t in hl.tile(x.size(0)):
        a, b = x[t].split(t.block_size // 2)
        out[t.begin // 2 + hl.arange(t.block_size // 2)] = a + b
    return out


def every_second(x):
    out = torch.empty([x.size(0) // 2])
    for t in hl.tile(x.size(0)):
        v = x[t]
        out[t.begin // 2 + hl.arange(t.block_size // 2)] = v[::2] + v[1::2]
    return out


def neighbours_of_rows(x):
    out = torch.empty([x.size(0), x.size(1) // 2])
    for r, t in hl.tile(x.size()):
        v = x[r, t]
        out[r, t.begin // 2 + hl.arange(t.block_size // 2)] = torch.maximum(v[:, ::2], v[:, 1::2])
    return out


def folded_slices(x):
    out = torch.empty([x.size(0) // 2])
    for t in hl.tile(x.size(0)):
        half = t.block_size // 2
        v = x[t]
        out[t.begin // 2 + hl.arange(half)] = v[:half] + v[half:]
    return out


def summed_pairs(x):
    out = torch.empty([x.size(0)])
    for r in hl.tile(x.size(0)):
        acc = hl.zeros([r])
        for t in hl.tile(x.size(1)):
            acc += (x[r, t] + 1).view(r, t.block_size // 2, 2).sum((1, 2)) - 0
        out[r] = acc - x.size(1)
    return out


def scanned_firsts(x):
    out = torch.empty([6, 30])
    for r, t in hl.tile(x.size()):
        v = x[r, t].view(r, -1, 2)[..., 0]
        out[r, hl.arange(t.block_size // 2)] = v.cumsum(1)
    return out


def triples(x):
    out = torch.empty([x.size(0) // 3])
    for t in hl.tile(x.size(0)):
        out[t.begin // 3 + hl.arange(t.block_size // 3)] = x[t].view(t.block_size // 3, 3).sum(1)
    return out


def sixes(x):
    out = torch.empty([x.size(0) // 6])
    for t in hl.tile(x.size(0)):
        v = x[t].view(t.block_size // 3, 3).sum(1).view(-1, 2).sum(1)
        out[t.begin // 6 + hl.arange(t.block_size // 6)] = v
    return out


def nested(x):
    out = torch.empty_like(x)
    for o in hl.tile(x.size(0)):
        for t in hl.tile(o.begin, o.end):
            out[t] = 2 * x[t].view(t.block_size // 2, 2).view(t.block_size)
    return out


def lanes_accumulated(x):
    out = torch.empty([x.size(0), 2])
    bs = hl.register_block_size(x.size(1))
    for r in hl.tile(x.size(0)):
        acc = hl.zeros([r, bs])
        for t in hl.tile(x.size(1), block_size=bs):
            acc += x[r, t]
        out[r, :] = acc.view(r, bs // 2, 2).sum(1)
    return out


def one_size_for_two_loops(x):
    mid = torch.empty([x.size(0) // 2])
    out = torch.empty([x.size(0) // 2])
    bs = hl.register_block_size(x.size(0))
    for t in hl.tile(x.size(0), block_size=bs):
        mid[t.begin // 2 + hl.arange(bs // 2)] = x[t].view(bs // 2, 2).sum(1)
    for t in hl.tile(mid.size(0), block_size=bs):
        out[t] = mid[t]
    return out


def rows_and_pairs_merged(x):
    out = torch.full([2], -10.0)
    for one in hl.grid(1):
        acc = hl.full([2], -10.0)
        for r, t in hl.tile(x.size()):
            acc = torch.maximum(acc, x[r, t].reshape(-1, 2).amax(0))
        out[:] = acc
    return out


def halves_joined(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        v = x[t].view(-1, 2)
        out[t] = torch.cat([v[:, 0], v[:, 1]])
    return out


def pack(weights):
    return ((weights[0::2] & 15) | (weights[1::2] << 4)).to(torch.int8)


WEIGHTS = torch.randint(-8, 8, (64, 40), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
PRODUCT = torch.randn(20, 64), pack(WEIGHTS)
HALF_BYTES = torch.randint(0, 16, (128,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SIZES = (None, [8], [64])  # the last one is cut
GRIDS = (None, [4, 16], [2, 64])
KERNELS = [  # kernel, shape or arguments, what PyTorch computes, block sizes, whether it has a gradient
    (pair_sums, (100,), lambda x: x.view(50, 2).sum(-1), SIZES, True),
    (pooled_rows, (96, 10), lambda x: x.view(48, 2, 10).amax(1), SIZES, True),
    (evens_minus_odds, (100,), lambda x: x[::2] - x[1::2], SIZES, True),
    (swapped, (100,), lambda x: x.view(50, 2).flip(1).reshape(-1), SIZES, True),
    (
        int4_by_slices,
        (torch.randn(20, 64), pack(WEIGHTS)),
        lambda x, _: x @ WEIGHTS.float(),
        (None, [32, 8, 16]),
        False,
    ),
    (
        int4_by_halves,
        (torch.randn(20, 64), pack(WEIGHTS)),
        lambda x, _: x @ WEIGHTS.float(),
        (None, [32, 8, 32]),
        False,
    ),
    (packed, (HALF_BYTES,), lambda x: x[0::2] | (x[1::2] << 4), SIZES, False),
    (scaled_by_groups, (10, 64), lambda x: groups(x), GRIDS, True),
    (pair_sums_inferred, (100,), lambda x: x.view(50, 2).sum(-1), SIZES, True),
    (pair_sums_unflattened, (100,), lambda x: x.view(50, 2).sum(-1), SIZES, False),
    (two_halves, (100,), lambda x: x, SIZES, False),
    (quarters, (96,), lambda x: x.view(-1, 4).softmax(-1).view(-1), SIZES, True),
    (rotated, (12, 64), lambda x: torch.stack([x[:, 0::2].cos(), x[:, 1::2].sin()], -1).flatten(1), GRIDS, True),
    (every_second, (60,), lambda x: x.view(-1, 2).sum(1), SIZES, True),
    (neighbours_of_rows, (6, 60), lambda x: x.view(6, -1, 2).amax(2), GRIDS, True),
    (summed_pairs, (6, 60), lambda x: x.sum(1), GRIDS, True),
    (scanned_firsts, (6, 60), lambda x: x[:, ::2].cumsum(1), ([4, 64], [4, 128]), True),
    (triples, (96,), lambda x: x.view(-1, 3).sum(1), (None, [12], [96]), True),
    (sixes, (96,), lambda x: x.view(-1, 6).sum(1), (None, [12], [60]), True),
    (nested, (96,), lambda x: x * 2, (None, [32, 8], [40, 8]), False),
    (lanes_accumulated, (6, 60), lambda x: x.view(6, -1, 2).sum(1), (None, [8, 2], [64, 4]), False),
    (one_size_for_two_loops, (100,), lambda x: x.view(50, 2).sum(1), (None, [8], [64]), False),
    (rows_and_pairs_merged, (6, 60), lambda x: x.view(6, -1, 2).amax((0, 1)), (None, [4, 8], [4, 64]), False),
]


def groups(x):
    parts = x.view(x.size(0), -1, 8)
    return (parts / parts.abs().amax(-1, keepdim=True)).view(x.shape)


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("function", "given", "eager", "sizes", "gradient"), KERNELS, ids=[one[0].__name__ for one in KERNELS]
)
def test_parts_of_blocks(function, given, eager, sizes, gradient, static):
    torch.manual_seed(0)
    args = given if isinstance(given[0], torch.Tensor) else (torch.randn(given),)
    expected = eager(*args)
    for blocks in sizes:
        config = None if blocks is None else hl.Config(block_sizes=blocks)
        kernel = hl.kernel(function, config=config, static_shapes=static)
        torch.testing.assert_close(kernel(*args), expected, atol=1e-4, rtol=1e-4)
        for mode in (hl.RefMode.EAGER, hl.RefMode.TILED):
            torch.testing.assert_close(kernel.bind(args).run_ref(*args, mode=mode), expected, atol=1e-4, rtol=1e-4)
    if gradient:
        ours, theirs = (args[0].clone().requires_grad_() for _ in range(2))
        grad = torch.randn_like(expected)
        kernel(ours).backward(grad)
        eager(theirs).backward(grad)
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("function", [folded, folded_slices])
def test_halves_of_a_block_that_divides_the_range(function):
    x = torch.randn(64)
    expected = x.view(-1, 2, 4).sum(1).view(-1)
    torch.testing.assert_close(hl.kernel(function, config=hl.Config(block_sizes=[8]))(x), expected)


@pytest.mark.parametrize("function", [folded, halves_joined])
def test_halves_of_a_cut_block_are_refused_and_not_searched(function):
    """Valid lanes of the second half would not be in front."""
    kernel = hl.kernel(function, config=hl.Config(block_sizes=[8]))
    with pytest.raises(exc.UnsupportedOperation, match=r"t is taken apart .*8, does not divide the range"):
        kernel(torch.randn(60))
    (fragment,) = (
        one.fragment for one in kernel.bind((torch.randn(60),)).config_spec.choices if one.key == "block_sizes"
    )
    assert (fragment.low, fragment.high) == (2, 4)


def test_a_view_that_moves_lanes_of_a_cut_block_is_refused():
    def turned(x):
        out = torch.zeros([2])
        for t in hl.tile(x.size(1)):
            hl.atomic_add(out, [hl.arange(2)], x[:, t].reshape(t.block_size, 2).sum(0))
        return out

    with pytest.raises(exc.UnsupportedOperation, match="t is taken apart"):
        hl.kernel(turned, config=hl.Config(block_sizes=[64]))(torch.randn(2, 60))


def test_block_sizes_are_multiples_of_what_is_taken_together():
    kernel = hl.kernel(sixes)
    spec = kernel.bind((torch.randn(96),)).config_spec
    with pytest.raises(exc.InvalidConfig, match="block size of t is 8, and the kernel takes 6 of its lanes together"):
        spec.normalize({"block_sizes": [8]})
    rng = Random(0)
    found = {spec.random(rng)["block_sizes"][0] for _ in range(30)} | {spec.default_config()["block_sizes"][0]}
    near = {config["block_sizes"][0] for config in spec.neighbors(hl.Config(block_sizes=[12]))}
    assert found | near <= {6, 12, 24, 48, 96}
    assert {6, 24} <= near


def test_a_range_that_is_no_multiple():
    for static in (True, False):
        with pytest.raises(exc.ShapeMismatch, match="takes 2 lanes of t together, and its range has 61"):
            hl.kernel(pair_sums, static_shapes=static)(torch.randn(61))


def test_other_sizes_bind_anew_where_they_are_no_multiple():
    kernel = hl.kernel(pair_sums, static_shapes=False)
    for n in (60, 100):
        x = torch.randn(n)
        torch.testing.assert_close(kernel(x), x.view(-1, 2).sum(1))
    with pytest.raises(exc.ShapeMismatch):
        kernel(torch.randn(61))


def test_a_range_that_depends_on_data():
    @hl.kernel
    def kernel(x, bounds):
        out = torch.empty_like(x)
        for _ in hl.grid(1):
            for t in hl.tile(bounds[0], bounds[1]):
                out[t] = x[t].view(t.block_size // 2, 2).view(t.block_size)
        return out

    with pytest.raises(exc.UnsupportedOperation, match="whose range depends on data"):
        kernel(torch.randn(96), torch.tensor([3, 60]))


def test_a_block_size_of_the_program_that_is_no_multiple():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0), block_size=5):
            out[t] = x[t].view(t.block_size // 2, 2).view(t.block_size)
        return out

    with pytest.raises(exc.InvalidConfig, match="the block size of t is 5"):
        kernel(torch.randn(96))


def test_no_block_is_searched_whose_parts_have_no_lanes():
    def halves_of_rows(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            for begin in (t.begin, t.begin + t.block_size // 2):
                rows = begin + hl.arange(t.block_size // 2)
                out[rows, :] = x[rows, :].softmax(-1)
        return out

    x = torch.randn(100, 300)
    kernel = hl.kernel(halves_of_rows)
    spec = kernel.bind((x,)).config_spec
    rng = Random(0)
    assert all(spec.random(rng)["block_sizes"][0] >= 2 for _ in range(20))
    assert spec.unflatten([choice.fragment.default() for choice in spec.choices])["block_sizes"][0] >= 2
    torch.testing.assert_close(kernel(x), x.softmax(-1))
