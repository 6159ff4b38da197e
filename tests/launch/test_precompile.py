"""Declared variants are those that launches look for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import tilewright
import tilewright.language as tl
from tests.compile.test_bundle import aligned
from tilewright.base.errors import ArgumentError, NotCompiledError


def make(**options):
    @tilewright.jit(**options)
    def fill(out_ptr, n, value=7, BLOCK: tl.constexpr = 64, flag: tl.constexpr = None):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, value, mask=offsets < n)

    return fill


@pytest.fixture(autouse=True)
def _only_what_is_declared(monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cache, "disabled", True)
    monkeypatch.setattr(tilewright.knobs.runtime, "no_jit", True)


def test_launches_find_what_was_declared():
    fill = make()
    kernels = fill.precompile({"out_ptr": "*fp32:16", "n": ["i32", "i32:16", 1], "BLOCK": [32, 64]})
    assert len(kernels) == 6 == len(fill.variants())
    out = aligned(64)
    for n in (1, 5, 16):
        for block in (32, 64):
            out[:] = 0
            assert fill[(1,)](out, n, BLOCK=block) in kernels
            assert (out[:n] == 7).all() and (out[n:] == 0).all()
    with pytest.raises(NotCompiledError, match="value was i32, is fp32"):
        fill[(1,)](out, 5, 2.5)
    with pytest.raises(NotCompiledError, match="divisible by 16"):
        fill[(1,)](out[1:], 5)


@pytest.mark.parametrize(
    "options", [{"do_not_specialize": ["n", "out_ptr"]}, {"do_not_specialize_on_alignment": ["n", "out_ptr"]}]
)
def test_parameters_that_are_not_specialised(options):
    fill = make(**options)
    fill.precompile({"out_ptr": "*fp32:16", "n": "i32:16"})
    out = aligned(64)
    fill[(1,)](out, 32)
    fill[(1,)](out[1:], 33)
    assert (out[:34] == 7).all()


def test_annotated_parameters():
    @tilewright.jit
    def copy(x_ptr: tl.const, out_ptr, n: tl.int64, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, offsets < n), mask=offsets < n)

    copy.precompile({"x_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n": "i64", "BLOCK": 32})
    x, out = aligned(32), aligned(32)
    x[:] = 4
    copy[(1,)](x, out, 5, BLOCK=32)
    assert (out[:5] == 4).all()


def test_options_and_targets_are_declared_too():
    fill = make()
    kernels = fill.precompile({"out_ptr": "*fp32", "n": "i32"}, target="cuda:90", num_warps=[2, 4])
    assert [kernel.metadata.num_warps for kernel in kernels] == [2, 4]
    assert {str(kernel.target) for kernel in kernels} == {"cuda:90"}


def test_declared_variants_compile_in_an_executor():
    fill = make()
    with ThreadPoolExecutor(2) as pool, tilewright.AsyncCompileMode(pool):
        futures = fill.precompile({"out_ptr": "*fp32:16", "n": ["i32", "i32:16"]})
    assert [future.result().name for future in futures] == ["fill", "fill"] and len(fill.variants()) == 2


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ({"out_ptr": "*fp32", "m": "i32"}, "no parameter m"),
        ({"out_ptr": "*fp32"}, "`n` has neither"),
        ({"out_ptr": "*fp32", "n": 5}, "5 for `n`"),
        ({"out_ptr": "float*", "n": "i32"}, "'float\\*' for `out_ptr`"),
        ({"out_ptr": "*fp32:8", "n": "i32"}, "'\\*fp32:8'"),
    ],
)
def test_declarations_that_fit_nothing(signature, said):
    with pytest.raises(ArgumentError, match=said):
        make().precompile(signature)
