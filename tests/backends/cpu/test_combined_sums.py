"""Atomic sums of a tile, those of one address first: results wherever the addresses lie, and what must stay as it is."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tilewright.backends.cpu.plan.subjects import COMBINED
from tilewright.base.decision import from_records

N = 700
FAR = 1 << 50  # where there is no memory


@tilewright.jit
def flat(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0), i < n)


@tilewright.jit
def of_rows(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B // 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    at = out + 3 + tl.load(ids + i, i < n, FAR - 1) - 3
    tl.atomic_add(at, tl.load(x + i, i < n, 0), i < n, sem="relaxed")


@tilewright.jit
def of_one_place(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.zeros((B,), tl.int32), tl.load(x + i, i < n, 0), i < n)


@tilewright.jit
def whole_blocks(x, ids, out, n, B: tl.constexpr):
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        tl.atomic_add(out + tl.load(ids + tl.minimum(i, n - 1)), tl.where(i < n, tl.load(x + i), 0))


KERNELS = [flat, of_rows, of_one_place, whole_blocks]


@functools.cache
def compiled(kernel: Any, element: np.dtype[Any], family: str) -> Compiled:
    pointer = {"f": "*fp", "i": "*i"}[element.kind] + str(8 * element.itemsize)
    types = {"x": pointer, "ids": "*i64", "out": pointer, "n": "i32"}
    return Compiled(built_ir(kernel, types, B=256), isa=FAMILIES[family].isa)


def run(kernel: Any, x: np.ndarray, ids: np.ndarray, out: np.ndarray, family: str = "avx512") -> Compiled:
    made = compiled(kernel, x.dtype, family)
    padded_x, padded_ids = np.zeros(N + 512, x.dtype), np.full(N + 512, FAR)
    padded_x[:N], padded_ids[:N] = x, ids
    made((1 if kernel is whole_blocks else 3,), padded_x, padded_ids, out, N)
    return made


CASES = [(family, np.float32) for family in FAMILIES] + [("avx512", e) for e in (np.int32, np.float64, np.int64)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(("family", "element"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_sums_by_address(family: str, kernel: Any, element: type) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, N).astype(element)
    for top in (1, 40, 255, 256, 257, 4000):  # addresses in the window, at its end, and behind it
        ids = rng.integers(0, top, N) if kernel is not of_one_place else np.zeros(N, np.int64)
        area = np.full(5000, 3, element)
        want = area.copy()
        np.add.at(want, ids + 100, x)
        run(kernel, x, ids, area[100:], family)
        assert np.array_equal(area, want)


def test_addresses_before_the_pointer() -> None:
    x, ids = np.ones(N, np.float32), -(np.arange(N) % 7)
    area = np.zeros(300, np.float32)
    run(flat, x, ids, area[100:])
    assert area[94:101].sum() == N and area.sum() == N


def test_what_is_not_touched_keeps_its_bits() -> None:
    x, ids = np.full(N, -0.0, np.float32), np.arange(N) % 3
    area = np.full(300, -0.0, np.float32)
    run(flat, x, ids, area)
    assert np.signbit(area).all()
    x[5] = np.nan
    run(flat, x, ids, area)
    assert np.isnan(area).sum() == 1


@tilewright.jit
def old_values(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.atomic_add(out + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0), i < n), i < n)


@tilewright.jit
def neighbours(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + i, tl.load(x + i, i < n, 0), i < n)


@tilewright.jit
def maxima(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_max(out + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0), i < n)


@tilewright.jit
def read_again(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0), i < n)
    tl.store(x + i, tl.load(out + i, i < n), i < n)


@tilewright.jit
def of_a_row(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    at = out + tl.program_id(0) * 10 + tl.load(ids + i, i < n, 0)
    tl.atomic_add(at, tl.load(x + i, i < n, 0), i < n)


@tilewright.jit
def in_both_halves(x, ids, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0), i < n)
    tl.atomic_add(out + 50 + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0), i < n)


@tilewright.jit
def same_places(x, ids, out, n, B: tl.constexpr):
    """Every program adds to the same elements, as the gradient of a weight does."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.arange(0, B), tl.load(x + i, i < n, 0), i < n)


KEPT = {flat: True, whole_blocks: True, in_both_halves: True, read_again: False, of_a_row: False, same_places: True}


