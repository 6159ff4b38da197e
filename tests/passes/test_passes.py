"""Each pass on small modules: what it changes, and what it must leave alone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ModuleOp

from tilewright.base.errors import UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.inline import inline_calls
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.pipeline import SIMPLIFY, run_passes
from tilewright.passes.stages import Stage, run_stages
from tilewright.passes.unreachable import drop_unreachable_blocks


def kernel(body: str, args: str = "%p: !tt.ptr<i32>, %n: i32") -> ModuleOp:
    return parse_module(f"module {{ tt.func public @k({args}) {{\n{body}\ntt.return\n}} }}")


def names(module: ModuleOp) -> list[str]:
    """Operation names in order, without the module, function and return."""
    return [op.name for op in module.walk() if op.name not in ("builtin.module", "tt.func", "tt.return")]


def test_constants_are_computed_by_the_reference() -> None:
    module = kernel("""
      %a = arith.constant 7 : i32
      %b = arith.constant -2 : i32
      %q = arith.divsi %a, %b : i32
      tt.store %p, %q : !tt.ptr<i32>""")
    assert canonicalize(module)
    assert "arith.constant -3 : i32" in print_module(module)
    assert "arith.divsi" not in names(module)


def test_tiles_of_one_number_are_folded_through_shape_ops() -> None:
    module = kernel("""
      %a = arith.constant 3 : i32
      %s = tt.splat %a : i32 -> tensor<8xi32>
      %e = tt.expand_dims %s {axis = 0 : i32} : tensor<8xi32> -> tensor<1x8xi32>
      %w = tt.broadcast %e : tensor<1x8xi32> -> tensor<4x8xi32>
      %x = arith.muli %w, %w : tensor<4x8xi32>
      %r = "tt.reduce"(%x) <{axis = 0 : i32}> ({
      ^bb0(%u: i32, %v: i32):
        %t = arith.addi %u, %v : i32
        tt.reduce.return %t : i32
      }) : (tensor<4x8xi32>) -> tensor<8xi32>
      %y = "tt.reduce"(%r) <{axis = 0 : i32}> ({
      ^bb0(%u: i32, %v: i32):
        %t = arith.addi %u, %v : i32
        tt.reduce.return %t : i32
      }) : (tensor<8xi32>) -> i32
      tt.store %p, %y : !tt.ptr<i32>""")
    run_passes(module)
    assert "dense<9> : tensor<4x8xi32>" in print_module(module)
    assert "tt.splat" not in names(module) and "arith.muli" not in names(module)


@pytest.mark.parametrize("taken", ["true", "false"])
def test_a_decided_branch_is_spliced_in(taken: str) -> None:
    module = kernel(f"""
      %c = arith.constant {taken}
      %r = scf.if %c -> (i32) {{
        %x = arith.addi %n, %n : i32
        scf.yield %x : i32
      }} else {{
        %y = arith.muli %n, %n : i32
        scf.yield %y : i32
      }}
      tt.store %p, %r : !tt.ptr<i32>""")
    run_passes(module)
    kept, gone = ("arith.addi", "arith.muli") if taken == "true" else ("arith.muli", "arith.addi")
    assert kept in names(module) and gone not in names(module) and "scf.if" not in names(module)


@pytest.mark.parametrize(("upper", "loops", "adds"), [(0, 0, 0), (1, 0, 1), (2, 1, 1)])
def test_loops_of_no_or_one_iteration_disappear(upper: int, loops: int, adds: int) -> None:
    module = kernel(f"""
      %c0 = arith.constant 0 : i32
      %c1 = arith.constant 1 : i32
      %ub = arith.constant {upper} : i32
      %r = scf.for %i = %c0 to %ub step %c1 iter_args(%a = %n) -> (i32)  : i32 {{
        %x = arith.addi %a, %n : i32
        scf.yield %x : i32
      }}
      tt.store %p, %r : !tt.ptr<i32>""")
    run_passes(module)
    assert (names(module).count("scf.for"), names(module).count("arith.addi")) == (loops, adds)


def test_equal_pure_operations_are_merged_across_regions() -> None:
    module = kernel("""
      %a = arith.addi %n, %n : i32
      %c = arith.cmpi slt, %n, %a : i32
      scf.if %c {
        %b = arith.addi %n, %n : i32
        tt.store %p, %b : !tt.ptr<i32>
      }""")
    assert eliminate_common_subexpressions(module)
    assert names(module).count("arith.addi") == 1


def test_loads_are_not_merged() -> None:
    module = kernel("""
      %a = tt.load %p : !tt.ptr<i32>
      tt.store %p, %n : !tt.ptr<i32>
      %b = tt.load %p : !tt.ptr<i32>
      %s = arith.addi %a, %b : i32
      tt.store %p, %s : !tt.ptr<i32>""")
    assert not eliminate_common_subexpressions(module)
    assert names(module).count("tt.load") == 2


def test_values_of_one_branch_do_not_serve_the_other() -> None:
    module = kernel("""
      %c0 = arith.constant 0 : i32
      %c = arith.cmpi slt, %n, %c0 : i32
      scf.if %c {
        %b = arith.addi %n, %n : i32
        tt.store %p, %b : !tt.ptr<i32>
      } else {
        %d = arith.addi %n, %n : i32
        tt.store %p, %d : !tt.ptr<i32>
      }""")
    assert not eliminate_common_subexpressions(module)
    module.verify()


def test_results_of_branches_that_nobody_reads_go() -> None:
    module = kernel("""
      %c0 = arith.constant 0 : i32
      %c = arith.cmpi slt, %n, %c0 : i32
      %r:2 = scf.if %c -> (i32, i32) {
        %x = arith.muli %n, %n : i32
        %y = arith.addi %n, %n : i32
        scf.yield %x, %y : i32, i32
      } else {
        scf.yield %n, %n : i32, i32
      }
      %s = scf.if %c -> (i32) {
        tt.store %p, %n : !tt.ptr<i32>
        scf.yield %n : i32
      } else {
        scf.yield %c0 : i32
      }
      tt.store %p, %r#1 : !tt.ptr<i32>""")
    assert eliminate_dead_code(module)
    text = print_module(module)
    assert "arith.muli" not in text and "scf.yield %y : i32" in text
    assert text.count("scf.if %c {") == 1 and text.count("else") == 1
    assert parse_module(text) and not eliminate_dead_code(module)


