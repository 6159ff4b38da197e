"""Numbers that are known when a kernel is compiled."""

from __future__ import annotations

import math

import pytest
from xdsl.ir import SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ops.text import parse_module


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("arith.constant 7 : i32", 7),
        ("arith.constant true", True),
        ("arith.constant dense<-1> : tensor<4xi32>", -1),
        ("arith.constant dense<[5, 5]> : tensor<2xi32>", 5),
        ("arith.constant dense<[5, 6]> : tensor<2xi32>", None),
        ("arith.constant dense<[0.0, -0.0]> : tensor<2xf32>", None),  # equal, but not the same
        ("tt.get_program_id x : i32", None),
    ],
)
def test_a_number_is_known(text, number):
    value = _last_value(f"%0 = {text}")
    assert constant_of(value) == number


def test_a_zero_keeps_its_sign():
    found = constant_of(_last_value("%0 = arith.constant dense<[-0.0, -0.0]> : tensor<2xf32>"))
    assert found == 0 and math.copysign(1, found) == -1


def test_a_splat_is_its_scalar():
    assert constant_of(_last_value("%0 = arith.constant 3 : i32", "%1 = tt.splat %0 : i32 -> tensor<8xi32>")) == 3


def _last_value(*lines: str) -> SSAValue:
    """What the last line of a kernel defines."""
    body = "\n".join(lines)
    module = parse_module(f"module {{ tt.func public @k() {{\n{body}\ntt.return\n}} }}")
    return [op for op in module.walk() if op.results][-1].results[0]
