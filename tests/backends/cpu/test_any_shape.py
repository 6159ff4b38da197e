"""Tiles whose extents are not powers of two: reshapes by way of scratch, and what may stand around them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.backends.cpu.against import check
from tilewright.backends.cpu.emit.lower import plan_module
from tilewright.backends.llvm.features import host
from tilewright.ops.text import parse_module

Shape = tuple[int, ...]


def _tile(shape: Shape, elem: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{elem}>"


def _reshape(result: str, value: str, source: Shape, target: Shape, elem: str = "f32") -> str:
    return f"%{result} = tt.reshape %{value} : {_tile(source, elem)} -> {_tile(target, elem)}\n"


def _kernel(n: int, body: str, m: int = 0) -> str:
    """`q[0:m] = %y`, where `body` makes %y of %x = p[0:n], both of one dimension; %ri counts the elements of %x."""
    m = m or n
    return f"""
module {{
  tt.func public @k(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>) attributes {{noinline = false}} {{
    %ri = tt.make_range {{end = {n} : i32, start = 0 : i32}} : {_tile((n,), "i32")}
    %ps = tt.splat %p : !tt.ptr<f32> -> {_tile((n,), "!tt.ptr<f32>")}
    %pp = tt.addptr %ps, %ri : {_tile((n,), "!tt.ptr<f32>")}, {_tile((n,), "i32")}
    %x = tt.load %pp : {_tile((n,), "!tt.ptr<f32>")}
    {body}
    %ro = tt.make_range {{end = {m} : i32, start = 0 : i32}} : {_tile((m,), "i32")}
    %qs = tt.splat %q : !tt.ptr<f32> -> {_tile((m,), "!tt.ptr<f32>")}
    %qp = tt.addptr %qs, %ro : {_tile((m,), "!tt.ptr<f32>")}, {_tile((m,), "i32")}
    tt.store %qp, %y : {_tile((m,), "!tt.ptr<f32>")}
    tt.return
  }}
}}
"""


def _run(text: str, n: int, m: int = 0) -> None:
    check(text, (1,), np.arange(n, dtype=np.float32) + 1, np.zeros(m or n, np.float32))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((32, 3), (96,)),
        ((96,), (32, 3)),
        ((6, 4), (8, 3)),
        ((3, 32), (96,)),
        ((5, 4, 7), (5, 2, 14)),
        ((4, 3, 8), (12, 8)),
        ((1, 6, 5), (30, 1)),
        ((7, 5), (5, 7)),
    ],
)
def test_reshapes(source: Shape, target: Shape) -> None:
    """Between transpositions, so that no two reshapes meet."""
    n = math.prod(source)
    order = ", ".join(map(str, reversed(range(len(source)))))
    back = ", ".join(map(str, reversed(range(len(target)))))
    turned = target[::-1]
    body = (
        _reshape("a", "x", (n,), source[::-1])
        + f"%b = tt.trans %a {{order = array<i32: {order}>}} : {_tile(source[::-1])} -> {_tile(source)}\n"
        + _reshape("c", "b", source, target)
        + f"%d = arith.addf %c, %c : {_tile(target)}\n"
        + f"%e = tt.trans %d {{order = array<i32: {back}>}} : {_tile(target)} -> {_tile(turned)}\n"
        + _reshape("y", "e", turned, (n,))
    )
    _run(_kernel(n, body), n)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (6, 5), (4, 3)])
def test_cat(shape: Shape) -> None:
    n = math.prod(shape)
    double = (2 * shape[0], *shape[1:])
    body = (
        _reshape("a", "x", (n,), shape)
        + f"%b = arith.mulf %a, %a : {_tile(shape)}\n"
        + f"%c = tt.cat %a, %b : {_tile(shape)} -> {_tile(double)}\n"
        + _reshape("y", "c", double, (2 * n,))
    )
    _run(_kernel(n, body, 2 * n), n, 2 * n)


def test_a_load_before_a_store_is_reshaped_after_it() -> None:
    body = f"""
    %z = arith.constant dense<0.0> : {_tile((24,))}
    tt.store %pp, %z : {_tile((24,), "!tt.ptr<f32>")}
    """ + (
        _reshape("a", "x", (24,), (6, 4))
        + f"%b = tt.trans %a {{order = array<i32: 1, 0>}} : {_tile((6, 4))} -> {_tile((4, 6))}\n"
        + _reshape("y", "b", (4, 6), (24,))
    )
    _run(_kernel(24, body), 24)


def test_addresses_and_masks() -> None:
    """Pointers, offsets and masks that were reshaped; the array ends where the mask does."""
    body = (
        _reshape("i", "ri", (24,), (8, 3), "i32")
        + f"""
    %limit = arith.constant dense<20> : {_tile((8, 3), "i32")}
    %m = arith.cmpi slt, %i, %limit : {_tile((8, 3), "i32")}
    %zero = arith.constant dense<0.0> : {_tile((6, 4))}
    """
        + _reshape("mm", "m", (8, 3), (6, 4), "i1")
        + _reshape("a", "pp", (24,), (6, 4), "!tt.ptr<f32>")
        + f"%b = tt.load %a, %mm, %zero : {_tile((6, 4), '!tt.ptr<f32>')}\n"
        + _reshape("y", "b", (6, 4), (24,))
    )
    _run(_kernel(24, body), 24)


def test_a_loop_that_carries_a_reshaped_tile() -> None:
    tile = _tile((6, 4))
    body = (
        _reshape("first", "x", (24,), (6, 4))
        + f"""
    %lo = arith.constant 0 : i32
    %hi = arith.constant 3 : i32
    %one = arith.constant 1 : i32
    %last = scf.for %k = %lo to %hi step %one iter_args(%t = %first) -> ({tile}) : i32 {{
      %u = tt.trans %t {{order = array<i32: 1, 0>}} : {tile} -> {_tile((4, 6))}
      {_reshape("v", "u", (4, 6), (6, 4)).strip()}
      %w = arith.addf %v, %t : {tile}
      {_reshape("s", "w", (6, 4), (8, 3)).strip()}
      {_reshape("s2", "s", (8, 3), (6, 4)).strip()}
      scf.yield %s2 : {tile}
    }}
    """
        + _reshape("y", "last", (6, 4), (24,))
    )
    _run(_kernel(24, body), 24)


def _kept(body: str) -> list[Shape]:
    """Shapes of the tiles that the plan of a kernel over 96 elements keeps in scratch."""
    plan = plan_module(parse_module(_kernel(96, body)), host()).kernel
    return [buffer.shape for buffer in plan.buffers]


def test_only_reshapes_that_no_index_expresses_use_scratch() -> None:
    there_and_back = "%b = arith.addf %a, %a : {0}\n"
    bits = _reshape("a", "x", (96,), (3, 32)) + there_and_back.format(_tile((3, 32)))
    assert _kept(bits + _reshape("y", "b", (3, 32), (96,))) == []
    mixed = _reshape("a", "x", (96,), (32, 3)) + there_and_back.format(_tile((32, 3)))
    assert _kept(mixed + _reshape("y", "b", (32, 3), (96,))) == [(32, 3), (96,)]


def test_a_reshape_that_nobody_uses_costs_nothing() -> None:
    unused = _reshape("a", "x", (96,), (32, 3))
    assert _kept(unused + f"%y = arith.addf %x, %x : {_tile((96,))}") == []
