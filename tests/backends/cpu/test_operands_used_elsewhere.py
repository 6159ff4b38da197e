"""Operands of products that the program uses elsewhere too: what they are made of is stored, turned, summed or scaled.

An operand that is converted from memory can be computed where it is packed, and packed once for all programs. What
another pass keeps in scratch of the same values has to be there before the product then.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES, in_pairs
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tilewright.base.dtypes import dtype
from tilewright.base.minifloat import from_memory, to_memory

ROWS, COLUMNS, WIDTH = 64, 16, 32


@tilewright.jit
def several_uses(
    x, scales, w, product, turned, sums, tops, m, k, LEFT: tl.constexpr, CHAIN: tl.constexpr, USE: tl.constexpr
):  # fmt: skip
    """A masked tile is an operand by way of `CHAIN`, on the left or on the right, and has another use."""
    i, d, n = tl.arange(0, 64)[:, None], tl.arange(0, 16)[None, :], tl.arange(0, 32)
    to = w.dtype.element_ty
    pid = tl.program_id(0)
    tile = tl.load(x + i * 16 + d, mask=(i < m) & (d < k), other=0)
    roots = tl.sqrt(tile.to(tl.float32) * tile.to(tl.float32))
    scale = tl.load(scales + tl.arange(0, 16)).to(tl.float32)
    scaled = tile.to(tl.float32) * tl.sqrt(scale * scale)[None, :]
    if CHAIN == "cast":
        operand = tile.to(to)
    elif CHAIN == "positive":
        operand = tl.where(tile > 0, tile, 0.0).to(to)
    elif CHAIN == "roots":
        operand = (roots + 1).to(to)
    else:
        operand = scaled.to(to)
    if LEFT:
        found = tl.dot(operand, tl.load(w + tl.arange(0, 16)[:, None] * 32 + n[None, :]))
    else:
        found = tl.dot(tl.load(w + n[:, None] * 64 + tl.arange(0, 64)[None, :]), operand)
    if USE == "turned":
        tl.store(turned + pid * 1024 + i + d * 64, tile)
    elif USE == "roots":
        total, top = tl.sum(roots, 1), tl.max(roots * 2, 0)
        tl.store(sums + pid * 64 + tl.arange(0, 64), total)
        tl.store(tops + pid * 16 + tl.arange(0, 16), top)
    else:
        total = tl.sum(scaled, 1)
        tl.store(turned + pid * 1024 + i + d * 64, scaled.to(tile.dtype))
        tl.store(sums + pid * 64 + tl.arange(0, 64), total)
    if LEFT:  # last of all: a load that a store comes before is no part of a later pass
        tl.store(product + pid * 2048 + i * 32 + n[None, :], found)
    else:
        tl.store(product + pid * 512 + n[:, None] * 16 + d, found)


@tilewright.jit
def in_a_loop(
    x, scales, w, product, turned, sums, tops, m, k, LEFT: tl.constexpr, CHAIN: tl.constexpr, USE: tl.constexpr
):  # fmt: skip
    """The same product twice, in a loop that has the other uses too."""
    for _ in range(2):
        several_uses(x, scales, w, product, turned, sums, tops, m, k, LEFT, CHAIN, USE)


_TYPES = [("bf16", "fp16"), ("fp32", "bf16"), ("fp16", "fp32"), ("bf16", "bf16")]
_EXTENTS = [(13, COLUMNS), (ROWS, 11), (ROWS, COLUMNS), (50, 3)]
_CASES = in_pairs(FAMILIES, ["positive", "cast", "roots", "scaled"], ["turned", "roots", "scaled"], [True, False])


@pytest.mark.parametrize("kernel", [several_uses, in_a_loop], ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(("family", "chain", "use", "left"), _CASES)
def test_product_and_other_uses(kernel: Any, family: str, chain: str, use: str, left: bool) -> None:
    number = _CASES.index((family, chain, use, left))
    (given, wanted), (m, k) = _TYPES[(number + number // 4) % 4], _EXTENTS[number // 3 % 4]
    rng = np.random.default_rng(number)
    x, scales = rng.integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32), rng.integers(1, 4, COLUMNS).astype(np.float32)
    w = rng.integers(-4, 5, (COLUMNS, WIDTH) if left else (WIDTH, ROWS)).astype(np.float32)
    inside = np.where((np.arange(ROWS)[:, None] < m) & (np.arange(COLUMNS) < k), x, 0)
    scaled, roots = inside * scales, np.abs(inside)
    operand = {"cast": inside, "positive": np.maximum(inside, 0), "roots": roots + 1, "scaled": scaled}[chain]
    expected = (operand @ w if left else w @ operand).ravel()
    stored = [np.asarray(to_memory(v, dtype(t))) for v, t in ((x, given), (scales, given), (w, wanted))]
    pointers = {"x": given, "scales": given, "w": wanted, "turned": given}
    types = {name: f"*{pointers.get(name, 'fp32')}" for name in (*pointers, "product", "sums", "tops")}
    module = built_ir(kernel, types | {"m": "i32", "k": "i32"}, LEFT=left, CHAIN=chain, USE=use)
    product, turned = np.full((3, expected.size), 7, np.float32), np.full((3, x.size), 7, np.float32)
    sums, tops = np.full((3, ROWS), 7, np.float32), np.full((3, COLUMNS), 7, np.float32)
    turned = np.asarray(to_memory(turned, dtype(given)))
    Compiled(module, isa=FAMILIES[family].isa)((3,), *stored, product, turned, sums, tops, m, k)
    for program in range(3):
        np.testing.assert_array_equal(product[program], expected)
        if use != "roots":
            now = (scaled if use == "scaled" else inside).T.ravel()
            np.testing.assert_array_equal(from_memory(turned[program], dtype(given)), now)
        if use != "turned":
            np.testing.assert_array_equal(sums[program], (roots if use == "roots" else scaled).sum(1))
        if use == "roots":
            np.testing.assert_array_equal(tops[program], 2 * roots.max(0))
