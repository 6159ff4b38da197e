"""What is known of masks in loops: sums of scalars and ranges of i32 that cannot have wrapped at fewer bits."""

from __future__ import annotations

import pytest

from tilewright.backends.nvidia.plan.index_sets import Sum, unmasked
from tilewright.ir.walk import every
from tilewright.ops.control import ForOp
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module

TEXT = """
tt.func public @k(%row: i32, %short: i16, %n: i32, %p: tensor<8xf32>) {{
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %size = arith.constant 64 : i32
  %tile = tt.splat %size : i32 -> tensor<8xi32>
  %range = tt.make_range {{start = 0 : i32, end = 8 : i32}} : tensor<8xi32>
  %rows = tt.splat %row : i32 -> tensor<8xi32>
  %shorts = tt.splat %short : i16 -> tensor<8xi16>
  %r = scf.for %i = %zero to %n step %one iter_args(%acc = %p) -> (tensor<8xf32>) : i32 {{
    %c = arith.muli %i, %size : i32
    %columns = tt.splat %c : i32 -> tensor<8xi32>
    {mask}
    %s = arith.select %m, %acc, %p : tensor<8xi1>, tensor<8xf32>
    scf.yield %s : tensor<8xf32>
  }}
  tt.return
}}
"""
PLAIN = "%a = arith.addi %rows, %range : tensor<8xi32>\n%m = arith.cmpi sge, %a, %columns : tensor<8xi32>"
TURNED = "%a = arith.addi %range, %rows : tensor<8xi32>\n%m = arith.cmpi sle, %columns, %a : tensor<8xi32>"
LATE = """%a = arith.addi %row, %zero : i32
%b = tt.splat %a : i32 -> tensor<8xi32>
%d = arith.addi %b, %range : tensor<8xi32>
%m = arith.cmpi sge, %d, %columns : tensor<8xi32>"""
NARROW = """%a = arith.addi %shorts, %shorts : tensor<8xi16>
%b = arith.extsi %a : tensor<8xi16> to tensor<8xi32>
%m = arith.cmpi sge, %b, %columns : tensor<8xi32>"""
DIVIDED = "%a = arith.divsi %rows, %tile : tensor<8xi32>\n%m = arith.cmpi sge, %a, %columns : tensor<8xi32>"
PRODUCT = "%a = arith.muli %rows, %rows : tensor<8xi32>\n%m = arith.cmpi sge, %a, %columns : tensor<8xi32>"


def _loop(mask: str) -> ForOp:
    return every(parse_module(TEXT.format(mask=mask)), ForOp)[0]


@pytest.mark.parametrize("mask", [PLAIN, TURNED, LATE], ids=["plain", "turned", "late"])
def test_rows_above_columns(mask: str) -> None:
    loop = _loop(mask)
    found = unmasked(loop)
    row = FuncOp.around(loop).body.block.args[0]
    assert found is not None
    assert found.pairs == ((Sum(((row, 1),), 0, 0, 7), Sum((), 64, 0, 0), 0),)


@pytest.mark.parametrize("mask", [NARROW, DIVIDED, PRODUCT], ids=["narrow", "divided", "product"])
def test_what_is_more_than_a_sum(mask: str) -> None:
    assert unmasked(_loop(mask)) is None
