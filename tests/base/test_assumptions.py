"""Assumptions: told on one page, and plans do without those that are dropped."""

from __future__ import annotations

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.whole import whole
from tests.decisions.harness import Spelling, decisions_of
from tests.decisions.matmul import MATMUL
from tests.meta.sources import ROOT
from tilewright.backends.nvidia.tgir.ops import print_module
from tilewright.base.assumptions import (
    ASSUMPTIONS,
    NO_OVERLAP,
    NO_WRAP,
    POSITIVE_DIVISORS,
    UNORDERED_PROGRAMS,
    holds,
    key,
    without,
)


def _matmul(name: str) -> Spelling:
    return next(spelling for spelling in MATMUL if spelling.name == name)


def test_the_page_tells_them():
    page = (ROOT / "docs/assumptions.md").read_text(encoding="utf-8")
    for a in ASSUMPTIONS:
        assert f"| {a.name} | {a.statement} | {a.gain} | {a.otherwise} |" in page


def test_they_hold_but_where_they_are_dropped():
    assert all(map(holds, ASSUMPTIONS)) and key() == ""
    with without(NO_OVERLAP):
        assert not holds(NO_OVERLAP) and holds(POSITIVE_DIVISORS)
        with without(UNORDERED_PROGRAMS):
            assert key() == "no overlap,unordered programs"
    assert holds(NO_OVERLAP) and key() == ""


def test_what_code_rests_on_cannot_be_dropped():
    with pytest.raises(ValueError, match="no wrap-around"), without(NO_WRAP):
        pass


def _kept(spelling: Spelling) -> list[bool]:
    return [d.taken for d in decisions_of(spelling, "avx512") if d.subject == "kept panels"]


def test_panels_are_not_kept_where_programs_may_meet():
    assert _kept(_matmul("plain")) == [True]
    with without(UNORDERED_PROGRAMS):
        assert _kept(_matmul("plain")) == [False]


@tilewright.jit
def shifted(x_ptr, y_ptr):
    i = tl.arange(0, 256)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i + 1, x)


def _barriers() -> int:
    made = whole(shifted, {"x_ptr": "*fp32!", "y_ptr": "*fp32!"}, {}, 90)
    return print_module(made.module).count("ttg.barrier")


def test_arguments_that_may_overlap_are_kept_in_order():
    assert _barriers() == 0
    with without(NO_OVERLAP):
        assert _barriers() == 1


@tilewright.jit
def two_copies(x_ptr, y_ptr, z_ptr):
    i = tl.arange(0, 256)
    here, beside = tl.load(z_ptr + i), tl.load(z_ptr + 1 + i)
    tl.store(x_ptr + i, here + 1.0)
    tl.store(y_ptr + i, beside + 2.0)


def _fused() -> int:
    spelling = Spelling(two_copies, "*fp32:16, *fp32:16, *fp32:16", {})
    found = decisions_of(spelling, "avx512")
    return sum(d.taken and d.text.startswith("with a store") for d in found if d.subject == "loop fusion")


def test_stores_to_arguments_that_may_overlap_share_no_loop():
    assert _fused() == 1
    with without(NO_OVERLAP):
        assert _fused() == 0


@tilewright.jit
def grouped(x_ptr, y_ptr, n, columns):
    i = (tl.program_id(0) // n * 64 + tl.arange(0, 64)) % columns
    tl.store(y_ptr + tl.arange(0, 64), tl.load(x_ptr + i))


def _wide_loads() -> int:
    types = {"x_ptr": "*fp16!", "y_ptr": "*fp16!", "n": "i32", "columns": "i32!"}
    return whole(grouped, types, {}, 90, num_warps=1).lowered().llvm.count("ld.global.b32")


def test_divisors_of_unknown_sign_cost_wide_loads():
    assert _wide_loads() == 1
    with without(POSITIVE_DIVISORS):
        assert _wide_loads() == 0
