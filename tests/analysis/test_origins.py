"""Addresses followed to the arguments from which they come."""

from __future__ import annotations

import pytest

from tilewright.analysis.origins import may_meet, origins_of
from tilewright.base.assumptions import NO_OVERLAP, without
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module

_F32 = "!tt.ptr<f32>"
_TILE = "tensor<4x!tt.ptr<f32>>"
BODIES = {
    "an offset": (f"%p = tt.addptr %x, %n : {_F32}, i32", {"x"}),
    "a tile": (f"%s = tt.splat %x : {_F32} -> {_TILE}\n%p = tt.addptr %s, %i : {_TILE}, tensor<4xi32>", {"x"}),
    "a selection": (f"%p = arith.select %c, %x, %y : {_F32}", {"x", "y"}),
    "a branch": (
        f"%p = scf.if %c -> ({_F32}) {{\nscf.yield %x : {_F32}\n}} else {{\nscf.yield %y : {_F32}\n}}",
        {"x", "y"},
    ),
    "a loop": (
        f"%p = scf.for %k = %n to %n step %n iter_args(%q = %x) -> ({_F32}) : i32 {{\n"
        f"%r = tt.addptr %q, %k : {_F32}, i32\nscf.yield %r : {_F32}\n}}",
        {"x"},
    ),
    "memory": ("%a = tt.load %t : !tt.ptr<i64>\n%p = tt.int_to_ptr %a : i64 -> !tt.ptr<f32>", {"t"}),
    "a number": (f"%w = arith.extsi %n : i32 to i64\n%p = tt.int_to_ptr %w : i64 -> {_F32}", {"n"}),
    "a constant": (f"%w = arith.constant 4096 : i64\n%p = tt.int_to_ptr %w : i64 -> {_F32}", None),
}


def _function(body: str, visibility: str = "public") -> FuncOp:
    module = parse_module(
        f"module {{ tt.func {visibility} @k(%x: {_F32}, %y: {_F32}, %t: !tt.ptr<i64>, %n: i32, %c: i1, "
        f"%i: tensor<4xi32>) {{\n{body}\ntt.return\n}} }}"
    )
    return next(op for op in module.ops if isinstance(op, FuncOp))


@pytest.mark.parametrize("case", BODIES)
def test_an_address_is_followed_to_its_arguments(case):
    body, names = BODIES[case]
    function = _function(body)
    *_, last = function.body.block.ops
    found = origins_of(last.prev_op.results[0])
    arguments = dict(zip("xytnci", function.body.block.args, strict=True))
    assert found == (None if names is None else {arguments[name] for name in names})


def test_arguments_are_taken_not_to_overlap():
    x, y, *_ = _function("").body.block.args
    assert may_meet(x, x) and not may_meet(x, y)
    with without(NO_OVERLAP):
        assert may_meet(x, y)


def test_a_function_may_be_given_one_array_twice():
    x, y, *_ = _function("", "private").body.block.args
    assert origins_of(x) is None and may_meet(x, y)
