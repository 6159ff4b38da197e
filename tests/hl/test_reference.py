"""Kernels as plain Python: whole ranges, and tiles of the configured sizes of which the last is cut."""

from __future__ import annotations

import pytest
import torch

from tests.hl.test_configs import KERNELS
from tilewright import hl

MODES = [hl.RefMode.EAGER, hl.RefMode.TILED]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_as_plain_python(name, mode):
    kernel, reference, args = KERNELS[name]
    found = kernel.bind(args).run_ref(*args, mode=mode)
    torch.testing.assert_close(found, reference(*args), atol=1e-5, rtol=1e-5)


@hl.kernel(config=hl.Config(block_sizes=[4]), ref_mode=hl.RefMode.TILED)
def depends_on_its_tile(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        print("tile", rows.id, "of", rows.count, "has", len(rows.index), "rows of", rows.block_size)
        out[rows] = x[rows] - x[rows].mean()
    return out


def test_tiles_have_the_configured_size_and_the_last_is_cut(capsys):
    x = torch.arange(6.0)
    expected = torch.cat([x[:4] - x[:4].mean(), x[4:] - x[4:].mean()])
    torch.testing.assert_close(depends_on_its_tile(x), expected)
    assert capsys.readouterr().out == "tile 0 of 2 has 4 rows of 4\ntile 1 of 2 has 2 rows of 4\n"


@hl.kernel(config=hl.Config(block_sizes=[4, 4]))
def every_access(x, places, out, sums):
    for a, b in hl.tile(x.shape):
        moved = x[a, b + 1] + hl.load(x, [a, b - 2], extra_mask=(b.index > 3)[None, :])
        out[a, b] = moved + x[places[a], 0][:, None] + x[-1, b]
        hl.atomic_add(sums, [b], moved.sum(0))


@pytest.mark.parametrize("mode", MODES)
def test_accesses_agree_with_the_compiled_kernel(mode):
    x, places = torch.randn(9, 10), torch.randint(0, 9, (9,))
    made = []
    for run in (every_access, lambda *args: every_access.bind(args).run_ref(*args, mode=mode)):
        out, sums = torch.zeros(9, 10), torch.zeros(10)
        run(x, places, out, sums)
        made.append((out, sums))
    torch.testing.assert_close(*made)


@hl.kernel(config=hl.Config(block_sizes=[4, 8]))
def jagged(values, ends):
    out = torch.empty(ends.size(0) - 1)
    most = torch.empty(ends.size(0) - 1)
    for rows in hl.tile(ends.size(0) - 1):
        first = ends[rows]
        total, largest = hl.zeros([rows]), hl.full([rows], -9.0)
        for columns in hl.jagged_tile(ends[rows.index + 1] - first):
            value = values[first[:, None] + columns.index[None, :]]
            total += (value + 1).sum(-1)
            largest = torch.maximum(largest, (value - 1).amax(-1))
        out[rows], most[rows] = total, largest
    return out, most


def _larger(value, place, other, other_place):
    wins = other > value
    return torch.where(wins, other, value), torch.where(wins, other_place, place)


@hl.kernel(config=hl.Config(block_sizes=[4, 8]))
def functions(x, seed: int):
    out, draws = torch.empty_like(x), torch.empty_like(x)
    most, where = torch.empty(x.size(0)), torch.empty(x.size(0), dtype=torch.int64)
    for rows, columns in hl.tile(x.shape):
        value = x[rows, columns]
        scanned = hl.associative_scan(torch.maximum, value, 0) + hl.cumsum(value, 0, reverse=True)
        left, right = hl.split(hl.join(scanned, value * 2))
        out[rows, columns] = left + hl.subscript(right, [slice(None), slice(None)])
        a, b, c, d = hl.rand4x(seed + 1, columns.index)
        uniform = hl.rand([rows, columns], seed)
        draws[rows, columns] = uniform + hl.randint([rows, columns], 3, 30, seed) + (a + b + c + d)[None, :]
    for rows in hl.tile(x.size(0), block_size=4):
        value = x[rows, :]
        place = hl.arange(x.size(1))[None, :].expand(value.shape)
        most[rows], where[rows] = hl.reduce(_larger, (value, place), 1, other=(-9.0, 0))
    return out, draws, most, where


_ENDS = torch.tensor([0, 3, 3, 12, 20, 21])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kernel", "args"), [(jagged, (torch.randn(21), _ENDS)), (functions, (torch.randn(10, 21), 2**40 + 5))]
)
def test_functions_of_the_language_agree_with_their_references(kernel, args, mode):
    bound = kernel.bind(args)
    if mode is hl.RefMode.EAGER and kernel is functions:
        expected = bound.run_ref(*args, mode=mode)[1:]  # a scan is one of its tile
        torch.testing.assert_close(kernel(*args)[1:], expected)
    else:
        torch.testing.assert_close(kernel(*args), bound.run_ref(*args, mode=mode))


