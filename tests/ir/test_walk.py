"""Walking nested IR visits what xDSL's walk visits, in the same order."""

from __future__ import annotations

import ast

from tilewright.frontend.names import references
from tilewright.ir.walk import operations, walk
from tilewright.ops.text import parse_module

TEXT = """
module {
  tt.func public @k(%p: !tt.ptr<i32>, %c: i1, %x: i32) {
    %y = arith.addi %x, %x : i32
    scf.if %c {
      scf.if %c {
        tt.store %p, %y : !tt.ptr<i32>
      } else {
        tt.store %p, %x : !tt.ptr<i32>
      }
      tt.store %p, %x : !tt.ptr<i32>
    }
    tt.return
  }
}
"""


def test_order() -> None:
    module = parse_module(TEXT)
    assert list(walk(module)) == list(module.walk())
    assert operations(module.body.block.first_op.regions[0].block) == list(
        module.body.block.first_op.regions[0].block.ops
    )
    function = module.body.block.first_op
    assert function is not None
    region = function.regions[0]
    assert list(walk(region)) == list(region.walk()) and list(walk(region.block)) == list(region.block.walk())


def test_long_chains_of_elif_are_read() -> None:
    chain = "".join(f"    elif x == {k}:\n        y = a{k}\n" for k in range(900))
    tree = ast.parse(f"def f(x):\n    if x < 0:\n        y = b\n{chain}").body[0]
    assert isinstance(tree, ast.FunctionDef)
    assert len(references(tree)) == 901
