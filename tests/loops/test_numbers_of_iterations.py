"""Loops with any numbers of iterations, none and fewer among them, one behind the other or in one another."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled
from tests.loops.evaluate import Nest
from tests.loops.families import kernel_of, module_of

KERNELS: list[Spelling] = []
_TYPES = "*fp32, *fp32, i32, i32"


@spelled(KERNELS, _TYPES)
def behind(x, out, n, m):
    """The second loop goes on where the first one would end."""
    total = 0.0
    for i in range(n):
        total += tl.load(x + 8 + i)
    for i in range(m):
        total += tl.load(x + 8 + n + i)
    tl.store(out, total)


@spelled(KERNELS, _TYPES)
def one_behind(x, out, n, m):
    """One more is added behind a loop, wherever that one would end."""
    total = 0.0
    for i in range(n):
        total += tl.load(x + 8 + i)
    tl.store(out, total + tl.load(x + 8 + n))


@spelled(KERNELS, _TYPES)
def inside(x, out, n, m):
    """The outer loop goes on where the inner one would end."""
    total = 0.0
    for i in range(n):
        for j in range(m):
            total += tl.load(x + 8 + i * m + j)
    tl.store(out, total)


@spelled(KERNELS, _TYPES)
def pointer_behind(x, out, n, m):
    """A pointer that a loop moves is read behind it."""
    total, at = 0.0, x + 8
    for _ in range(n):
        total += tl.load(at)
        at += 1
    tl.store(out, total + tl.load(at))


@spelled(KERNELS, _TYPES)
def halves_added(x, out, n, m):
    """A sum begins with a number that is no half."""
    total = tl.load(x + 8 + m)
    for i in range(n):
        total += tl.sum(tl.load(x + 8 + 4 * i + tl.arange(0, 4)) * 0.5)
    tl.store(out, total)


def _wanted(name, x, n, m):
    first, second = max(n, 0), max(m, 0)
    if name == "pointer_behind":
        return x[8 : 8 + first + 1].sum()
    if name == "halves_added":
        return x[8 + m] + x[8 : 8 + 4 * first].sum() / 2
    if name == "inside":
        return x[8 : 8 + first * second].sum()
    behind = second if name == "behind" else 1
    return x[8 : 8 + first].sum() + x[8 + n : 8 + n + behind].sum()


@pytest.mark.parametrize("spelling", KERNELS, ids=lambda spelling: spelling.name)
def test_of_any_sign(spelling):
    x, kernel = np.arange(1, 33, dtype=np.float32), kernel_of(module_of(spelling))
    for n, m in itertools.product(range(-3, 4), repeat=2):
        wanted = _wanted(spelling.name, x, n, m)
        out = np.zeros(1, np.float32)
        nest = Nest(kernel, {0: x, 1: out}, {2: n, 3: m}, (1,))
        nest.run()
        assert not nest.unknown and out[0] == wanted, (n, m)
        out[0] = 0
        spelling.fn[(1,)](x, out, n, m)
        assert out[0] == wanted, (n, m)


_N = 16


@tilewright.jit
def dots(acc, a, b, at, count, N: tl.constexpr):
    i = tl.arange(0, N)
    for t in range(count):
        k = (at + t) * N + i
        acc = tl.dot(tl.load(a + i[:, None] * 8 * N + k), tl.load(b + k[:, None] * N + i), acc)
    return acc


@tilewright.jit
def products_behind(a, b, c, n, m, N: tl.constexpr):
    i = tl.arange(0, N)
    acc = dots(tl.zeros((N, N), tl.float32), a, b, 3, n, N)
    tl.store(c + i[:, None] * N + i, dots(acc, a, b, 3 + n, m, N))


def test_of_products():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((_N, 8 * _N), (8 * _N, _N)))
    for n, m in ((-2, 3), (3, -2), (-1, -1), (2, 2), (0, 2)):
        out, ends = np.empty((_N, _N), np.float32), [3, 3 + max(n, 0), 3 + n, 3 + n + max(m, 0)]
        products_behind[(1,)](a, b, out, n, m, _N)
        parts = [slice(first * _N, end * _N) for first, end in (ends[:2], ends[2:])]
        np.testing.assert_array_equal(out, sum(a[:, part] @ b[part] for part in parts))
