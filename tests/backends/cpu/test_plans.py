"""Loop plans: what shares a loop, what is kept in scratch, what is updated in place."""

from __future__ import annotations

import numpy as np

from tests.backends.cpu.against import check
from tests.backends.cpu.kernels import matmul_text
from tilewright.backends.cpu.emit.lower import plan_module
from tilewright.backends.cpu.plan.steps import DotStep, EndStep, FunctionPlan, GroupStep, ScalarStep
from tilewright.backends.llvm.features import host
from tilewright.ops.control import ForOp
from tilewright.ops.text import parse_module
from tilewright.passes.pipeline import run_passes

_LOAD = """
    %r = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
    %pp = tt.addptr %ps, %r : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    %qs = tt.splat %q : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
    %qp = tt.addptr %qs, %r : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    %x = tt.load %pp : tensor<256x!tt.ptr<f32>>"""


def _kernel(body: str) -> str:
    return (
        "module {\n  tt.func public @k(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {"
        + _LOAD
        + body
        + "\n    tt.return\n  }\n}\n"
    )


def _reduce(name: str, source: str, op: str) -> str:
    return f"""
    %{name} = "tt.reduce"(%{source}) <{{axis = 0 : i32}}> ({{
    ^bb0(%a: f32, %b: f32):
      %c = arith.{op} %a, %b : f32
      tt.reduce.return %c : f32
    }}) : (tensor<256xf32>) -> f32
    %{name}s = tt.splat %{name} : f32 -> tensor<256xf32>"""


def _plan(text: str) -> FunctionPlan:
    module = parse_module(text)
    run_passes(module)
    return plan_module(module, host()).kernel


def _groups(plan: FunctionPlan) -> list[list[str]]:
    """Kinds of the sinks of every group of the outer block."""
    return [[sink.label for sink in step.sinks] for step in plan.blocks[0].steps if isinstance(step, GroupStep)]


SOFTMAX = _kernel(
    _reduce("m", "x", "maxnumf")
    + """
    %d = arith.subf %x, %ms : tensor<256xf32>
    %e = math.exp %d : tensor<256xf32>"""
    + _reduce("s", "e", "addf")
    + """
    %y = arith.divf %e, %ss : tensor<256xf32>
    tt.store %qp, %y : tensor<256x!tt.ptr<f32>>"""
)


def test_softmax_keeps_the_exponentials_and_loads_twice() -> None:
    plan = _plan(SOFTMAX)
    assert _groups(plan) == [["reduce"], ["reduce", "materialize"], ["store"]]
    rng = np.random.default_rng(0)
    check(SOFTMAX, (1,), rng.standard_normal(256).astype(np.float32), np.zeros(256, np.float32), 0)


def test_independent_reductions_share_a_loop() -> None:
    text = _kernel(
        _reduce("m", "x", "maxnumf")
        + _reduce("s", "x", "addf")
        + """
    %d = arith.subf %ms, %ss : tensor<256xf32>
    tt.store %qp, %d : tensor<256x!tt.ptr<f32>>"""
    )
    assert _groups(_plan(text)) == [["reduce", "reduce"], ["store"]]
    check(text, (1,), np.linspace(-1, 2, 256, dtype=np.float32), np.zeros(256, np.float32), 0)


def test_two_stores_of_one_load_share_a_loop() -> None:
    text = _kernel(
        """
    tt.store %qp, %x : tensor<256x!tt.ptr<f32>>
    %y = arith.addf %x, %x : tensor<256xf32>
    tt.store %pp, %y : tensor<256x!tt.ptr<f32>>"""
    )
    assert _groups(_plan(text)) == [["store", "store"]]
    check(text, (1,), np.arange(256, dtype=np.float32), np.zeros(256, np.float32), 0)


def test_a_load_is_taken_before_an_overlapping_store() -> None:
    """In place, each element replaced by its left neighbour: the tile must be read whole first."""
    text = _kernel(
        """
    %one = arith.constant dense<1> : tensor<256xi32>
    %next = tt.addptr %pp, %one : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    tt.store %next, %x : tensor<256x!tt.ptr<f32>>"""
    )
    assert _groups(_plan(text)) == [["materialize"], ["store"]]
    check(text, (1,), np.arange(257, dtype=np.float32), np.zeros(256, np.float32), 0)


