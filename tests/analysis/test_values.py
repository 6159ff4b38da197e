"""Where values of loops go and come from, how long they live, what they gain in an iteration, what is uniform."""

from __future__ import annotations

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.flow import sources_of, targets_of
from tilewright.analysis.index import whole
from tilewright.analysis.liveness import ProgramOrder
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.analysis.uniform import is_invariant, scalar_of
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module

LOOP = """
%pid = tt.get_program_id x : i32
%four = arith.constant 4 : i32
%r:2 = scf.for %i = %n to %m step %n iter_args(%a = %pid, %b = %n) -> (i32, i32) : i32 {
  %c = arith.addi %a, %four : i32
  %d = arith.muli %b, %b : i32
  scf.yield %c, %d : i32, i32
}
"""
WHILE = """
%r = scf.while (%a = %n) : (i32) -> (i32) {
  scf.condition(%t) %a : i32
} do {
^bb0(%b: i32):
  %c = arith.addi %b, %m : i32
  scf.yield %c : i32
}
"""


def _function(body: str, visibility: str = "public") -> FuncOp:
    text = f"module {{ tt.func {visibility} @k(%n: i32, %m: i32, %t: i1) {{\n{body}\ntt.return\n}} }}"
    return next(op for op in parse_module(text).ops if isinstance(op, FuncOp))


def _find(function: FuncOp, kind: type) -> object:
    return next(op for op in function.walk() if isinstance(op, kind))


def test_a_loop_carries_its_first_value_and_what_it_yields():
    loop = _find(_function(LOOP), ForOp)
    end = loop.body.block.last_op
    for number in (0, 1):
        wanted = [loop.iter_args[number], end.operands[number]]
        assert sources_of(loop.results[number]) == wanted == sources_of(loop.body.block.args[number + 1])
        assert targets_of(loop, number + 3) == [loop.results[number], loop.body.block.args[number + 1]]
        assert targets_of(end, number) == [loop.results[number], loop.body.block.args[number + 1]]
    assert sources_of(loop.body.block.args[0]) is None and sources_of(end.operands[0]) is None


def test_a_while_loop_hands_on_what_its_condition_names():
    loop = _find(_function(WHILE), WhileOp)
    before, after = loop.before.block, loop.after.block
    assert sources_of(before.args[0]) == [loop.inits[0], after.last_op.operands[0]]
    assert sources_of(after.args[0]) == sources_of(loop.results[0]) == [before.args[0]]
    assert targets_of(loop, 0) == targets_of(after.last_op, 0) == [before.args[0]]
    assert targets_of(before.last_op, 0) == []
    assert targets_of(before.last_op, 1) == [loop.results[0], after.args[0]]


def test_a_branch_gives_what_either_side_yields():
    function = _function("%r = scf.if %t -> (i32) {\nscf.yield %n : i32\n} else {\nscf.yield %m : i32\n}")
    branch = _find(function, IfOp)
    assert sources_of(branch.results[0]) == list(function.body.block.args[:2])
    assert targets_of(branch.regions[1].block.last_op, 0) == [branch.results[0]]


def test_a_use_in_a_loop_lasts_to_the_end_of_the_loop():
    function = _function(LOOP)
    order, loop = ProgramOrder(function), _find(function, ForOp)
    first = next(iter(loop.body.block.ops))
    four = first.operands[1].owner
    assert order.end_of_use(first, four) == order.last[loop] == order.numbers[loop.body.block.last_op]
    assert order.end_of_use(loop.body.block.last_op, first) == order.numbers[loop.body.block.last_op]


def test_gains_are_the_same_for_all_iterations_or_not_known():
    loop = _find(_function(LOOP), ForOp)
    counter, a, b = loop.body.block.args
    evolution = ScalarEvolution(loop)
    assert evolution.gain(Poly.atom(a)) == Poly.of(4)
    assert evolution.gain(Poly.atom(counter)) == Poly.atom(loop.step)
    assert evolution.gain(Poly.atom(b)) is None and evolution.carried_steps() is None


def test_scalars_of_a_sum_come_in_the_order_of_its_terms():
    arguments = _function("").body.block.args
    for first, second in (arguments[:2], arguments[1::-1]):
        assert (Poly.atom(first) + Poly.atom(second) * Poly.atom(first)).atoms() == [first, second]


def test_forms_are_kept_until_a_tile_they_rest_on_moves():
    function = _function(
        "%r = tt.make_range {start = 0 : i32, end = 8 : i32} : tensor<8xi32>\n%a = arith.addi %r, %r : tensor<8xi32>"
    )
    placed, analysis = set(), AffineAnalysis(lambda value: value in placed)
    ranged, added, _ = function.body.block.ops
    index = (whole(0, 8),)
    form = analysis.integer(added.results[0], index)
    assert form.coords == {index[0]: Poly.of(2)} and not form.residual
    assert not analysis.moved(function.body.block.args) and analysis.integer(added.results[0], index) is form
    placed.add(ranged.results[0])
    assert analysis.moved(placed) and not analysis.moved(placed)
    assert analysis.integer(added.results[0], index).residual


def test_programs_share_what_is_made_of_the_arguments_of_a_kernel():
    body = "%pid = tt.get_program_id x : i32\n%a = arith.addi %n, %m : i32\n%b = arith.addi %a, %pid : i32"
    *_, a, b, _ = (op.results[0] if op.results else None for op in _function(body).body.block.ops)
    assert is_invariant(a) and not is_invariant(b)
    *_, a, b, _ = (op.results[0] if op.results else None for op in _function(body, "private").body.block.ops)
    assert not is_invariant(a), "a caller may give what differs between programs"


def test_a_tile_is_one_scalar_through_broadcasts():
    body = (
        "%s = tt.splat %n : i32 -> tensor<1xi32>\n"
        "%b = tt.broadcast %s : tensor<1xi32> -> tensor<8xi32>\n"
        "%x = arith.addi %b, %b : tensor<8xi32>"
    )
    function = _function(body)
    _, b, x, _ = (op.results[0] if op.results else None for op in function.body.block.ops)
    assert scalar_of(b) is function.body.block.args[0] and scalar_of(x) is None
