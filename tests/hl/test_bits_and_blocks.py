"""Bits of sizes and places, locks, and extents that are made of block sizes."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc


@hl.kernel
def numbers(x, n: int):
    out = torch.empty([x.size(0), 11])
    for i in hl.grid(x.size(0)):
        out[i, 0] = (i - 1) % 4
        out[i, 1] = (i - 1) & 3
        out[i, 2] = (i - 1) >> 1
        out[i, 3] = (i - 1) // 2
        out[i, 4] = i ^ 5
        out[i, 5] = (i << 2) | n
        out[i, 6] = 1 << (i & 3)
        out[i, 7] = ~i
        out[i, 8] = (i * 4 + n) // 4
        out[i, 9] = (i * 4 + n) % 4
        out[i, 10] = (x.size(0) & 6) ^ (n & 1)
    return out


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("n", [3, -3, 8])
def test_bits_quotients_and_remainders_are_pythons(n, static):
    def row(i):
        bits = [(i - 1) % 4, (i - 1) & 3, (i - 1) >> 1, (i - 1) // 2, i ^ 5, (i << 2) | n, 1 << (i & 3), ~i]
        return [*bits, (i * 4 + n) // 4, (i * 4 + n) % 4, (6 & 6) ^ (n & 1)]

    kernel, x = hl.kernel(numbers.fn, static_shapes=static), torch.zeros(6)
    expected = torch.tensor([row(i) for i in range(6)]).float()
    torch.testing.assert_close(kernel(x, n), expected)
    torch.testing.assert_close(kernel.bind((x, n)).run_ref(x, n), expected)


def test_swizzled_tiles_have_no_masks():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0), block_size=4):
            out[(((t.begin >> 2) ^ 1) << 2) + hl.arange(4)] = x[t.begin + hl.arange(4)] * (t.id & 1)
        return out

    x = torch.arange(16.0)
    parts = x.view(4, 4) * torch.tensor([0.0, 1.0, 0.0, 1.0])[:, None]
    torch.testing.assert_close(kernel(x), parts[[1, 0, 3, 2]].flatten())
    torch.testing.assert_close(kernel.bind((x,)).run_ref(x, mode=hl.RefMode.TILED), parts[[1, 0, 3, 2]].flatten())


@hl.kernel(config=hl.Config(block_sizes=[1]))
def locked(x, lock, out):
    for t in hl.tile(x.size(0)):
        while hl.atomic_cas(lock, [0], 0, 1, sem="acquire") == 1:
            pass
        out[0] = out[0] + x[t].sum()
        hl.atomic_xchg(lock, [0], 0, sem="release")


def test_a_lock_is_taken_once():
    lock, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    locked(torch.ones(200), lock, out)
    assert out.item() == 200 and lock.item() == 0
    assert locked.bind((torch.ones(200), lock, out)).to_code().count("tl.atomic_cas") == 2


def test_conditions_of_tiles_of_one_element():
    @hl.kernel(config=hl.Config(block_sizes=[1]))
    def kernel(x, locks):
        out = torch.zeros_like(x)
        for t in hl.tile(x.size(0)):
            while hl.atomic_cas(locks, [t], 0, 1) == 1:
                pass
            if x[t] > 0 and not x[t] > 2:
                out[t] = x[t]
        return out

    x, locks = torch.tensor([-1.0, 1.0, 2.0, 3.0]), torch.zeros(4, dtype=torch.int32)
    torch.testing.assert_close(kernel(x, locks), torch.tensor([0.0, 1.0, 2.0, 0.0]))
    assert locks.tolist() == [1, 1, 1, 1]
    with pytest.raises(exc.ControlFlowTensorMismatch, match=r"(?s)bool\[t\].*block_sizes are 1"):
        kernel.bind((x, locks)).compile_config(hl.Config(block_sizes=[2]))(x, locks)


def test_steps_and_multiples_of_blocks():
    @hl.kernel
    def kernel(x):
        even, pairs, more = torch.empty([x.size(0) // 2]), torch.empty([x.size(0) // 2]), torch.empty_like(x)
        for t in hl.tile(x.size(0) // 2):
            even[t] = x[hl.arange(t.begin * 2, (t.begin + t.block_size) * 2, step=2)]
            both = x[t.begin * 2 + hl.arange(t.block_size * 2)].view(t.block_size, 2)
            pairs[t] = both.sum(-1)
            more[t.begin * 2 : (t.begin + t.block_size) * 2] = x[t.begin * 2 : (t.begin + t.block_size) * 2] + 1
        return even, pairs, more

    x = torch.randn(44)
    expected = x[::2].contiguous(), x.view(-1, 2).sum(-1), x + 1
    for block in (2, 8, 32):
        bound = kernel.bind((x,))
        bound.set_config(hl.Config(block_sizes=[block]))
        torch.testing.assert_close(bound(x), expected)


def test_parts_of_blocks_are_extents_of_what_is_made():
    @hl.kernel
    def kernel(x):
        out = torch.zeros_like(x)
        for t in hl.tile(x.size(0)):
            half = t.block_size // 2
            made = hl.zeros([half]) + hl.arange(half)
            out[t.begin + hl.arange(half)] = made * 2 + made.sum()
        return out

    bound = kernel.bind((torch.zeros(37),))
    for block in (2, 8, 13, 64):
        half = torch.arange(block // 2)
        expected, at = torch.zeros(128), torch.arange(128)
        first = at[:37] // block * block
        expected[:37] = torch.where(at[:37] - first < block // 2, (at[:37] - first) * 2 + half.sum(), 0)
        torch.testing.assert_close(bound.compile_config(hl.Config(block_sizes=[block]))(torch.zeros(37)), expected[:37])
    with pytest.raises(exc.InvalidConfig, match="which is 0 under this configuration"):
        bound.compile_config(hl.Config(block_sizes=[1]))


@pytest.mark.parametrize("marked", [True, False])
def test_comparisons_of_block_sizes_on_the_host(marked):
    @hl.kernel
    def kernel(x, marked: hl.constexpr):
        out = torch.empty_like(x)
        block = hl.register_block_size(x.size(0))
        small = hl.constexpr(block < 16) if marked else block < 16
        for t in hl.tile(x.size(0), block_size=block):
            if small:
                out[t] = x[t] + (1 if block > 4 and not small else 2)
            else:
                out[t] = x[t] + 3
        return out

    x = torch.randn(64)
    for block, added in ((4, 2), (8, 2), (32, 3)):
        bound = kernel.bind((x, marked))
        bound.set_config(hl.Config(block_sizes=[block]))
        torch.testing.assert_close(bound(x, marked), x + added)
        assert "  if " not in bound.to_code().split("def kernel(")[0]


def test_a_number_for_a_block_size_is_refused_with_what_to_write_where_a_tile_is_cut():
    @hl.kernel
    def added(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0), block_size=8):
            out[t] = x[t] + hl.arange(8)
        return out

    @hl.kernel
    def stored(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0), block_size=8):
            out[t] = hl.arange(8)
        return out

    for kernel in (added, stored):
        with pytest.raises(hl.exc.Error, match=r"write t\.block_size for 8"):
            kernel(torch.zeros(20))
        assert torch.equal(kernel(torch.zeros(16)), torch.arange(8.0).repeat(2))
