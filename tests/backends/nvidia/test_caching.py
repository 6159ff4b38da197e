"""What a load or store asks of the caches, by instructions and by the copy engine."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.whole import whole
from tilewright.compiler import ASTSource

HINT = "L2::cache_hint"


@tilewright.jit
def moved(x, y, POLICY: tl.constexpr, MODIFIER: tl.constexpr):
    i = tl.arange(0, 512)
    found = tl.load(x + i, i < 500, cache_modifier=MODIFIER, eviction_policy=POLICY)
    tl.store(y + i, found, eviction_policy=POLICY)


@tilewright.jit
def product(a, b, c, n, k, POLICY: tl.constexpr, ROWS: tl.constexpr, WS: tl.constexpr):
    i, j, l = tl.arange(0, ROWS), tl.program_id(0) * 64 + tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((ROWS, 64), tl.float32)
    for at in tl.range(0, k, 64, warp_specialize=WS):
        left = tl.load(a + i[:, None] * k + (at + l)[None, :])
        right = tl.load(b + (at + l)[:, None] * n + j[None, :], eviction_policy=POLICY)
        acc = tl.dot(left, right, acc)
    tl.store(c + i[:, None] * n + j[None, :], acc)


def _moved(policy: str, modifier: str = "", target: str = "cuda:90") -> str:
    source = ASTSource(
        moved,
        {"x": "*fp32", "y": "*fp32"},
        {"POLICY": policy, "MODIFIER": modifier},
        {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
    )
    return str(tilewright.compile(source, target).asm["ptx"])


def _product(policy: str, rows: int, *, special: bool = False) -> str:
    types = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "n": "i32", "k": "i32"}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(5)}
    source = ASTSource(product, types, {"POLICY": policy, "ROWS": rows, "WS": special}, aligned)
    options = {"num_warps": 4, "num_stages": 4, "tensor_maps": True}
    return str(tilewright.compile(source, "cuda:90", options=options).asm["ptx"])


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:120"])
@pytest.mark.parametrize("policy", ["evict_first", "evict_last"])
def test_a_priority_is_one_of_both_caches(policy: str, target: str) -> None:
    ptx = _moved(policy, target=target)
    assert f"createpolicy.fractional.L2::{policy}.b64" in ptx
    for access in ("ld", "st"):
        assert re.search(rf"{access}\.global\.L1::{policy}\.{HINT}\.v4\.b32 [^;]*, %rd\d+;", ptx)


def test_no_priority_is_no_hint() -> None:
    assert HINT not in _moved("evict_normal")


@pytest.mark.parametrize("kind", ["fp32", "i8"])
def test_hints_change_no_result(kind: str) -> None:
    x = np.arange(512).astype({"fp32": np.float32, "i8": np.int8}[kind])
    for policy in ("", "evict_first"):
        y = np.full(512, 7, x.dtype)
        whole(moved, {"x": f"*{kind}!", "y": f"*{kind}!"}, {"POLICY": policy, "MODIFIER": ""}, 90).run((1,), x, y)
        assert (y[:500] == x[:500]).all()


def test_an_operator_wins() -> None:
    ptx = _moved("evict_first", ".cg")
    assert "ld.global.cg.v4" in ptx and "ld.global.L1" not in ptx


@pytest.mark.parametrize("special", [False, True], ids=["by a thread", "by a role"])
def test_the_copy_engine_is_asked_what_the_load_asks(special: bool) -> None:
    copy = r"cp\.async\.bulk\.tensor\.2d\S*complete_tx::bytes"
    ptx = _product("evict_first", 64, special=special)
    assert re.search(rf"{copy}\.{HINT}", ptx)  # of b
    assert re.search(rf"{copy} ", ptx)  # of a
    assert HINT not in _product("", 64, special=special)


def test_copies_by_threads_are_asked_nothing() -> None:
    """On Hopper that would be an illegal instruction."""
    ptx = _product("evict_first", 16)
    assert "cp.async.cg.shared.global" in ptx and HINT not in ptx
