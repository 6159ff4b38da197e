"""Text of tile IR: every form of the control and memory families reads back to what was printed, and errors point."""

from __future__ import annotations

import os

import pytest
from xdsl.dialects.builtin import FileLineColLoc

from tilewright.base.errors import ParseError
from tilewright.ir.op import location_of
from tilewright.ops.text import parse_module, print_module

FUNCTIONS = """module {
  tt.func public @k(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) attributes {noinline = false} {
    %0, %1 = tt.call @pair(%n) : (i32) -> (i32, i32)
    tt.call @nothing() : () -> ()
    tt.return
  }
  tt.func private @pair(%x: i32) -> (i32, i32) attributes {noinline = true} {
    tt.return %x, %x : i32, i32
  }
  tt.func private @nothing() attributes {noinline = false} {
    tt.return
  }
}
"""

CONTROL = """module {
  tt.func public @k(%p: !tt.ptr<i32>, %n: i32, %c: i1) attributes {noinline = false} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %0 = scf.for %i = %zero to %n step %one iter_args(%a = %zero) -> (i32)  : i32 {
      %1 = arith.addi %a, %i : i32
      scf.yield %1 : i32
    } {tt.num_stages = 3 : i32}
    scf.for unsigned %i_1 = %zero to %n step %one  : i32 {
      tt.store %p, %i_1 : !tt.ptr<i32>
    }
    %2, %3 = scf.if %c -> (i32, i32) {
      scf.yield %0, %one : i32, i32
    } else {
      scf.yield %one, %0 : i32, i32
    }
    scf.if %c {
      tt.store %p, %2 : !tt.ptr<i32>
    }
    scf.if %c {
      tt.store %p, %2 : !tt.ptr<i32>
    } else {
      tt.store %p, %3 : !tt.ptr<i32>
    }
    %4, %5 = scf.while (%x = %2, %y = %3) : (i32, i32) -> (i32, i32) {
      %6 = arith.cmpi slt, %x, %n : i32
      scf.condition(%6) %y, %x : i32, i32
    } do {
    ^bb0(%x_1: i32, %y_1: i32):
      scf.yield %x_1, %n : i32, i32
    }
    %7 = ub.poison : i32
    cf.cond_br %c, ^bb1, ^bb2(%4 : i32)
  ^bb1:
    cf.br ^bb2(%5 : i32)
  ^bb2(%r: i32):
    tt.store %p, %r : !tt.ptr<i32>
    tt.return
  }
}
"""

# ruff: noqa: E501  (text of operations stands on one line)
OPERATIONS = """module {
  tt.func public @k(%p: tensor<8x!tt.ptr<f32>>, %q: tensor<8x!tt.ptr<i32>>, %m: tensor<8xi1>, %v: tensor<8xf32>, %i: tensor<8xi32>, %s: !tt.ptr<f32>, %w: tensor<4x8xf32>) attributes {noinline = false} {
    %0 = tt.load %p : tensor<8x!tt.ptr<f32>>
    %1 = tt.load %p, %m {isVolatile = true} : tensor<8x!tt.ptr<f32>>
    %2 = tt.load %p, %m, %v {cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_last>} : tensor<8x!tt.ptr<f32>>
    tt.store %p, %v, %m : tensor<8x!tt.ptr<f32>>
    tt.store %p, %v {cachePolicy = #tt.cache_policy<cache_modifier = none, eviction_policy = evict_first>} : tensor<8x!tt.ptr<f32>>
    %3 = tt.atomic_rmw fadd, acq_rel, gpu, %p, %v, %m : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>, tensor<8xi1>) -> tensor<8xf32>
    %4 = tt.atomic_cas relaxed, sys, %q, %i, %i : (tensor<8x!tt.ptr<i32>>, tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
    %5 = tt.atomic_load acquire, gpu, %q, %m : (tensor<8x!tt.ptr<i32>>, tensor<8xi1>) -> tensor<8xi32>
    tt.atomic_store release, cta, %q, %i, %m : tensor<8x!tt.ptr<i32>>
    %6 = tt.reshape %w : tensor<4x8xf32> -> tensor<32xf32>
    %7 = tt.reshape %w allow_reorder : tensor<4x8xf32> -> tensor<32xf32>
    %8 = tt.trans %w {order = array<i32: 1, 0>} : tensor<4x8xf32> -> tensor<8x4xf32>
    %9 = tt.join %v, %v : tensor<8xf32> -> tensor<8x2xf32>
    %10, %11 = tt.split %9 : tensor<8x2xf32> -> tensor<8xf32>
    %12 = tt.cat %v, %v : tensor<8xf32> -> tensor<16xf32>
    %13 = tt.gather %v[%i] {axis = 0 : i32} : (tensor<8xf32>, tensor<8xi32>) -> tensor<8xf32>
    %14 = tt.histogram %i : tensor<8xi32> -> tensor<16xi32>
    %15 = tt.histogram %i, %m : tensor<8xi32> -> tensor<16xi32>
    %16 = arith.constant dense<0.000000e+00> : tensor<4x4xf32>
    %17 = tt.dot %w, %8, %16 : tensor<4x8xf32> * tensor<8x4xf32> -> tensor<4x4xf32>
    %18 = tt.dot %w, %8, %17, inputPrecision = tf32 {maxNumImpreciseAcc = 4 : i32} : tensor<4x8xf32> * tensor<8x4xf32> -> tensor<4x4xf32>
    %19, %20 = "tt.reduce"(%v, %i) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: i32, %c: f32, %d: i32):
      tt.reduce.return %a, %d : f32, i32
    }) : (tensor<8xf32>, tensor<8xi32>) -> (f32, i32)
    %21 = "tt.scan"(%v) <{axis = 0 : i32, reverse = true}> ({
    ^bb0(%a_1: f32, %b_1: f32):
      tt.scan.return %b_1 : f32
    }) : (tensor<8xf32>) -> tensor<8xf32>
    tt.print " x: " {hex = false, isSigned = array<i32: 0, 1>} : %v, %i : tensor<8xf32>, tensor<8xi32>
    tt.print " done" {hex = true, isSigned = array<i32>}
    tt.assert %m, "all" : tensor<8xi1>
    ttg.barrier all
    %22 = tt.elementwise_inline_asm "mov $0, $1;" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %i : tensor<8xi32> -> tensor<8xi32>
    tt.return
  }
}
"""