def test_dead_code_goes_and_effects_stay() -> None:
    module = kernel("""
      %a = arith.addi %n, %n : i32
      %b = arith.muli %a, %n : i32
      %l = tt.load %p : !tt.ptr<i32>
      tt.store %p, %n : !tt.ptr<i32>""")
    assert eliminate_dead_code(module)
    assert names(module) == ["tt.store"]


def test_volatile_loads_stay() -> None:
    module = kernel("%l = tt.load %p {isVolatile = true} : !tt.ptr<i32>")
    eliminate_dead_code(module)
    assert names(module) == ["tt.load"]


def test_carried_values_that_feed_only_themselves_are_dropped() -> None:
    module = kernel("""
      %c0 = arith.constant 0 : i32
      %c1 = arith.constant 1 : i32
      %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %n, %dead = %n) -> (i32, i32)  : i32 {
        %x = arith.addi %a, %n : i32
        %y = arith.muli %dead, %i : i32
        scf.yield %x, %y : i32, i32
      }
      tt.store %p, %r#0 : !tt.ptr<i32>""")
    assert eliminate_dead_code(module)
    module.verify()
    assert "arith.muli" not in names(module)
    assert "-> (i32)" in print_module(module)


def test_carried_values_that_feed_others_are_kept() -> None:
    module = kernel("""
      %c0 = arith.constant 0 : i32
      %c1 = arith.constant 1 : i32
      %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %n, %b = %n) -> (i32, i32)  : i32 {
        scf.yield %b, %a : i32, i32
      }
      tt.store %p, %r#0 : !tt.ptr<i32>""")
    eliminate_dead_code(module)
    assert "-> (i32, i32)" in print_module(module)