def test_what_has_no_reference_says_so():
    @hl.kernel
    def kernel(x):
        for rows in hl.tile(x.size(0)):
            x[rows] = hl.inline_triton("{v} + 1", {"v": x[rows]}, x[rows])

    with pytest.raises(hl.exc.BackendUnsupported, match="inline_triton has no reference"):
        kernel.bind((torch.randn(4),)).run_ref(torch.randn(4))


def test_block_sizes_are_extents_of_cut_tiles():
    @hl.kernel(config=hl.Config(block_sizes=[4, 8]))
    def pairs(packed):
        """Two numbers of 4 bits in each of 8."""
        out = torch.empty([packed.size(0) * 2, packed.size(1)], dtype=torch.int8)
        for rows, columns in hl.tile([packed.size(0), packed.size(1)]):
            value = packed[rows, columns]
            both = torch.stack([(value << 4) >> 4, value >> 4], 1).reshape(rows.block_size * 2, columns.block_size)
            out[rows.begin * 2 + hl.arange(rows.block_size * 2), columns] = both
        return out

    packed = torch.randint(-128, 127, (8, 19), dtype=torch.int8)
    expected = torch.stack([(packed << 4) >> 4, packed >> 4], 1).reshape(16, 19)
    bound = pairs.bind((packed,))
    assert torch.equal(pairs(packed), expected)
    for mode in MODES:
        assert torch.equal(bound.run_ref(packed, mode=mode), expected)


def test_loads_by_name_are_subscripts():
    """An index of a grid beside a tile of indices: one element of one dimension, all of the other."""

    @hl.kernel
    def kernel(x, order, counts):
        out, seen = torch.zeros_like(x), torch.zeros_like(counts)
        for group in hl.grid(order.size(0)):
            count = counts[group]
            for i in hl.tile(order.size(1)):
                inside = i.index < count
                rows = hl.load(order, [group, i.index], extra_mask=inside)
                hl.store(out, [rows, 0], x[rows, group], extra_mask=inside)
                hl.atomic_add(seen, [group], inside.to(torch.int64).sum())
        return out, seen

    x, order, counts = torch.randn(6, 2), torch.tensor([[4, 1, 0], [2, 3, 5]]), torch.tensor([3, 2])
    expected = torch.zeros(6, 2)
    for group in range(2):
        rows = order[group, : counts[group]]
        expected[rows, 0] = x[rows, group]
    bound = kernel.bind((x, order, counts))
    for found in (kernel(x, order, counts), *(bound.run_ref(x, order, counts, mode=mode) for mode in MODES)):
        torch.testing.assert_close(found, (expected, counts))


def test_a_load_from_a_tensor_without_elements_reads_zeros():
    @hl.kernel
    def beyond(x):
        out = torch.ones_like(x)
        low = x[1:]
        for rows, columns in hl.tile(x.shape):
            out[rows, columns] = low[rows - 1, columns]
        return out

    bound = beyond.bind((torch.randn(1, 5),))
    for mode in (hl.RefMode.TILED, None):
        x = torch.randn(1, 5)
        out = bound(x) if mode is None else bound.run_ref(x, mode=mode)
        assert torch.equal(out, torch.zeros(1, 5))


@hl.kernel(config=hl.Config(block_sizes=[32]))
def lanes_of_tiles(x):
    out = torch.zeros([3, x.size(0)])
    for t in hl.tile(x.size(0)):
        out[0, t] = x[t] * 0 + x[t].size(0)
        out[1, t] = x[t] * 0 + x[t].numel()
        out[2, t] = x[t] * 0 + (t.end - t.begin)
    return out


def test_sizes_of_a_tile_that_is_cut():
    """Compiled, a size is that of the block; what a tile has is a difference of its ends, everywhere."""
    bound = lanes_of_tiles.bind((torch.ones(80),))
    compiled = bound(torch.ones(80))
    assert (compiled[:2] == 32).all()
    assert torch.equal(compiled[2], torch.tensor([32.0, 16.0]).repeat_interleave(torch.tensor([64, 16])))
    tiled = bound.run_ref(torch.ones(80), mode=hl.RefMode.TILED)
    assert torch.equal(tiled, compiled[2].expand(3, 80))
