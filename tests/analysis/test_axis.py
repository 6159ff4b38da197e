"""Axis facts on the address arithmetic of real kernels, and against brute force on random expressions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tilewright.analysis.axis import axis_facts
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator, Program
from tilewright.ops.facts import AxisFacts
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module

ARGS = "%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}, %m: i32"


def facts_of(body: str, value: str) -> AxisFacts:
    """Facts of the SSA value named `value`."""
    module = parse_module(f"module {{ tt.func public @k({ARGS}) {{\n{body}\ntt.return\n}} }}")
    function = next(op for op in module.ops if isinstance(op, FuncOp))
    facts = axis_facts(function)
    for op in function.walk():
        for result in op.results:
            if result.name_hint == value:
                return facts[result]
    raise AssertionError(f"no value %{value}")


POINTERS = """
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %base = arith.muli %pid, %c128 : i32
  %r = tt.make_range {start = 0 : i32, end = 128 : i32} : tensor<128xi32>
  %bs = tt.splat %base : i32 -> tensor<128xi32>
  %off = arith.addi %bs, %r : tensor<128xi32>
  %ps = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
  %ptr = tt.addptr %ps, %off : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
  %ns = tt.splat %n : i32 -> tensor<128xi32>
  %mask = arith.cmpi slt, %off, %ns : tensor<128xi32>
  %wrapped = arith.remsi %off, %ns : tensor<128xi32>
  %ms = tt.splat %m : i32 -> tensor<128xi32>
  %moved = arith.subi %off, %ms : tensor<128xi32>
  %shifted = arith.remsi %moved, %ns : tensor<128xi32>
  %e = tt.expand_dims %off {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
  %wide = tt.broadcast %e : tensor<128x1xi32> -> tensor<128x32xi32>
"""


@pytest.mark.parametrize(
    ("value", "contiguity", "divisibility", "constancy"),
    [
        ("off", (128,), (128,), (1,)),
        ("ptr", (128,), (16,), (1,)),
        ("mask", (1,), (1,), (16,)),
        ("wrapped", (16,), (16,), (1,)),
        ("wide", (128, 1), (128, 1), (1, 32)),
        ("shifted", (1,), (1,), (1,)),
    ],
)
def test_addresses_of_a_row(value: str, contiguity: tuple, divisibility: tuple, constancy: tuple) -> None:
    found = facts_of(POINTERS, value)
    assert (found.contiguity, found.divisibility, found.constancy) == (contiguity, divisibility, constancy)


def test_a_pointer_that_a_loop_advances_keeps_what_every_round_keeps() -> None:
    body = (
        POINTERS
        + """
      %c0 = arith.constant 0 : i32
      %c1 = arith.constant 1 : i32
      %s4 = arith.constant dense<4> : tensor<128xi32>
      %last = scf.for %i = %c0 to %m step %c1 iter_args(%q = %ptr) -> (tensor<128x!tt.ptr<f32>>)  : i32 {
        %next = tt.addptr %q, %s4 : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
        scf.yield %next : tensor<128x!tt.ptr<f32>>
      }"""
    )
    assert facts_of(body, "last").contiguity == (128,)
    assert facts_of(body, "last").divisibility == (16,)


def test_hints_of_the_user_count() -> None:
    body = """
      %r = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32>
      %ms = tt.splat %m : i32 -> tensor<64xi32>
      %x = arith.muli %r, %ms {tt.divisibility = dense<32> : tensor<1xi32>} : tensor<64xi32>"""
    assert facts_of(body, "x").divisibility == (32,)


@pytest.mark.parametrize(
    ("predicate", "bound", "known"), [("sge", 0, True), ("sgt", -1, True), ("sge", -1, False), ("slt", 0, False)]
)
def test_what_is_assumed_not_to_be_negative_wraps_in_runs(predicate: str, bound: int, known: bool) -> None:
    body = f"""
      %zero = arith.constant {bound} : i32
      %test = arith.cmpi {predicate}, %m, %zero : i32
      llvm.intr.assume %test : i1
      %c16 = arith.constant 16 : i32
      %base = arith.muli %m, %c16 : i32
      %bs = tt.splat %base : i32 -> tensor<128xi32>
      %r = tt.make_range {{start = 0 : i32, end = 128 : i32}} : tensor<128xi32>
      %off = arith.addi %bs, %r : tensor<128xi32>
      %ns = tt.splat %n : i32 -> tensor<128xi32>
      %x = arith.remsi %off, %ns : tensor<128xi32>"""
    assert facts_of(body, "x").contiguity == ((16,) if known else (1,))


FLAT = """
  %c1024 = arith.constant 1024 : i32
  %pid = tt.get_program_id x : i32
  %base = arith.muli %pid, %c1024 : i32
  %r = tt.make_range {start = 0 : i32, end = 1024 : i32} : tensor<1024xi32>
  %bs = tt.splat %base : i32 -> tensor<1024xi32>
  %e = arith.addi %bs, %r : tensor<1024xi32>
  %cols = arith.constant dense<768> : tensor<1024xi32>
  %low = arith.constant dense<255> : tensor<1024xi32>
  %by = arith.constant dense<8> : tensor<1024xi32>
  %row = arith.divsi %e, %cols : tensor<1024xi32>
  %col = arith.remsi %e, %cols : tensor<1024xi32>
  %and = arith.andi %e, %low : tensor<1024xi32>
  %shr = arith.shrsi %e, %by : tensor<1024xi32>
  %start = arith.subi %e, %col : tensor<1024xi32>
  %ps = tt.splat %p : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
  %cp = tt.bitcast %ps : tensor<1024x!tt.ptr<f32>> -> tensor<1024x!tt.ptr<i32>>
  %at = tt.addptr %cp, %row : tensor<1024x!tt.ptr<i32>>, tensor<1024xi32>
  %id = tt.load %at : tensor<1024x!tt.ptr<i32>>
  %far = arith.muli %id, %cols : tensor<1024xi32>
  %flat = arith.addi %far, %col : tensor<1024xi32>
  %again = tt.load %at {isVolatile = true} : tensor<1024x!tt.ptr<i32>>
"""


@pytest.mark.parametrize(
    ("value", "contiguity", "constancy"),
    [
        ("row", 1, 256),
        ("col", 256, 1),
        ("and", 256, 1),
        ("shr", 1, 256),
        ("start", 1, 256),
        ("id", 1, 256),
        ("flat", 256, 1),
        ("again", 1, 1),
    ],
)
def test_rows_of_a_flat_block_are_runs(value: str, contiguity: int, constancy: int) -> None:
    found = facts_of(FLAT, value)
    assert (found.contiguity, found.constancy) == ((contiguity,), (constancy,))


# --- brute force -------------------------------------------------------------------------------------------

LEAVES = ["%r", "%rev", "%c", "%k", "%two", "%low", "%ns", "%ms"]
OPS = ["arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.remsi", "arith.minsi", "arith.maxsi"]
OPS += ["arith.andi", "arith.shrsi", "arith.shrui", "arith.shli", "arith.divui", "arith.remui"]


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, int]:
    lines, values = [], list(LEAVES)
    for index in range(draw(st.integers(1, 6))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        op = draw(st.sampled_from(OPS))
        b = "%two" if op == "arith.shli" else b  # nothing may overflow
        lines.append(f"%v{index} = {op} {a}, {b} : tensor<32xi32>")
        values.append(f"%v{index}")
    return "\n".join(lines), len(lines)


@settings(max_examples=150, deadline=None)
@example(("%v0 = arith.remsi %r, %ns : tensor<32xi32>", 1), 0, 0, 1, (8, 32))
@given(
    expressions(),
    st.integers(-6, 6),
    st.integers(-40, 40),
    st.sampled_from([1, 2, 4, 8, 12, 32]),
    st.sampled_from([(8, 32), (0, 12), (0, 3), (4, 24)]),
)
def test_facts_hold_for_every_lane(
    expression: tuple[str, int], sixteens: int, m: int, constant: int, extent: tuple[int, int]
) -> None:
    """Whatever the analysis claims of a random expression is true of its values."""
    (body, count), (start, size) = expression, extent
    text = f"""module {{ tt.func public @k({ARGS}) -> tensor<32xi32> {{
      %r = tt.make_range {{start = {start} : i32, end = {start + size} : i32}} : tensor<32xi32>
      %c = arith.constant dense<{constant}> : tensor<32xi32>
      %k = arith.constant dense<4> : tensor<32xi32>
      %two = arith.constant dense<2> : tensor<32xi32>
      %low = arith.constant dense<7> : tensor<32xi32>
      %ns = tt.splat %n : i32 -> tensor<32xi32>
      %ms = tt.splat %m : i32 -> tensor<32xi32>
      %rev = arith.subi %c, %r : tensor<32xi32>
      {body}
      tt.return %v{count - 1} : tensor<32xi32> }} }}"""
    module = parse_module(text.replace("<32x", f"<{size}x"))
    function = next(op for op in module.ops if isinstance(op, FuncOp))
    claimed = axis_facts(function)[function.body.block.last_op.operands[0]]  # type: ignore[union-attr]
    arguments = [np.asarray(0, np.int64), np.asarray(16 * sixteens, np.int32), np.asarray(m, np.int32)]
    program = Program(Memory(), (0, 0, 0), (1, 1, 1))
    (values,) = Evaluator(module, Memory()).call(function, arguments, program)
    for divisor in re.findall(r"(?:div|rem)[su]i %\w+, (%\w+)", body):  # by zero there is no result to claim things of
        asked = parse_module(
            text.replace(f"tt.return %v{count - 1}", f"tt.return {divisor}").replace("<32x", f"<{size}x")
        )
        other = next(op for op in asked.ops if isinstance(op, FuncOp))
        assume(Evaluator(asked, Memory()).call(other, arguments, program)[0].all())
    check(claimed, values.astype(np.int64))


def check(claimed: AxisFacts, values: np.ndarray) -> None:
    run, divisor, constant = claimed.contiguity[0], claimed.divisibility[0], claimed.constancy[0]
    if run > 1:
        assert (np.diff(values.reshape(-1, run), axis=1) == 1).all(), "contiguity"
    assert (values.reshape(-1, run)[:, 0] % min(divisor, 1 << 31) == 0).all(), "divisibility"
    if constant > 1:
        assert (np.ptp(values.reshape(-1, constant), axis=1) == 0).all(), "constancy"
    if claimed.constant is not None:
        assert (values == claimed.constant).all(), "constant"