def test_invariants_leave_nested_loops() -> None:
    module = kernel("""
      %c0 = arith.constant 0 : i32
      %c1 = arith.constant 1 : i32
      scf.for %i = %c0 to %n step %c1  : i32 {
        scf.for %j = %c0 to %n step %c1  : i32 {
          %x = arith.muli %n, %n : i32
          %y = arith.addi %x, %i : i32
          %z = arith.addi %y, %j : i32
          tt.store %p, %z : !tt.ptr<i32>
        }
      }""")
    assert hoist_loop_invariants(module)
    order = names(module)
    assert order.index("arith.muli") < order.index("scf.for")
    text = print_module(module, locations=False).splitlines()
    depth = {
        line.split("=")[1].split()[0] + line.split("%")[-1][0]: len(line) - len(line.lstrip())
        for line in text
        if "arith.addi" in line
    }
    assert len(set(depth.values())) == 2  # one sum per loop level


def test_calls_are_inlined_with_their_call_sites() -> None:
    module = parse_module("""
      module {
        tt.func public @k(%p: !tt.ptr<i32>, %n: i32) {
          %r = tt.call @twice(%n) : (i32) -> i32 loc("k.py":3:4)
          tt.store %p, %r : !tt.ptr<i32>
          tt.return
        }
        tt.func private @twice(%x: i32) -> i32 {
          %y = tt.call @add(%x, %x) : (i32, i32) -> i32 loc("k.py":8:4)
          tt.return %y : i32
        }
        tt.func private @add(%x: i32, %y: i32) -> i32 {
          %z = arith.addi %x, %y : i32 loc("k.py":12:4)
          tt.return %z : i32
        }
      }""")
    assert inline_calls(module)
    module.verify()
    assert names(module) == ["arith.addi", "tt.store"]
    text = print_module(module)
    assert 'callsite("k.py":12:4 at' in text and '"k.py":3:4' in text
    assert "@twice" not in text


def test_noinline_functions_stay_calls() -> None:
    module = parse_module("""
      module {
        tt.func public @k(%p: !tt.ptr<i32>, %n: i32) {
          %r = tt.call @twice(%n) : (i32) -> i32
          tt.store %p, %r : !tt.ptr<i32>
          tt.return
        }
        tt.func private @twice(%x: i32) -> i32 attributes {noinline = true} {
          %y = arith.addi %x, %x : i32
          tt.return %y : i32
        }
      }""")
    inline_calls(module)
    assert "tt.call" in names(module) and "@twice" in print_module(module)


def test_unreachable_blocks_are_dropped() -> None:
    module = parse_module("""
      module { tt.func public @k(%p: !tt.ptr<i32>, %n: i32) {
        tt.store %p, %n : !tt.ptr<i32>
        tt.return
      ^dead:
        %x = arith.addi %n, %n : i32
        tt.return
      } }""")
    assert drop_unreachable_blocks(module)
    assert names(module) == ["tt.store"]


@pytest.mark.parametrize("step", [p.run for p in SIMPLIFY], ids=[p.name for p in SIMPLIFY])
def test_a_pass_that_changes_nothing_says_so(step: Callable[[ModuleOp], bool]) -> None:
    module = kernel("""
      %v = tt.load %p : !tt.ptr<i32>
      %w = arith.addi %v, %n : i32
      tt.store %p, %w : !tt.ptr<i32>""")
    before = print_module(module)
    assert not step(module)
    assert print_module(module) == before


def test_a_stage_that_recurses_too_deeply_says_which() -> None:
    def endless(artifact: object, metadata: dict[str, object]) -> object:
        return endless(artifact, metadata)

    limit = sys.getrecursionlimit()
    with pytest.raises(UnsupportedError, match="nested too deeply for the stage 'loops'.*\nhint: use fewer branches"):
        run_stages({"loops": Stage(endless)}, None, {}, "kernel", knobs.compilation)
    assert sys.getrecursionlimit() == limit
