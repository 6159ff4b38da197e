"""Tensor descriptors in modules printed by Triton: rewritten, they run on the reference and on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.harness import run_ttir
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.errors import UnsupportedError
from tilewright.ops import levels
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.decompose import decompose
from tilewright.passes.pipeline import SIMPLIFY_TEXT, run_passes

TEXT = """
module {
  tt.func public @k(%x: !tt.ptr<f32>, %o: !tt.ptr<f32>, %m: i32, %n: i32) attributes {noinline = false} {
    %c32 = arith.constant 32 : i32
    %c0 = arith.constant 0 : i32
    %two = arith.constant dense<2.000000e+00> : tensor<16x32xf32>
    %c16 = arith.constant 16 : i32
    %one = arith.constant 1 : i64
    %s = arith.extsi %n : i32 to i64
    %dx = tt.make_tensor_descriptor %x, [%m, %n], [%s, %one] {padding = 2 : i32} : <f32>, <16x32xf32>
    %do = tt.make_tensor_descriptor %o, [%m, %n], [%s, %one] : <f32>, <16x32xf32>
    %p = tt.get_program_id x : i32
    %r = arith.muli %p, %c16 : i32
    scf.for %i = %c0 to %n step %c32  : i32 {
      %v = tt.descriptor_load %dx[%r, %i] : !tt.tensordesc<16x32xf32> -> tensor<16x32xf32>
      %w = arith.mulf %v, %two : tensor<16x32xf32>
      tt.descriptor_store %do[%r, %i], %w : !tt.tensordesc<16x32xf32>, tensor<16x32xf32>
    }
    tt.return
  }
}
"""


def test_no_descriptor_is_left_and_the_module_verifies():
    module = parse_module(TEXT)
    assert decompose(module)
    levels.verify(module)
    text = print_module(module, locations=False)
    assert "tensor_descriptor" not in text and "tt.descriptor" not in text and "tilewright.descriptor_stride" in text
    assert text.count("tt.load") == text.count("tt.store") == 1
    assert "0x7FC00000" in text  # NaN, the padding asked for
    assert not decompose(module)


HOST = TEXT.replace(
    "%x: !tt.ptr<f32>, %o: !tt.ptr<f32>, %m: i32, %n: i32)",
    "%x: !tt.ptr<f32> {tt.host_descriptor = 0 : i32}, %o: !tt.ptr<f32>, %m: i32 {tt.host_descriptor = 0 : i32}, "
    "%n: i32 {tt.host_descriptor = 0 : i32}, %s: i64 {tt.host_descriptor = 0 : i32})",
).replace("%s = arith.extsi %n : i32 to i64", "")


def test_descriptors_of_the_host_may_stay():
    module = parse_module(HOST)
    assert decompose(module)  # %do is none
    levels.verify(module)
    text = print_module(module, locations=False)
    assert text.count("tt.make_tensor_descriptor") == text.count("tt.descriptor_load") == text.count("tt.store") == 1
    assert print_module(parse_module(text), locations=False) == text
    run_passes(module, SIMPLIFY_TEXT)
    assert "make_tensor_descriptor" not in print_module(module, locations=False)
    parts = parse_module(HOST.replace("%s: i64 {tt.host_descriptor = 0", "%s: i64 {tt.host_descriptor = 1"))
    run_passes(parts)
    assert "make_tensor_descriptor" not in print_module(parts, locations=False)  # parts of two


def test_the_reference_and_the_cpu_give_the_same():
    x = np.random.default_rng(0).standard_normal((40, 100)).astype(np.float32)
    out = [np.zeros_like(x), np.zeros_like(x)]
    run_ttir(TEXT, (3,), x, out[0], 40, 100)
    module, memory = parse_module(TEXT), Memory()
    decompose(module)
    Evaluator(module, memory).launch("k", (3,), [memory.register(x), memory.register(out[1]), 40, 100])
    np.testing.assert_array_equal(out[0], 2 * x)
    np.testing.assert_array_equal(out[1], 2 * x)


def test_a_descriptor_that_is_an_argument_is_refused():
    text = """
    module {
      tt.func public @k(%d: !tt.tensordesc<16x32xf32>, %i: i32) attributes {noinline = false} {
        %v = tt.descriptor_load %d[%i, %i] : !tt.tensordesc<16x32xf32> -> tensor<16x32xf32>
        tt.return
      }
    }
    """
    with pytest.raises(UnsupportedError, match="tensor descriptor that is an argument"):
        decompose(parse_module(text))
