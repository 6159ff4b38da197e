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
