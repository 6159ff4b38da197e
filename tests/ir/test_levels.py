"""The level spec of tile IR: legal modules pass, and each kind of mistake is named with its operation and place."""

from __future__ import annotations

import pytest
from xdsl.dialects.test import TestOp as StrangeOp

from tilewright.base.errors import VerificationError
from tilewright.ops.levels import verify
from tilewright.ops.text import parse_module


def module_of(body: str, arguments: str = "%x: tensor<8xf32>, %i: tensor<8xi32>, %p: tensor<8x!tt.ptr<f32>>") -> str:
    return f"module {{ tt.func public @k({arguments}) {{\n{body}\ntt.return\n}} }}"


def test_a_legal_module_passes() -> None:
    verify(parse_module(module_of("%y = arith.addf %x, %x : tensor<8xf32>\ntt.store %p, %y : tensor<8x!tt.ptr<f32>>")))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y = arith.addf %i, %i : tensor<8xi32>", "arith.addf takes floating-point operands"),
        ("%y = tt.reshape %x : tensor<8xf32> -> tensor<16xf32>", "cannot change total number of elements"),
        ("%y = tt.trans %x {order = array<i32: 1>} : tensor<8xf32> -> tensor<8xf32>", "permutation [1]"),
        ("%y = tt.join %x, %x : tensor<8xf32> -> tensor<8x4xf32>", "follows from its operands"),
        ("%y = tt.expand_dims %x {axis = 0 : i32} : tensor<8xf32> -> tensor<8x1xf32>", "follows from its operands"),
        ("%y = tt.gather %x[%x] {axis = 0 : i32} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>", "be integers"),
        ("%y = tt.splat %z : f32 -> tensor<2097152xf32>", "does not have between 1 and 1048576"),
    ],
)
def test_mistakes_are_named(body: str, message: str) -> None:
    constant = "%z = arith.constant 1.000000e+00 : f32\n"
    with pytest.raises(VerificationError) as error:
        verify(parse_module(module_of(constant + body)))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "%r = scf.for %i = %a to %a step %a iter_args(%c = %a) -> (i32)  : i32 {\n scf.yield %f : f32\n}",
            "hands over types that differ",
        ),
        ("%r = scf.if %b -> (i32) {\n scf.yield %a : i32\n} else {\n scf.yield %f : f32\n}", "hands over types"),
        ("%r = scf.if %b -> (i32) {\n scf.yield %a : i32\n}", "no else body"),
        (
            "%r = scf.while (%c = %a) : (i32) -> f32 {\n scf.condition(%b) %c : i32\n} do {\n^bb0(%d: f32):\n"
            " scf.yield %a : i32\n}",
            "scf.condition must end the first body",
        ),
    ],
)
def test_bodies_must_fit_their_results(body: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(parse_module(module_of(body, "%a: i32, %b: i1, %f: f32")))


def test_returned_types_must_be_those_of_the_function() -> None:
    text = "module { tt.func private @f(%a: i32) -> f32 {\ntt.return %a : i32\n} }"
    with pytest.raises(VerificationError, match="returned types differ"):
        verify(parse_module(text))


def test_foreign_operations_are_not_legal() -> None:
    module = parse_module(module_of(""))
    (func,) = module.ops
    func.body.block.insert_op_before(StrangeOp(), func.body.block.last_op)
    with pytest.raises(VerificationError, match=r"test.op is not legal at this level"):
        verify(module)


def test_the_place_in_the_source_is_shown() -> None:
    text = module_of('%y = tt.trans %x {order = array<i32: 1>} : tensor<8xf32> -> tensor<8xf32> loc("kern.py":12:3)')
    with pytest.raises(VerificationError, match=r'(.|\n)*tt\.trans(.|\n)*File "kern.py", line 12'):
        verify(parse_module(text))
