"""Elements of a tile that have one address: all of them are loaded before any is stored, as the program says."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl

N = 2048
"""More elements than a chunk has on any machine."""


@tilewright.jit
def scales_of_groups(p, x, n, N: tl.constexpr):
    i = tl.arange(0, N)
    q = p + i // 256
    s = tl.load(q)
    tl.store(x + i, tl.load(x + i) * s)
    tl.store(q, s * 0.5)


@tilewright.jit
def a_ring(p, x, n, N: tl.constexpr):
    q = p + tl.arange(0, N) % 8
    tl.store(q, tl.load(q) * 0.5)


@tilewright.jit
def a_ring_of_any_size(p, x, n, N: tl.constexpr):
    q = p + tl.arange(0, N) % n
    tl.store(q, tl.load(q) * 0.5)


@tilewright.jit
def one_place(p, x, n, N: tl.constexpr):
    q = p + tl.arange(0, N) * 0
    tl.store(q, tl.load(q) * 0.5)


@tilewright.jit
def held_below(p, x, n, N: tl.constexpr):
    i = tl.minimum(tl.arange(0, N), n - 1)
    tl.store(p + i, tl.load(p + i) * 0.5)


@tilewright.jit
def a_row_for_all_rows(p, x, n, N: tl.constexpr):
    i, j = tl.arange(0, 64), tl.arange(0, N // 64)
    q = p + i[:, None] * 0 + j[None, :]
    tl.store(q, tl.load(q) * 0.5)


@tilewright.jit
def rows_that_overlap(p, x, n, N: tl.constexpr):
    i, j = tl.arange(0, 64), tl.arange(0, N // 64)
    q = p + i[:, None] + j[None, :]
    tl.store(q, tl.load(q) * 0.5)


@tilewright.jit
def rows_of_any_stride(p, x, n, N: tl.constexpr):
    i, j = tl.arange(0, 64), tl.arange(0, N // 64)
    q = p + i[:, None] * n + j[None, :]
    tl.store(q, tl.load(q) * 0.5)


@tilewright.jit
def columns_of_any_stride(p, x, n, N: tl.constexpr):
    i, j = tl.arange(0, 64), tl.arange(0, N // 64)
    q = p + i[:, None] * 32 + j[None, :] * (n - 8)
    tl.store(q, tl.load(q) * 0.5)


@tilewright.jit
def through_a_table(p, x, n, N: tl.constexpr):
    i = tl.load(x + tl.arange(0, N)).to(tl.int32) & 7
    tl.store(p + i, tl.load(p + i) * 0.5)


@tilewright.jit
def under_two_masks(p, x, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(p + i // 1024, 3.0, mask=i >= N - 8)
    tl.store(p + i // 1024, 5.0, mask=i % 1024 < 8)


@tilewright.jit
def turned_around(p, x, n, N: tl.constexpr):
    i = tl.arange(0, 8)
    q = p + i[:, None] * 8 + i[None, :]
    tl.store(q, tl.trans(tl.load(q)))


@tilewright.jit
def a_row_from_a_column(p, x, n, N: tl.constexpr):
    i = tl.arange(0, 32)
    column = tl.load(p + i)
    tl.store(p + i[:, None] + tl.zeros([32, 32], tl.int32), column[None, :] * 0 + tl.sum(column), mask=i[None, :] < 1)


@tilewright.jit
def a_loop_in_place(p, x, n, N: tl.constexpr):
    q = p + tl.arange(0, N) % 16
    for _ in range(3):
        tl.store(q, tl.load(q) + 1.0)


KERNELS = [
    scales_of_groups, a_ring, a_ring_of_any_size, one_place, held_below, a_row_for_all_rows, rows_that_overlap,
    rows_of_any_stride, columns_of_any_stride, through_a_table, under_two_masks, turned_around, a_row_from_a_column,
    a_loop_in_place,
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("n", [8, 31, 100])
def test_elements_at_one_address_are_loaded_before_they_are_stored(kernel, n):
    rng = np.random.default_rng(3)
    memory = [rng.integers(1, 9, 8 * N).astype(np.float32) for _ in range(2)]
    found, wanted = [a.copy() for a in memory], [a.copy() for a in memory]
    kernel[(1,)](*found, n, N=N)
    tilewright.jit(kernel.fn, interpret=True)[(1,)](*wanted, n, N=N)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


# --- elements that lie apart: what works in place keeps its one loop ------------------------------------------


@tilewright.jit
def row_in_place(x, n, stride, N: tl.constexpr):
    j = tl.arange(0, N)
    q = x + tl.program_id(0) * stride + j
    tl.store(q, tl.load(q, j < n, 0.0) * 2.0, j < n)


@tilewright.jit
def rows_under_a_mask(x, n, stride, N: tl.constexpr):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, N)[None, :]
    q = x + (tl.program_id(0) * 16 + i) * n + j
    tl.store(q, tl.load(q, j < n, 0.0) * 2.0, j < n)


@tilewright.jit
def tile_of_strides(x, n, stride, N: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.program_id(1) * N + tl.arange(0, N)[None, :]
    q = x + i * stride + j * n
    tl.store(q, tl.load(q) * 2.0)


@tilewright.jit
def tile_of_a_matrix(x, n, stride, N: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.program_id(1) * N + tl.arange(0, N)[None, :]
    q, inside = x + i * stride + j, j < n
    tl.store(q, tl.load(q, inside, 0.0) * 2.0, inside)


@tilewright.jit
def block_of_a_matrix(x, n, stride, N: tl.constexpr):
    block = tl.make_block_ptr(x, (64, n), (stride, 1), (tl.program_id(0) * 16, 0), (16, N), (1, 0))
    tl.store(block, tl.load(block, boundary_check=(1,), padding_option="zero") * 2.0, boundary_check=(1,))


@tilewright.jit
def block_by_a_descriptor(x, n, stride, N: tl.constexpr):
    made = tl.make_tensor_descriptor(x, [64, n], [stride, 1], [16, N])
    made.store([tl.program_id(0) * 16, 0], made.load([tl.program_id(0) * 16, 0]) * 2.0)


@tilewright.jit
def two_of_a_scan(x, n, stride, N: tl.constexpr):
    i = tl.arange(0, N)
    q = x + (i // 32) * 64 + i % 32
    tl.store(q, tl.load(q) * 2.0)
    tl.store(q + 32, tl.load(q + 32) * 2.0)


PROVED = [row_in_place, rows_under_a_mask, two_of_a_scan]
TESTED = [tile_of_strides, tile_of_a_matrix, block_of_a_matrix, block_by_a_descriptor]


@pytest.mark.parametrize("kernel", [*PROVED, *TESTED], ids=lambda kernel: kernel.fn.__name__)
def test_what_works_in_place_on_elements_that_lie_apart_is_one_loop(kernel):
    found = kernel.warmup(np.zeros(4096, np.float32), 40, 64, N=64, grid=(1,)).asm["loops"]
    first, *others = found.split("where elements meet, ")
    assert "materialize" not in first
    assert len(others) == (kernel in TESTED)
    assert all("materialize" in other for other in others)


@pytest.mark.parametrize("kernel", [*PROVED, *TESTED], ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(("n", "stride"), [(40, 64), (40, 40), (40, 7), (1, 64), (2, 33), (0, 0), (64, 1)])
def test_either_plan_does_what_the_program_says(kernel, n, stride):
    if kernel is block_by_a_descriptor and (stride % 4 or not n or not stride):
        pytest.skip("rows of a descriptor are multiples of 16 bytes")
    memory = np.arange(1, 30_000, dtype=np.float32)
    found, wanted = memory.copy(), memory.copy()
    grid = (1, 1)
    kernel[grid](found, n, stride, N=64)
    tilewright.jit(kernel.fn, interpret=True)[grid](wanted, n, stride, N=64)
    np.testing.assert_array_equal(found, wanted)


@tilewright.jit
def product_of_rows(a, b, out, k, stride, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, acc = tl.arange(0, M), tl.arange(0, N), tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        p = start + tl.arange(0, K)
        acc = tl.dot(tl.load(a + i[:, None] * k + p[None, :]), tl.load(b + p[:, None] * N + j[None, :]), acc)
    tl.store(out + i[:, None] * stride + j[None, :], acc)


@pytest.mark.parametrize("stride", [0, 1, 31, 32, 40])
def test_sums_of_rows_that_meet_are_not_added_up_in_the_tensor(stride):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((16, 4096), (4096, 32)))
    found, sums = np.zeros(16 * 40, np.float32), a @ b
    product_of_rows[(1,)](a, b, found, 4096, stride, M=16, N=32, K=32)
    wanted = np.zeros_like(found)
    for row in range(16):
        wanted[row * stride : row * stride + 32] = sums[row]
    np.testing.assert_array_equal(found, wanted)
