"""Sums of repeated tiles' products are products of matrices, whichever dim is summed, and no others are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir, tile_ir
from tests.backends.nvidia.whole import whole
from tilewright.ops.dot import DotOp
from tilewright.passes.sums_to_dots import raise_sums_to_dots

TYPES = {"x": "*fp32", "y": "*fp32", "out": "*fp32"}


@tilewright.jit
def summed(x, y, out, X: tl.constexpr, Y: tl.constexpr, AXIS: tl.constexpr):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    p, q = tl.load(x + i * 16 + j), tl.load(y + i * 16 + j)
    tl.store(out + i * 16 + j, tl.sum(tl.expand_dims(p, X) * tl.expand_dims(q, Y), AXIS))


def products(x: int, y: int, axis: int, least: int = 16) -> int:
    module = tile_ir(summed, TYPES, X=x, Y=y, AXIS=axis)
    changed = raise_sums_to_dots(module, least)
    count = sum(isinstance(op, DotOp) for op in module.walk())
    assert changed == bool(count)
    return count


@pytest.mark.parametrize(("x", "y", "axis"), list(itertools.permutations(range(3))))
def test_results(x: int, y: int, axis: int) -> None:
    assert products(x, y, axis) == 1
    a, b = np.random.default_rng(1).standard_normal((2, 16, 16)).astype(np.float32)
    out = np.zeros((16, 16), np.float32)
    whole(summed, TYPES, {"X": x, "Y": y, "AXIS": axis}, 90).run((1,), a, b, out)
    want = (np.expand_dims(a, x) * np.expand_dims(b, y)).sum(axis)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    on_the_cpu = Compiled(built_ir(summed, TYPES, X=x, Y=y, AXIS=axis))
    assert "dot" in on_the_cpu.program.llvm
    out[...] = 0
    on_the_cpu((1,), a, b, out)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("x", "y", "axis"), [(0, 2, 0), (2, 0, 0)])
def test_a_factor_that_repeats_along_the_sum_is_no_matrix(x: int, y: int, axis: int) -> None:
    assert products(x, y, axis) == 0


def test_small_ones_stay_sums() -> None:
    assert products(2, 0, 1) == 1 and products(2, 0, 1, least=17) == 0
