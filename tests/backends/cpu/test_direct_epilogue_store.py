"""Sums that a product writes directly to the tensor of the store behind it: what is stored, and nothing else, changes."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tilewright.backends.cpu.plan.subjects import DIRECT_STORE

_TYPES = dict.fromkeys("abc", "*fp32") | dict.fromkeys(("rows", "columns", "on"), "i32")


@tilewright.jit
def tiles(a, b, i, j, p):
    return tl.load(a + i[:, None] * 96 + p[None, :]), tl.load(b + p[:, None] * 70 + j[None, :])


@tilewright.jit
def in_a_loop(a, b, c, rows, columns, on):
    i, j, acc = tl.arange(0, 32), tl.arange(0, 48), tl.zeros((32, 48), tl.float32)
    for start in range(0, 96, 32):
        x, y = tiles(a, b, i, j, start + tl.arange(0, 32))
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * 70 + j[None, :], acc, (i < rows)[:, None] & (j < columns)[None, :] & (on > 0))


@tilewright.jit
def loads_masked(a, b, c, rows, columns, on):
    i, j, acc = tl.arange(0, 32)[:, None], tl.arange(0, 48)[None, :], tl.zeros((32, 48), tl.float32)
    for start in range(0, 96, 32):
        p = start + tl.arange(0, 32)
        x = tl.load(a + i * 96 + p[None, :], i < rows, 0.0)
        acc += tl.dot(x, tl.load(b + p[:, None] * 70 + j, j < columns, 0.0))
    if on > 0:
        tl.store(c + i * 70 + j, acc, (i < rows) & (j < columns))


@tilewright.jit
def at_once(a, b, c, rows, columns, on):
    i, j = tl.arange(0, 32), tl.arange(0, 48)
    x, y = tiles(a, b, i, j, tl.arange(0, 32))
    inside = (j[None, :] < columns) & (i[:, None] < tl.where(on > 0, rows, 0))
    tl.store(c + (i * 70)[:, None] + j[None, :], tl.dot(x, y), inside)


_KERNELS = {in_a_loop: (96, True), loads_masked: (96, False), at_once: (32, True)}


def _compiled(kernel: Any, family: str) -> tuple[Compiled, list[bool]]:
    made = Compiled(built_ir(kernel, _TYPES), isa=FAMILIES[family].isa)
    return made, [d["taken"] for d in made.program.decisions if d["subject"] == DIRECT_STORE.name]


@pytest.mark.parametrize("kernel", _KERNELS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_is_stored_is_written(family: str, kernel: Any) -> None:
    made, taken = _compiled(kernel, family)
    depth, straight = _KERNELS[kernel]
    assert taken == ([True] if straight else [])  # another block than the store's
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((32, 96), (96, 70)))
    for rows, columns, on in ((32, 48, 1), (99, 99, 1), (31, 48, 1), (32, 47, 1), (9, 17, 1), (1, 48, 1), (1, 5, 1),
                              (0, 48, 1), (-3, 4, 1), (32, 0, 1), (32, 48, 0)):  # fmt: skip
        c = np.full((32, 70), 7, np.float32)
        made((1,), a, b, c, rows, columns, on)
        want = np.full((32, 70), 7, np.float32)
        m, n = (max(0, min(bound, extent)) * (on > 0) for bound, extent in ((rows, 32), (columns, 48)))
        want[:m, :n] = (a[:, :depth] @ b[:depth])[:m, :n]
        np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("family", ["amx", "avx512", "avx2"])
def test_an_operand_may_be_the_result(family: str) -> None:
    """Read as a whole before anything is stored, as it is written."""
    made, _ = _compiled(in_a_loop, family)
    rng = np.random.default_rng(2)
    a = rng.integers(-8, 9, (32, 96)).astype(np.float32)
    b = rng.integers(-8, 9, (96, 70)).astype(np.float32)
    want = a @ b[:, :48]
    made((1,), a, b, b, 32, 48, 1)
    np.testing.assert_array_equal(b[:32, :48], want)


@tilewright.jit
def stored_in_between(a, b, c):
    i, j = tl.arange(0, 32), tl.arange(0, 48)
    x, y = tiles(a, b, i, j, tl.arange(0, 32))
    acc = tl.dot(x, y)
    tl.store(c + i[:, None] * 70 + j[None, :], tl.zeros((32, 48), tl.float32))
    tl.store(c + 2 + i[:, None] * 70 + j[None, :], acc)


@tilewright.jit
def used_twice(a, b, c):
    i, j = tl.arange(0, 32), tl.arange(0, 48)
    x, y = tiles(a, b, i, j, tl.arange(0, 32))
    acc = tl.dot(x, y)
    tl.store(c + i[:, None] * 70 + j[None, :], acc)
    tl.store(c + 4000 + i[:, None] * 70 + j[None, :], acc * 2)


@tilewright.jit
def stored_across(a, b, c):
    i, j = tl.arange(0, 32), tl.arange(0, 48)
    x, y = tiles(a, b, i, j, tl.arange(0, 32))
    tl.store(c + i[:, None] + j[None, :] * 70, tl.dot(x, y))


@tilewright.jit
def stored_to_an_operand(a, b, c):
    i, j = tl.arange(0, 32), tl.arange(0, 48)
    x, y = tiles(a, b, i, j, tl.arange(0, 32))
    tl.store(b + i[:, None] * 70 + j[None, :], tl.dot(x, y))


@pytest.mark.parametrize("kernel", [stored_in_between, used_twice, stored_across, stored_to_an_operand])
def test_what_is_not_stored_directly(kernel: Any) -> None:
    module = built_ir(kernel, dict.fromkeys("abc", "*fp32"))
    decisions = Compiled(module, isa=FAMILIES["avx512"].isa).program.decisions
    assert not any(d["taken"] for d in decisions if d["subject"] == DIRECT_STORE.name)
