"""Small elements that lie apart are read and written in loops, exactly where the masks say."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource


@tilewright.jit
def apart(x, out, n, step, MASKED: tl.constexpr):
    """Elements `step` apart, doubled, to places `step` apart."""
    i = tl.arange(0, 64)
    if MASKED:
        tl.store(out + i * step, tl.load(x + i * step, i < n, other=7) * 2, i % 3 != 0)
    else:
        tl.store(out + i * step, tl.load(x + i * step) * 2)


@tilewright.jit
def by_table(x, table, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.load(table + i), i < n, other=7))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float16, np.float32])
@pytest.mark.parametrize("step", [-3, 0, 1, 5])
@pytest.mark.parametrize("masked", [False, True])
def test_elements_apart(dtype: type, step: int, masked: bool) -> None:
    x, out = np.arange(1000).astype(dtype), np.full(1000, 99, dtype)
    start, wanted = 300, out.copy()
    apart[(1,)](x[start:], out[start:], 50, step, masked)
    for lane in range(64):
        place = start + lane * step
        if not masked or lane % 3:
            wanted[place] = 14 if masked and lane >= 50 else (x[place : place + 1] * 2)[0]
    assert out.tolist() == wanted.tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.float16])
@pytest.mark.parametrize("size", [8, 16, 64])
def test_elements_by_table(dtype: type, size: int) -> None:
    x, out = np.arange(300).astype(dtype), np.zeros(size, dtype)
    table = np.random.default_rng(0).integers(0, 300, size).astype(np.int32)
    table[-1] = 1 << 28  # is not looked at
    by_table[(1,)](x, table, out, size - 1, size)
    assert out.tolist() == [*x[table[:-1]].tolist(), 7]


@pytest.mark.parametrize(("kind", "loops"), [("*i8", True), ("*bf16", True), ("*fp32", False)])
def test_only_elements_that_no_scatter_takes(kind: str, loops: bool) -> None:
    types = {"x": kind, "out": kind, "n": "i32", "step": "i32"}
    kernel = tilewright.compile(ASTSource(apart, types, {"MASKED": True}), "cpu:sapphirerapids")
    text = kernel.asm["llir"]
    assert loops != ("masked.scatter" in text) and loops != ("masked.gather" in text)
