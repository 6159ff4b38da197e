"""Branches out of a kernel, calls that stay calls, loops that carry tiles, printing and assertions."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.backends.cpu.against import check
from tests.backends.cpu.harness import Compiled

EARLY_RETURN = """
module {
  tt.func public @early(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %pid = tt.get_program_id x : i32
    %size = arith.constant 64 : i32
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %start = arith.muli %pid, %size : i32
    %starts = tt.splat %start : i32 -> tensor<64xi32>
    %o = arith.addi %starts, %r : tensor<64xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %pp = tt.addptr %ps, %o : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %x = tt.load %pp : tensor<64x!tt.ptr<f32>>
    %late = arith.cmpi sge, %pid, %n : i32
    cf.cond_br %late, ^out, ^go(%pid : i32)
  ^out:
    tt.return
  ^go(%k: i32):
    %kf = arith.sitofp %k : i32 to f32
    %ks = tt.splat %kf : f32 -> tensor<64xf32>
    %y = arith.addf %x, %ks : tensor<64xf32>
    %qs = tt.splat %q : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %qp = tt.addptr %qs, %o : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    tt.store %qp, %y : tensor<64x!tt.ptr<f32>>
    tt.return
  }
}
"""


def test_return_from_the_middle() -> None:
    data, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    Compiled(EARLY_RETURN)((4,), data, out, 3)
    assert np.array_equal(out, np.where(np.arange(256) < 192, data + np.arange(256) // 64, 0))


TILE_CALL = """
module {
  tt.func public @outer(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>) attributes {noinline = false} {
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %pp = tt.addptr %ps, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %x = tt.load %pp : tensor<64x!tt.ptr<f32>>
    %two = arith.constant 2.000000e+00 : f32
    %y:2 = tt.call @inner(%x, %two) : (tensor<64xf32>, f32) -> (tensor<64xf32>, f32)
    %s = tt.splat %y#1 : f32 -> tensor<64xf32>
    %z = arith.addf %y#0, %s : tensor<64xf32>
    %w = arith.addf %z, %x : tensor<64xf32>
    %qs = tt.splat %q : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %qp = tt.addptr %qs, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    tt.store %qp, %w : tensor<64x!tt.ptr<f32>>
    tt.return
  }
  tt.func private @inner(%x: tensor<64xf32>, %k: f32) -> (tensor<64xf32>, f32) attributes {noinline = true} {
    %ks = tt.splat %k : f32 -> tensor<64xf32>
    %y = arith.mulf %x, %ks : tensor<64xf32>
    %e = math.exp2 %y : tensor<64xf32>
    %m = "tt.reduce"(%y) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.maxnumf %a, %b : f32
      tt.reduce.return %c : f32
    }) : (tensor<64xf32>) -> f32
    tt.return %e, %m : tensor<64xf32>, f32
  }
}
"""


def test_a_call_with_tiles() -> None:
    check(TILE_CALL, (1,), np.linspace(-3, 3, 64, dtype=np.float32), np.zeros(64, np.float32))
    data, out = np.linspace(-3, 3, 64, dtype=np.float32), np.zeros(64, np.float32)
    compiled = Compiled(TILE_CALL, passes=False)
    assert "@fn.inner" in compiled.program.llvm
    compiled((1,), data, out)
    np.testing.assert_allclose(out, np.exp2(2 * data) + 6 + data, rtol=1e-6)


WHILE = """
module {
  tt.func public @collatz(%p: !tt.ptr<i32>, %limit: i32) attributes {noinline = false} {
    %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %ps = tt.splat %p : !tt.ptr<i32> -> tensor<32x!tt.ptr<i32>>
    %pp = tt.addptr %ps, %r : tensor<32x!tt.ptr<i32>>, tensor<32xi32>
    %x = tt.load %pp : tensor<32x!tt.ptr<i32>>
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %w:2 = scf.while (%t = %x, %i = %c0) : (tensor<32xi32>, i32) -> (tensor<32xi32>, i32) {
      %m = "tt.reduce"(%t) <{axis = 0 : i32}> ({
      ^bb0(%a: i32, %b: i32):
        %c = arith.maxsi %a, %b : i32
        tt.reduce.return %c : i32
      }) : (tensor<32xi32>) -> i32
      %big = arith.cmpi slt, %m, %limit : i32
      %u = arith.addi %t, %t : tensor<32xi32>
      scf.condition(%big) %u, %i : tensor<32xi32>, i32
    } do {
    ^bb0(%t: tensor<32xi32>, %i: i32):
      %is = tt.splat %i : i32 -> tensor<32xi32>
      %n = arith.subi %t, %is : tensor<32xi32>
      %j = arith.addi %i, %c1 : i32
      scf.yield %n, %j : tensor<32xi32>, i32
    }
    %s = tt.splat %w#1 : i32 -> tensor<32xi32>
    %y = arith.addi %w#0, %s : tensor<32xi32>
    tt.store %pp, %y : tensor<32x!tt.ptr<i32>>
    tt.return
  }
}
"""


@pytest.mark.parametrize("limit", [0, 31, 100, 5000])
def test_while_with_a_tile_changed_in_both_bodies(limit: int) -> None:
    check(WHILE, (1,), np.arange(32, dtype=np.int32), limit)


DEBUG = """
module {
  tt.func public @debug(%p: !tt.ptr<i32>, %n: i32) attributes {noinline = false} {
    %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
    %ps = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>>
    %pp = tt.addptr %ps, %r : tensor<4x!tt.ptr<i32>>, tensor<4xi32>
    %x = tt.load %pp : tensor<4x!tt.ptr<i32>>
    %ns = tt.splat %n : i32 -> tensor<4xi32>
    %ok = arith.cmpi slt, %x, %ns : tensor<4xi32>
    tt.assert %ok, "too large" : tensor<4xi1>
    tt.print " x: " {hex = false, isSigned = array<i32: 1>} : %x : tensor<4xi32>
    tt.return
  }
}
"""


def test_print_and_assert(capfd: pytest.CaptureFixture[str]) -> None:
    compiled = Compiled(DEBUG)
    assert compiled.program.asserts == ["too large"]
    failed = ctypes.c_int32.from_address(compiled.library.address("debug.failed"))
    compiled((1,), np.array([1, -2, 3, 4], np.int32), 5)
    assert failed.value == 0
    assert "pid (0, 0, 0) idx (1) x: -2\n" in capfd.readouterr().out
    compiled((1,), np.array([1, -2, 9, 4], np.int32), 5)
    assert failed.value == 1


def test_three_dimensional_grid() -> None:
    text = """
module {
  tt.func public @where(%p: !tt.ptr<i32>) attributes {noinline = false} {
    %x = tt.get_program_id x : i32
    %y = tt.get_program_id y : i32
    %z = tt.get_program_id z : i32
    %nx = tt.get_num_programs x : i32
    %ny = tt.get_num_programs y : i32
    %a = arith.muli %z, %ny : i32
    %b = arith.addi %a, %y : i32
    %c = arith.muli %b, %nx : i32
    %o = arith.addi %c, %x : i32
    %k = arith.constant 100 : i32
    %k2 = arith.constant 10000 : i32
    %yy = arith.muli %y, %k : i32
    %zz = arith.muli %z, %k2 : i32
    %v = arith.addi %x, %yy : i32
    %w = arith.addi %v, %zz : i32
    %q = tt.addptr %p, %o : !tt.ptr<i32>, i32
    tt.store %q, %w : !tt.ptr<i32>
    tt.return
  }
}
"""
    out = np.full(3 * 4 * 5, -1, np.int32)
    Compiled(text)((5, 4, 3), out)
    z, y, x = np.meshgrid(np.arange(3), np.arange(4), np.arange(5), indexing="ij")
    assert np.array_equal(out, (x + 100 * y + 10000 * z).ravel())
