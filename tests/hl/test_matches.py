"""Sums of comparisons with every place of a range: counted on a CPU where the range is long, and right everywhere."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl

CPU = torch.device("cpu")


@hl.kernel
def by_columns(x, bins: int):
    counts = torch.zeros([bins], dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        hot = (x[t][:, None] == hl.arange(bins)[None, :]).to(torch.int64)
        hl.atomic_add(counts, [hl.arange(bins)], hot.sum(0))
    return counts


@hl.kernel
def by_rows(x, bins: hl.constexpr):
    counts = torch.zeros([bins], dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        hl.atomic_add(counts, [hl.arange(bins)], (hl.arange(bins)[:, None] == x[t][None, :]).sum(1))
    return counts


@hl.kernel
def as_numbers(x, bins: hl.constexpr):
    """Floating-point sums, whose comparisons something else reads, too."""
    counts, most = torch.zeros([bins]), torch.zeros([bins])
    for t in hl.tile(x.size(0)):
        hot = (x[t][:, None] == hl.arange(bins)[None, :]).to(torch.float32)
        hl.atomic_add(counts, [hl.arange(bins)], hot.sum(0))
        hl.atomic_max(most, [hl.arange(bins)], hot.amax(0))
    return (counts + most).to(torch.int64)


@hl.kernel
def chosen(x, bins: hl.constexpr):
    """What is summed is no count: every second key is left out."""
    counts = torch.zeros([bins], dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        hot = (x[t][:, None] == hl.arange(bins)[None, :]).to(torch.int64)
        hl.atomic_add(counts, [hl.arange(bins)], (hot * (t.index % 2)[:, None]).sum(0))
    return counts


@hl.kernel
def above(x, bins: hl.constexpr):
    """Comparisons that are no equality."""
    counts = torch.zeros([bins], dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        hl.atomic_add(counts, [hl.arange(bins)], (x[t][:, None] > hl.arange(bins)[None, :]).sum(0))
    return counts


def counted(x, bins):
    return torch.bincount(x[(x >= 0) & (x < bins)].long(), minlength=bins)


CASES = {
    by_columns: (counted, True),
    by_rows: (counted, True),
    as_numbers: (lambda x, bins: counted(x, bins) + (counted(x, bins) > 0), True),
    chosen: (lambda x, bins: counted(x[1::2], bins), False),
    above: (lambda x, bins: (x[:, None] > torch.arange(bins)[None, :]).sum(0), False),
}


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("bins", [256, 300, 33, 16, 1])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_counts(kernel, bins, kind):
    reference, _ = CASES[kernel]
    for length in (1000, 1):
        x = torch.randint(-5, bins + 5, (length,)).to(kind)  # some that nobody counts
        assert torch.equal(kernel(x, bins), reference(x, bins))


@pytest.mark.parametrize("block", [1, 8, 64, 1024])
def test_tiles_of_any_size(block):
    x = torch.randint(-5, 80, (777,))
    for kernel in (by_columns, by_rows):
        made = hl.kernel(kernel.fn, config=hl.Config(block_sizes=[block]))
        assert torch.equal(made(x, 70), counted(x, 70))


def test_numbers_that_pass_32_bits_are_no_places():
    x = torch.tensor([3, 3 + (1 << 32), -(1 << 32), 1 << 40, 69])
    assert torch.equal(by_columns(x, 70), counted(x, 70))


def test_which_sums_are_counts():
    x = torch.randint(0, 64, (1000,))
    for kernel, (_, is_count) in CASES.items():
        assert ("tl.histogram" in kernel.bind((x, 64)).to_code()) == is_count, kernel.fn.__name__
    assert "tl.histogram" not in by_rows.bind((x, 16)).to_code()  # few comparisons
    assert "tl.histogram" not in by_rows.bind((x.to(torch.int8), 64)).to_code()


def test_programs_that_only_count_have_long_tiles():
    x = torch.randint(0, 256, (1 << 20,))
    (block,) = by_columns.bind((x, 256)).default_config().block_sizes
    assert block >= 4096