def test_a_load_is_taken_before_a_store_elsewhere() -> None:
    """The scalar store may hit the tile, so the second use of the load must not read memory again."""
    text = _kernel(
        _reduce("s", "x", "addf")
        + """
    tt.store %p, %s : !tt.ptr<f32>
    tt.store %qp, %x : tensor<256x!tt.ptr<f32>>"""
    )
    assert _groups(_plan(text))[0] == ["materialize", "reduce"]
    check(text, (1,), np.arange(256, dtype=np.float32), np.zeros(256, np.float32), 0)


def test_a_dot_accumulates_in_the_carried_tile() -> None:
    plan = _plan(matmul_text(32, 64, 32))
    (loop,) = [step for step in plan.blocks[0].steps if isinstance(step.op, ForOp)]
    inside = [step for step in loop.bodies[0].steps if not isinstance(step, ScalarStep | EndStep)]
    assert len(inside) == 1 and isinstance(inside[0], DotStep), "operands come from memory, the result stays in place"
    assert inside[0].detail.acc in loop.detail.values()


def test_carried_pointers_become_offsets() -> None:
    plan = _plan(matmul_text(32, 64, 32))
    (loop,) = [step for step in plan.blocks[0].steps if isinstance(step.op, ForOp)]
    assert loop.op is not None
    assert [str(value.type) for value in loop.op.operands[3:]] == ["i64", "tensor<32x64xf32>", "i64"]


SWAP = _kernel(
    """
    %zero = arith.constant dense<0.000000e+00> : tensor<256xf32>
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %l:2 = scf.for %i = %c0 to %n step %c1 iter_args(%u = %x, %v = %zero) -> (tensor<256xf32>, tensor<256xf32>)  : i32 {
      %w = arith.addf %u, %v : tensor<256xf32>
      scf.yield %v, %w : tensor<256xf32>, tensor<256xf32>
    }
    tt.store %qp, %l#1 : tensor<256x!tt.ptr<f32>>
    tt.store %pp, %l#0 : tensor<256x!tt.ptr<f32>>"""
)


def test_exchanged_carried_tiles() -> None:
    for iterations in range(5):
        check(SWAP, (1,), np.arange(256, dtype=np.float32), np.zeros(256, np.float32), iterations)


def test_scratch_of_tiles_that_do_not_meet_is_shared() -> None:
    plan = _plan(SOFTMAX)
    assert plan.scratch_bytes <= 256 * 4 + 64
    # Every second block of columns of A is left out, so that no two iterations are joined to one product.
    text = matmul_text(128, 128, 64, mask_k=False)
    big = _plan(text.replace("%adv = arith.constant dense<64>", "%adv = arith.constant dense<128>"))
    kept = sum(cache.panels.size + cache.state.size for cache in big.caches)
    assert big.scratch_bytes - kept <= 4 * (128 * 128 + 128 * 80) + 1024


def test_the_plan_is_printed() -> None:
    module = parse_module(SOFTMAX)
    run_passes(module)
    text = plan_module(module, host()).render()
    assert "group [256]: reduce tt.reduce axis 0; materialize -> s0" in text


def test_what_an_assertion_tests_is_loaded_again_behind_it() -> None:
    text = _kernel("""
    %c256 = arith.constant dense<256> : tensor<256xi32>
    %row = arith.divsi %r, %c256 : tensor<256xi32>
    %ip = tt.addptr %qs, %row : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    %i = tt.load %ip : tensor<256x!tt.ptr<f32>>
    %zero = arith.constant dense<0.000000e+00> : tensor<256xf32>
    %ok = arith.cmpf oge, %i, %zero : tensor<256xf32>
    tt.assert %ok, "negative" : tensor<256xi1>
    %sum = arith.addf %x, %i : tensor<256xf32>
    tt.store %pp, %sum : tensor<256x!tt.ptr<f32>>""")
    plan = _plan(text)
    assert _groups(plan) == [[""], ["store"]] and plan.scratch_bytes == 0
    stored = text.replace("tt.assert %ok", "tt.store %qp, %x : tensor<256x!tt.ptr<f32>>\n    tt.assert %ok")
    assert any("materialize" in group for group in _groups(_plan(stored)))  # what it loads may have been stored to
