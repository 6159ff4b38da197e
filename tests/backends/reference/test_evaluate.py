"""The reference evaluator: control flow, calls, memory checks."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.errors import InterpreterError
from tilewright.ops.text import parse_module


def run(body: str, array: np.ndarray, n: int, grid: tuple[int, ...] = (1,)) -> np.ndarray:
    module = parse_module(f"module {{ tt.func public @k(%p: !tt.ptr<i32>, %n: i32) {{\n{body}\ntt.return\n}} }}")
    memory = Memory()
    Evaluator(module, memory).launch("k", grid, [memory.register(array, "p"), n])
    return array


LOOP = """
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %s = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0) -> (i32)  : i32 {
    %odd = arith.andi %i, %c1 : i32
    %c = arith.cmpi ne, %odd, %c0 : i32
    %d = scf.if %c -> (i32) {
      scf.yield %i : i32
    } else {
      scf.yield %c0 : i32
    }
    %b = arith.addi %a, %d : i32
    scf.yield %b : i32
  }
  tt.store %p, %s : !tt.ptr<i32>"""


def test_loops_and_branches() -> None:
    assert run(LOOP, np.zeros(1, np.int32), 10)[0] == 1 + 3 + 5 + 7 + 9


def test_while_counts_until_its_condition_fails() -> None:
    body = """
      %c1 = arith.constant 1 : i32
      %c0 = arith.constant 0 : i32
      %r:2 = scf.while (%x = %n, %k = %c0) : (i32, i32) -> (i32, i32) {
        %c = arith.cmpi sgt, %x, %c1 : i32
        scf.condition(%c) %x, %k : i32, i32
      } do {
      ^bb0(%x: i32, %k: i32):
        %h = arith.shrsi %x, %c1 : i32
        %k2 = arith.addi %k, %c1 : i32
        scf.yield %h, %k2 : i32, i32
      }
      tt.store %p, %r#1 : !tt.ptr<i32>"""
    assert run(body, np.zeros(1, np.int32), 1000)[0] == 9


def test_programs_of_a_grid_see_their_index() -> None:
    body = """
      %x = tt.get_program_id x : i32
      %y = tt.get_program_id y : i32
      %nx = tt.get_num_programs x : i32
      %row = arith.muli %y, %nx : i32
      %at = arith.addi %row, %x : i32
      %q = tt.addptr %p, %at : !tt.ptr<i32>, i32
      tt.store %q, %at : !tt.ptr<i32>"""
    assert run(body, np.zeros(6, np.int32), 0, (3, 2)).tolist() == list(range(6))


def test_an_access_outside_the_arguments_names_the_line() -> None:
    body = """
      %q = tt.addptr %p, %n : !tt.ptr<i32>, i32
      %v = tt.load %q : !tt.ptr<i32> loc("kernel.py":7:3)"""
    with pytest.raises(InterpreterError, match=r"kernel.py.*line 7(.|\n)*program \(0, 0, 0\): p\[4\] is past its 4"):
        run(body, np.zeros(4, np.int32), 4)


def test_masked_lanes_touch_no_memory() -> None:
    body = """
      %r = tt.make_range {start = 0 : i32, end = 8 : i32} : tensor<8xi32>
      %ps = tt.splat %p : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
      %q = tt.addptr %ps, %r : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
      %ns = tt.splat %n : i32 -> tensor<8xi32>
      %m = arith.cmpi slt, %r, %ns : tensor<8xi32>
      tt.store %q, %r, %m : tensor<8x!tt.ptr<i32>>"""
    assert run(body, np.full(3, -1, np.int32), 3).tolist() == [0, 1, 2]
