"""Simplifications of the shape operations keep the value: what a fold answers equals the operation's result."""

from __future__ import annotations

import pytest
from xdsl.ir import Operation

from tilewright.ops.spec import spec_of
from tilewright.ops.text import parse_module


def last(body: str) -> list[Operation]:
    text = f"module {{ tt.func public @k(%x: tensor<4x8xf32>, %y: tensor<4x4xf32>) {{\n{body}\ntt.return\n}} }}"
    (func,) = parse_module(text).ops
    return list(func.regions[0].block.ops)[:-1]


@pytest.mark.parametrize(
    "body",
    [
        "%a = tt.reshape %x : tensor<4x8xf32> -> tensor<4x8xf32>",
        "%a = tt.reshape %x : tensor<4x8xf32> -> tensor<32xf32>\n"
        "%b = tt.reshape %a : tensor<32xf32> -> tensor<4x8xf32>",
        "%a = tt.trans %x {order = array<i32: 0, 1>} : tensor<4x8xf32> -> tensor<4x8xf32>",
        "%a = tt.trans %x {order = array<i32: 1, 0>} : tensor<4x8xf32> -> tensor<8x4xf32>\n"
        "%b = tt.trans %a {order = array<i32: 1, 0>} : tensor<8x4xf32> -> tensor<4x8xf32>",
    ],
)
def test_what_undoes_itself_gives_the_argument(body: str) -> None:
    op = last(body)[-1]
    fold = spec_of(op).fold
    assert fold is not None
    assert fold(op, [None]) is op.parent_block().args[0]


@pytest.mark.parametrize(
    "body",
    [
        "%a = tt.reshape %x : tensor<4x8xf32> -> tensor<8x4xf32>",
        "%a = tt.trans %y {order = array<i32: 1, 0>} : tensor<4x4xf32> -> tensor<4x4xf32>",
        "%s = tt.reshape %x : tensor<4x8xf32> -> tensor<2x4x4xf32>\n"
        "%a = tt.trans %s {order = array<i32: 2, 0, 1>} : tensor<2x4x4xf32> -> tensor<4x2x4xf32>\n"
        "%b = tt.trans %a {order = array<i32: 2, 0, 1>} : tensor<4x2x4xf32> -> tensor<4x4x2xf32>",
        "%a = tt.join %y, %y : tensor<4x4xf32> -> tensor<4x4x2xf32>",
    ],
)
def test_what_moves_elements_stays(body: str) -> None:
    op = last(body)[-1]
    fold = spec_of(op).fold
    assert fold is not None
    assert fold(op, [None] * len(op.operands)) is None


@pytest.mark.parametrize(
    ("known", "found"), [((2.0, 2.0), 2.0), ((2.0, 3.0), None), ((0.0, -0.0), None), ((1, None), None)]
)
def test_pairs_of_one_number(known: tuple[float | None, ...], found: float | None) -> None:
    op = last("%a = tt.join %y, %y : tensor<4x4xf32> -> tensor<4x4x2xf32>")[-1]
    assert spec_of(op).fold(op, known) == found
