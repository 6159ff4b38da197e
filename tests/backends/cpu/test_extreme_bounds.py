"""Masks whose bounds are the smallest and largest numbers of their types, as programs say that there is no bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@tilewright.jit
def places(x, bounds, out, n, SIGN: tl.constexpr, KIND: tl.constexpr):
    i, bound = tl.arange(0, 64), tl.load(bounds)
    if KIND == "moved":
        i = i + tl.program_id(0) * 64 - 2
    if SIGN == "<":
        mask = i < bound
    elif SIGN == "<=":
        mask = i <= bound
    elif SIGN == ">":
        mask = i > bound
    else:
        mask = i >= bound
    if KIND == "rest":
        mask = mask & (i < n)
    place = tl.arange(0, 64)
    tl.store(out + place, tl.load(x + place, mask=mask, other=-1))


@tilewright.jit
def rows(x, bounds, out, n, SIGN: tl.constexpr, KIND: tl.constexpr):
    i, j = tl.arange(0, 4)[:, None], tl.arange(0, 16)[None, :]
    bound = tl.load(bounds + i) if KIND == "rows" else tl.load(bounds)
    mask = (j <= bound if SIGN == "<=" else j > bound) & (i < n)
    tl.store(out + i * 16 + j, tl.load(x + i * 16 + j, mask=mask, other=-1))


@tilewright.jit
def sums(a, b, bounds, out, SIGN: tl.constexpr, KIND: tl.constexpr):
    """Products of 48 columns, or their sums, of those that a bound lets through."""
    i, bound = tl.arange(0, 16), tl.load(bounds)
    products, rows = tl.zeros((16, 16), tl.float32), tl.zeros((16,), tl.float32)
    for start in range(0, 48, 16):
        k = start + tl.arange(0, 16)
        if SIGN == "<=":
            mask = k <= bound
        elif SIGN == "< less":
            mask = k - 3 < bound
        else:
            mask = k > bound
        x = tl.load(a + i[:, None] * 48 + k[None, :], mask=mask[None, :], other=0)
        if KIND == "products":
            products += tl.dot(x, tl.load(b + k[:, None] * 16 + i[None, :]))
        elif KIND == "chosen":
            rows += tl.sum(tl.where(mask[None, :], tl.load(a + i[:, None] * 48 + k[None, :]), 0.0), 1)
        else:
            rows += tl.sum(x, 1)
    tl.store(out + i[:, None] * 16 + i[None, :], products + rows[:, None])


_TYPES = (np.int8, np.int16, np.int32, np.int64)


def _ends(type_):
    info = np.iinfo(type_)
    return [int(n) for n in (info.min, info.min + 1, info.min + 9, info.max - 9, info.max - 1, info.max)]


def _differing(kernel, type_, numbers, sign, kind):
    """The bounds with which the compiled kernel differs from the interpreted one."""
    wrong = []
    for number in numbers:
        x, bounds, outs = np.arange(64, dtype=np.int32), np.full(4, number, type_), []
        for interpret in (False, True):
            outs.append(out := np.full(64, 7, np.int32))
            tilewright.jit(interpret=interpret)(kernel.fn)[(1,)](x, bounds, out, 50, SIGN=sign, KIND=kind)
        if not np.array_equal(*outs):
            wrong.append(number)
    return wrong


@pytest.mark.parametrize("kind", ["all", "rest", "moved"])
@pytest.mark.parametrize("type_", _TYPES)
def test_places(type_, kind):
    for sign in ("<", "<=", ">", ">="):
        assert _differing(places, type_, [*_ends(type_), 0, 5], sign, kind) == [], sign


@pytest.mark.parametrize("type_", _TYPES)
def test_rows(type_):
    for sign, kind in itertools.product(("<=", ">"), ("rows", "one")):
        assert _differing(rows, type_, _ends(type_), sign, kind) == [], (sign, kind)


@pytest.mark.parametrize("kind", ["products", "sums", "chosen"])
@pytest.mark.parametrize("type_", (np.int32, np.int64))
def test_sums(type_, kind):
    a, b = (np.arange(768, dtype=np.float32) % 7 - 2 for _ in range(2))
    for sign, number in itertools.product(("<=", "< less", ">"), [*_ends(type_), 20]):
        outs = []
        for interpret in (False, True):
            outs.append(out := np.zeros(256, np.float32))
            bounds = np.full(1, number, type_)
            tilewright.jit(interpret=interpret)(sums.fn)[(1,)](a, b, bounds, out, SIGN=sign, KIND=kind)
        assert np.array_equal(*outs), (sign, number)
