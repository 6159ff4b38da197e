"""Branches between blocks become `scf.if`; what the function computes stays the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.errors import UnsupportedError
from tilewright.ops import levels
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.structure import structure_branches

# Two tests; a block behind both that all ways share, one that returns early, and arguments of blocks.
SHARED = """
module {
  tt.func public @k(%out: !tt.ptr<i32>, %a: i32, %b: i32) {
    %zero = arith.constant 0 : i32
    %two = arith.constant 2 : i32
    %p = arith.cmpi sgt, %a, %zero : i32
    cf.cond_br %p, ^then, ^other(%b : i32)
  ^then:
    %q = arith.cmpi sgt, %b, %zero : i32
    %sum = arith.addi %a, %b : i32
    EARLY
  ^other(%x: i32):
    %y = arith.muli %x, %two : i32
    tt.store %out, %y : !tt.ptr<i32>
    cf.br ^end
  ^leave:
    tt.store %out, %sum : !tt.ptr<i32>
    tt.return
  ^end:
    %old = tt.load %out : !tt.ptr<i32>
    %new = arith.addi %old, %two : i32
    tt.store %out, %new : !tt.ptr<i32>
    tt.return
  }
}
"""


def _run(text: str, a: int, b: int) -> int:
    module = parse_module(text)
    assert structure_branches(module)
    levels.verify(module)
    assert "scf.if" in print_module(module)
    out = np.full(1, 7, np.int32)
    memory = Memory()
    Evaluator(module, memory).launch("k", (1,), (memory.register(out), a, b))
    return int(out[0])


@pytest.mark.parametrize(("a", "b"), list(itertools.product((-1, 3), (-5, 4))))
def test_a_shared_end_is_written_once(a: int, b: int) -> None:
    text = SHARED.replace("EARLY", "cf.cond_br %q, ^other(%sum : i32), ^end").replace(
        "  ^leave:\n    tt.store %out, %sum : !tt.ptr<i32>\n    tt.return\n", ""
    )
    wanted = (2 * b if a <= 0 else 2 * (a + b) if b > 0 else 7) + 2
    assert _run(text, a, b) == wanted


@pytest.mark.parametrize(("a", "b"), list(itertools.product((-1, 3), (-5, 4))))
def test_an_early_return_among_shared_blocks(a: int, b: int) -> None:
    text = SHARED.replace("EARLY", "cf.cond_br %q, ^leave, ^end")
    wanted = 2 * b + 2 if a <= 0 else a + b if b > 0 else 9
    assert _run(text, a, b) == wanted


def test_functions_that_return_values() -> None:
    module = parse_module("""
    module {
      tt.func private @f(%a: i32, %p: i1) -> i32 {
        cf.cond_br %p, ^one, ^two
      ^one:
        tt.return %a : i32
      ^two:
        llvm.unreachable
      }
    }""")
    assert structure_branches(module)
    levels.verify(module)
    assert "ub.poison" in print_module(module)


def test_one_block_is_left_alone() -> None:
    assert not structure_branches(parse_module("module { tt.func public @k() { tt.return } }"))


def test_loops_of_branches_are_refused() -> None:
    module = parse_module("""
    module {
      tt.func public @k(%p: i1) {
        cf.br ^again
      ^again:
        cf.cond_br %p, ^again, ^end
      ^end:
        tt.return
      }
    }""")
    with pytest.raises(UnsupportedError, match="the branches of k form a loop"):
        structure_branches(module)