@pytest.mark.parametrize("kernel", KEPT, ids=lambda kernel: kernel.fn.__name__)
def test_sums_are_kept_over_programs_where_nobody_can_tell(kernel: Any) -> None:
    x, ids, out = np.arange(N, dtype=np.int32), np.arange(N) * 7 % 11, np.zeros(2000, np.int32)
    made = run(kernel, x, ids, out)
    reasons = [d.text for d in from_records(made.program.decisions) if d.subject == COMBINED.name]
    assert all(("over all programs" in why) == KEPT[kernel] for why in reasons) and reasons
    want = np.zeros_like(out)
    for begin in {flat: [0], whole_blocks: [0], in_both_halves: [0, 50], read_again: [0]}.get(kernel, []):
        np.add.at(want, ids + begin, x)
    if kernel is of_a_row:
        np.add.at(want, ids + np.arange(N) // 256 * 10, x)
    if kernel is same_places:
        np.add.at(want, np.arange(N) % 256, x)
    assert np.array_equal(out, want)


NEIGHBOURS = [(family, np.float32) for family in FAMILIES] + [("avx512", e) for e in (np.int32, np.float64, np.int64)]


@pytest.mark.parametrize(("family", "element"), NEIGHBOURS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("kernel", [neighbours, same_places], ids=lambda kernel: kernel.fn.__name__)
def test_neighbours_are_added_several_at_a_time(kernel: Any, family: str, element: type) -> None:
    """From any element on, and no others are touched."""
    x, count = np.random.default_rng(2).integers(-9, 9, N).astype(element), 256 if kernel is same_places else N
    for begin in range(5):
        area = np.full(1600, -0.0, element)
        run(kernel, x, np.zeros(N, np.int64), area[begin:], family)
        want = np.zeros(1600, element)
        np.add.at(want, begin + np.arange(N) % count, x)
        assert np.array_equal(area, want)
        if element is np.float32:
            assert np.signbit(area[:begin]).all() and np.signbit(area[begin + count :]).all()


@tilewright.jit
def some_of_a_row(x, ids, out, n, B: tl.constexpr):
    """Rows of 32 elements at looked-up places, of which the first few are added."""
    i, j = tl.program_id(0) * 8 + tl.arange(0, B // 32)[:, None], tl.arange(0, 32)[None, :]
    at = tl.load(ids + i)
    tl.atomic_add(out + at * 32 + j, tl.load(x + i * 32 + j), j < n)


@pytest.mark.parametrize("family", ["avx512", "avx2", "sse2"])
@pytest.mark.parametrize("columns", [32, 29, 1, 0])
def test_rows_at_looked_up_places(family: str, columns: int) -> None:
    made = compiled(some_of_a_row, np.dtype(np.float32), family)
    rng = np.random.default_rng(3)
    x, ids = rng.integers(-9, 9, (24, 32)).astype(np.float32), rng.integers(0, 50, 24)
    out, want = np.zeros((50, 32), np.float32), np.zeros((50, 32), np.float32)
    made((3,), x, ids, out, columns)
    np.add.at(want, ids, np.where(np.arange(32) < columns, x, 0))
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("kernel", [*KERNELS, old_values, neighbours, maxima], ids=lambda kernel: kernel.fn.__name__)
def test_only_sums_that_may_meet_and_that_nobody_reads_are_combined(kernel: Any) -> None:
    made = run(kernel, np.ones(N, np.int32), np.arange(N) % 3, np.zeros(2000, np.int32))
    answers = {d.taken for d in from_records(made.program.decisions) if d.subject == COMBINED.name}
    assert answers == {kernel in KERNELS}


@tilewright.jit
def counted(x, counts, sums, n, BINS: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, i < n, -1)
    tl.atomic_add(counts + tl.arange(0, BINS), tl.histogram(value, BINS, mask=i < n - 3))
    tl.atomic_add(sums + value, 0.5, mask=value >= 0)


@pytest.mark.parametrize("element", [np.int32, np.int64])
@pytest.mark.parametrize("top", [1, 16, 512, 513, 3000])  # first addresses, which have several sums, and others
def test_counts_of_many(element: type, top: int) -> None:
    x = np.random.default_rng(top).integers(-1 - top // 9, top, 20_000).astype(element)
    counts, sums = np.zeros(256, np.int32), np.zeros(4096, np.float32)
    counted[(5,)](x, counts, sums, x.size, 256, 4096)
    assert counts.tolist() == np.bincount(x[:-3][(x[:-3] >= 0) & (x[:-3] < 256)], minlength=256).tolist()
    assert sums.tolist() == (np.bincount(x[x >= 0], minlength=4096) / 2).tolist()