DESCRIPTORS = """module {
  tt.func public @k(%p: !tt.ptr<f32>, %m: i32, %n: i32, %s: i64, %one: i64) attributes {noinline = false} {
    %0 = tt.make_tensor_descriptor %p, [%m, %n], [%s, %one] : <f32>, <16x32xf32>
    %1 = tt.descriptor_load %0[%m, %n] : !tt.tensordesc<16x32xf32> -> tensor<16x32xf32>
    tt.descriptor_store %0[%n, %m], %1 : !tt.tensordesc<16x32xf32>, tensor<16x32xf32>
    tt.return
  }
}
"""

TEXTS = {"functions": FUNCTIONS, "control": CONTROL, "operations": OPERATIONS, "descriptors": DESCRIPTORS}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_text_reads_back_to_itself(text: str) -> None:
    module = parse_module(text)
    module.verify()
    assert print_module(module, locations=False) == text
    assert parse_module(text).is_structurally_equivalent(module)


def test_locations_are_printed_and_read() -> None:
    module = parse_module('module { tt.func public @k() { tt.return loc("kernel.py":7:4) } }')
    (func,) = module.ops
    place = location_of(func.body.block.last_op)
    assert place is not None and (place.file, place.line, place.col) == ("kernel.py", 7, 4)
    text = print_module(module)
    assert 'tt.return loc("kernel.py":7:4)' in text
    again = parse_module(text)
    (func,) = again.ops
    assert isinstance(func.body.block.last_op.location, FileLineColLoc)
    assert print_module(again) == text


def test_names_of_files_and_messages_may_have_any_characters() -> None:
    text = """module {
  tt.func public @k(%c: i1) attributes {noinline = false} {
    tt.assert %c, "zu gro\\C3\\9F" : i1 loc("k\\C3\\A4rnel.py":3:1)
    tt.return loc("k\\FF.py":4:1)
  } loc(unknown)
}
"""
    module = parse_module(text)
    check, leave = module.body.block.first_op.body.block.ops
    assert check.message.data == "zu groß" and location_of(check).file == "kärnel.py"
    assert location_of(leave).file == os.fsdecode(b"k\xff.py")
    printed = print_module(module)
    assert 'loc("k\\FF.py":4:1)' in printed and print_module(parse_module(printed)) == printed


def test_location_aliases_are_read() -> None:
    text = """#loc = loc("a.py":1:2)
module {
  tt.func public @k() {
    tt.return loc(#loc3)
  }
} loc(#loc)
#loc1 = loc("a.py":5:6)
#loc2 = loc("b.py":7:8)
#loc3 = loc(callsite(#loc1 at #loc4))
#loc4 = loc("name"(#loc2))
"""
    # As printed, #loc3 would stand behind #loc4: aliases are numbered in the order of their definitions.
    text = text.replace("#loc4", "#loc9").replace("#loc3", "#loc4").replace("#loc9", "#loc3")
    (func,) = parse_module(text).ops
    place = location_of(func.body.block.last_op)
    assert place is not None and (place.file, place.line) == ("a.py", 5)
    assert place.caller is not None and (place.caller.file, place.caller.line) == ("b.py", 7)


def test_mistakes_behind_aliases_keep_their_line() -> None:
    with pytest.raises(ParseError, match=r"k\.ttir:2:10: (.|\n)*tt\.gone"):
        parse_module('#loc = loc("a.py":1:2)\nmodule { tt.gone loc(#loc) }\n#loc1 = loc(unknown)\n', "k.ttir")


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ("%0 = tt.foo %n : i32", "3:10", "tt.foo is not registered"),
        ("%0 = arith.addi %n, %gone : i32", "3:25", "not defined: [%gone]"),
        ("tt.store %n, %n : i32", "3:", "a pointer or a tile of pointers"),
        ("%0 = tt.atomic_rmw plus, acq_rel, gpu, %n, %n : (i32, i32) -> i32", "3:", "is one of and, or"),
        ("%0 = tt.load %n, : i32", "3:", ""),
    ],
)
def test_mistakes_name_line_and_column(body: str, place: str, message: str) -> None:
    text = f"module {{\n  tt.func public @k(%n: i32) {{\n    {body}\n    tt.return\n  }}\n}}"
    with pytest.raises(ParseError) as error:
        parse_module(text, "k.ttir")
    shown = str(error.value)
    assert shown.startswith(f"k.ttir:{place}") and message in shown
    assert body in shown and "^" in shown.splitlines()[-1]
