"""Packed operands kept for several keys: places that come again in any order, loops of different lengths, few entries."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import machine
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tests.decisions.harness import Spelling, passed
from tests.decisions.persistent import PERSISTENT
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit.lower import lower_module
from tilewright.backends.cpu.plan.dot import plan_dot
from tilewright.backends.llvm.features import describe

M, N, K = 96, 160, 128


@tilewright.jit
def at_places(a, b, c, rows, columns, ends, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each program has a place by tables, and K ends where a table says."""
    pid = tl.program_id(0)
    m, n = tl.load(rows + pid) * BM + tl.arange(0, BM), tl.load(columns + pid) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, tl.load(ends + pid), BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * 128 + k[None, :])
        acc = tl.dot(tl.maximum(x, 0.0), tl.load(b + k[:, None] * 160 + n[None, :]), acc)
    at = c + pid * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(at, acc)


@tilewright.jit
def in_pieces(a, b, c, rows, columns, ends, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Loops around the product, a product in a branch, and products in no loop."""
    pid = tl.program_id(0)
    m, n = tl.load(rows + pid) * BM + tl.arange(0, BM), tl.load(columns + pid) * BN + tl.arange(0, BN)
    k, end = tl.arange(0, BK), tl.load(ends + pid)
    acc = tl.zeros((BM, BN), tl.float32)
    for o in range(0, end, 2 * BK):
        for i in range(o, o + 2 * BK, BK):
            if i < end:
                x = tl.load(a + (i + k)[:, None] + m[None, :] * 128)
                acc = tl.dot(tl.maximum(x.T, 0.0), tl.load(b + (i + k)[:, None] * 160 + n[None, :]), acc)
    tl.store(c + pid * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)


@pytest.mark.parametrize("kernel", [at_places, in_pieces], ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(("entries", "slots"), [(16, None), (2, None), (16, 2)])
def test_what_is_kept_is_that_of_its_place(kernel: Any, entries: int, slots: int | None, monkeypatch: Any) -> None:
    monkeypatch.setattr(tuning, "KEPT_KEYS", entries)
    if slots is not None:  # of two iterations each, which is fewer than K has
        plan = plan_dot(machine(), 32, 32, 16, "f32", "f32", "f32")
        monkeypatch.setattr(tuning, "JOINED_PANEL_BYTES", plan.b_panel_bytes(2 * 16))
        monkeypatch.setattr(tuning, "KEPT_BYTES", slots * max(plan.a_bytes(2 * 16), plan.b_bytes(2 * 16)))
    rng = np.random.default_rng(entries)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((M, K), (K, N)))
    count = 60
    rows, columns = rng.integers(0, M // 32, count, np.int32), rng.integers(0, N // 32, count, np.int32)
    ends = np.minimum(rng.integers(-1, 9, count, np.int32) * 16 + np.arange(count, dtype=np.int32) // 8 * 16, K)
    got = np.zeros((count, 32, 32), np.float32)
    types = dict.fromkeys("abc", "*fp32") | dict.fromkeys(("rows", "columns", "ends"), "*i32")
    module = built_ir(kernel, types, BM=32, BN=32, BK=16)
    compiled = Compiled(module)
    assert "@dot.kept(" in compiled.program.llvm
    for _ in range(2):  # the second launch must not use what the first one packed
        compiled((count,), a, b, got, rows, columns, ends)
        a += 1
        b -= 1
    a, b = a - 1, b + 1
    for number in range(count):
        m, n, end = 32 * rows[number], 32 * columns[number], max(0, ends[number])
        want = np.maximum(a[m : m + 32, :end], 0) @ b[:end, n : n + 32]
        np.testing.assert_array_equal(got[number], want)


@tilewright.jit
def tile_after_tile(a, b, c, K: tl.constexpr):
    n, k = tl.arange(0, 32), tl.arange(0, 16)
    for tile in range(2):
        m, acc = tile * 32 + tl.arange(0, 32), tl.zeros((32, 32), tl.float32)
        for start in range(0, K, 16):
            x = tl.load(a + m[:, None] * K + start + k[None, :])
            acc = tl.dot(x, tl.load(b + (start + k)[:, None] * 32 + n[None, :]), acc)
        tl.store(c + n[:, None] * 32 + n[None, :], acc * 0.5)


def test_what_a_program_stores_elsewhere_leaves_panels_alone() -> None:
    """One program computes two tiles, and packs columns once, unless it stores to them."""
    compiled = Compiled(built_ir(tile_after_tile, dict.fromkeys("abc", "*fp32"), K=32))
    assert "@dot.kept(" in compiled.program.llvm
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 32), (32, 32)))
    c = np.zeros_like(b)
    compiled((1,), a, b, c)
    np.testing.assert_array_equal(c, 0.5 * (a[32:] @ b))
    want = 0.5 * (a[32:] @ (0.5 * (a[:32] @ b)))
    compiled((1,), a, b, b)
    np.testing.assert_array_equal(b, want)


@tilewright.jit
def of_images(a, b, c, SHARED: tl.constexpr):
    """A program for each row of each image; with SHARED the images have their rows in common."""
    pid, n, k = tl.program_id(0), tl.arange(0, 32), tl.arange(0, 16)
    image, row = pid % 3, pid // 3
    first = row * 512 if SHARED else (image + 1) * 2048 + row * 512
    y = tl.load(b + first + k[:, None] * 32 + n[None, :])
    acc = tl.dot(tl.load(a + n[:, None] * 16 + k[None, :]), y)
    tl.store(c + pid * 1024 + n[:, None] * 32 + n[None, :], acc)


@pytest.mark.parametrize("shared", [False, True])
def test_what_no_other_program_wants_is_not_kept(shared: bool) -> None:
    """Quotient and remainder together are the number of the program."""
    compiled = Compiled(built_ir(of_images, dict.fromkeys("abc", "*fp32"), SHARED=shared))
    assert ("@dot.kept(" in compiled.program.llvm) is shared
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((32, 16), (4, 4, 16, 32)))
    c = np.zeros((12, 32, 32), np.float32)
    compiled((12,), a, b, c)
    for number in range(12):
        np.testing.assert_array_equal(c[number], a @ b[0 if shared else 1 + number % 3, number // 3])


@pytest.mark.parametrize("spelling", PERSISTENT, ids=lambda spelling: spelling.name)
def test_panels_of_columns_are_known_by_the_column_however_operands_are_fetched(spelling: Spelling) -> None:
    """A tile's column is a remainder: made of the number of the tile and its row, it would be another in every tile."""
    module, options, target = passed(spelling, "avx512")
    text = lower_module(module, describe("x86_64-unknown-linux-gnu", str(target.arch)), options).llvm
    numbers = {int(n) for n in re.findall(r"call i64 @dot\.kept\(ptr \S+, ptr \S+, i64 \S+, i64 (\d+),", text)}
    assert numbers and max(numbers) <= 2
