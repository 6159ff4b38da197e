"""Variants of a kernel: what was compiled, why, and the mode in which nothing is."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import NotCompiledError
from tilewright.compile.specialize import Specialization


def fill(out_ptr, value, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, value, mask=offsets < n)


def test_each_variant_says_what_differs(capfd):
    kernel, out = tilewright.jit(fill), np.zeros(64, np.int32)
    tilewright.knobs.runtime.explain_variants = True
    try:
        kernel[(1,)](out, 7, 5, BLOCK=4)
        kernel[(1,)](out, 7, 5, BLOCK=4)
        kernel[(1,)](out, 7, 32, BLOCK=4)
        kernel[(1,)](out, 7, 32, BLOCK=8)
        kernel[(1,)](out, 2.5, 7, BLOCK=8, num_warps=2)
    finally:
        tilewright.knobs.runtime.explain_variants = False
    reasons = [variant.reason for variant in kernel.variants()]
    assert capfd.readouterr().err.splitlines() == reasons
    assert reasons[0].startswith("fill: first variant, out_ptr: *i32, divisible by 16, value: i32, n: i32")
    assert reasons[1] == "fill: n was i32, is i32, divisible by 16"
    assert reasons[2] == "fill: BLOCK was constant 4, is constant 8"
    assert "value was i32, is fp32" in reasons[3] and len(reasons) == 4
    assert [variant.kernel.name for variant in kernel.variants()] == ["fill"] * 4
    kernel.clear()
    assert kernel.variants() == []


def test_what_is_forgotten_is_not_kept():
    def living() -> int:
        gc.collect()
        return sum(isinstance(found, Specialization) for found in gc.get_objects())

    kernel, out = tilewright.jit(fill), np.zeros(64, np.int32)
    kernel[(1,)](out, 7, 5, BLOCK=4)
    kernel.clear()
    before = living()
    for block in (8, 16, 32, 64):
        kernel[(1,)](out, 7, 5, BLOCK=block)
    kernel.clear()
    assert living() <= before


def test_without_a_compiler_a_launch_says_what_it_wanted():
    kernel, out = tilewright.jit(fill), np.zeros(64, np.int32)
    tilewright.knobs.cache.disabled = True  # what other tests left on disk would be taken
    kernel.warmup(out, 7, 5, BLOCK=4, grid=(1,))
    tilewright.knobs.runtime.no_jit = True
    try:
        kernel[(1,)](out, 7, 5, BLOCK=4)
        with pytest.raises(NotCompiledError, match="n was i32, is i32, divisible by 16; nothing is compiled"):
            kernel[(1,)](out, 7, 32, BLOCK=4)
        kernel.warmup(out, 7, 32, BLOCK=4, grid=(1,))
        kernel[(1,)](out, 7, 32, BLOCK=4)
    finally:
        tilewright.knobs.runtime.no_jit = tilewright.knobs.cache.disabled = False
    assert (out[:4] == 7).all()
