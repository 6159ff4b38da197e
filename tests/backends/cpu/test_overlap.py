"""Addresses that lead to one array by different ways: what is stored must not be loaded before its turn.

Every kernel moves a tile by one element; where its load and its store were taken for different arrays, they would share
a loop whose later chunks load what its earlier ones stored.
"""

from __future__ import annotations

import pytest

import tilewright
import tilewright.language as tl

torch = pytest.importorskip("torch")

N = 1024


@tilewright.jit
def through_a_branch(x, y, other, N: tl.constexpr):
    p = x
    if other:
        p = y
    i = tl.arange(0, N)
    tl.store(p + 1 + i, tl.load(x + i))


@tilewright.jit
def through_a_loop(x, y, count, N: tl.constexpr):
    p = y
    for _ in range(count):
        p = x
    i = tl.arange(0, N)
    tl.store(p + 1 + i, tl.load(x + i))


@tilewright.jit
def through_a_table(table, y, count, N: tl.constexpr):
    p = tl.load(table).to(tl.pointer_type(tl.float32))
    q = tl.load(table + count).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, N)
    tl.store(p + 1 + i, tl.load(q + i))


@tilewright.jit(noinline=True)
def moved(p, q, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(p + 1 + i, tl.load(q + i))


@tilewright.jit
def through_a_call(x, y, count, N: tl.constexpr):
    moved(x, x, N)


@pytest.mark.parametrize(
    ("kernel", "number"), [(through_a_branch, 0), (through_a_loop, 3), (through_a_table, 1), (through_a_call, 0)]
)
def test_a_tile_is_moved_by_one_element(kernel, number):
    x, y = torch.arange(N + 1, dtype=torch.float32), torch.zeros(N + 1)
    first = torch.tensor([x.data_ptr()] * 2) if kernel is through_a_table else x
    kernel[(1,)](first, y, number, N=N)
    assert torch.equal(x[1:], torch.arange(N, dtype=torch.float32))


# --- several loads that one store must not overtake --------------------------------------------------------------


@tilewright.jit
def smoothed(x, other, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(x + 1 + i, tl.load(x + i) * 2 + tl.load(x + 2 + i))


@tilewright.jit
def smoothed_and_used(x, other, N: tl.constexpr):
    i = tl.arange(0, N)
    left, right = tl.load(x + i), tl.load(x + 2 + i)
    tl.store(x + 1 + i, left * 2 + right)
    tl.store(other + i, left - right + tl.load(x + i))


@tilewright.jit
def smoothed_in_between(x, other, N: tl.constexpr):
    i = tl.arange(0, N)
    left = tl.load(x + i)
    tl.store(x + 3 + i, left)
    tl.store(x + 1 + i, left * 2 + tl.load(x + 2 + i))


@tilewright.jit
def smoothed_where_it_says(x, other, N: tl.constexpr):
    i = tl.arange(0, N)
    left, right = tl.load(x + i), tl.load(x + 2 + i)
    tl.store(x + 1 + i, left * 2 + right, mask=left > tl.load(x + 4 + i))


@tilewright.jit
def summed_and_smoothed(x, other, N: tl.constexpr):
    i = tl.arange(0, N)
    left, right = tl.load(x + i), tl.load(x + 2 + i)
    total = tl.sum(left, 0)
    tl.store(x + 1 + i, (left * 2 + right) / total)
    tl.store(other + i, left)


KERNELS = [smoothed, smoothed_and_used, smoothed_in_between, smoothed_where_it_says, summed_and_smoothed]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("n", [8, 64, 1024])
def test_what_several_loads_make_is_stored_after_all_of_them(kernel, n):
    found, expected = ((torch.rand(n + 8, generator=torch.manual_seed(n)) + 0.5, torch.zeros(n)) for _ in range(2))
    kernel[(1,)](*found, N=n)
    tilewright.jit(kernel.fn, interpret=True)[(1,)](*expected, N=n)
    torch.testing.assert_close(found, expected)


@tilewright.jit
def used_behind_two_stores(x, changed, other, first, last, ROWS: tl.constexpr, N: tl.constexpr):
    """A load that is wanted behind a store to its array (where that is `changed`), and behind one to another."""
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, N)[None, :]
    value = tl.load(x + i * N + j)
    tl.store(changed + i * N + j, value + 1)
    tl.store(first + i * other + j, value * 2)
    tl.store(last + i * N + j, value + tl.sum(value, 1)[:, None])


@pytest.mark.parametrize("offset", [None, 0, 1, N])
def test_loads_are_made_again_only_behind_stores_to_other_arrays(offset):
    """`changed` is `x`, a part of it that begins elsewhere, or another array."""
    memory = torch.arange(3.0 * N).remainder(97)
    x = memory[:N].clone() if offset is None else memory[:N]
    changed = memory[: 4 * 256] if offset is None else memory[offset : offset + N]
    before, (first, last) = x.clone().view(4, 256), (torch.zeros(4, 256) for _ in range(2))
    used_behind_two_stores[(1,)](x, changed, 256, first, last, ROWS=4, N=256)
    assert torch.equal(changed.view(4, 256), before + 1)
    assert torch.equal(first, before * 2)
    assert torch.equal(last, before + before.sum(1, keepdim=True))
