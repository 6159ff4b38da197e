"""Whether the elements of a tile have an address each, in whichever order their strides come."""

from __future__ import annotations

from tilewright.analysis.affine import Poly
from tilewright.analysis.distinct import distinct
from tilewright.analysis.index import whole
from tilewright.base.decision import Yes
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module


def test_strides_come_in_any_order() -> None:
    module = parse_module("tt.func public @k(%a: i32, %b: i32, %n: i32, %m: i32) {\n  tt.return\n}")
    a, b, n, m = (Poly.atom(value) for value in FuncOp.kernel_of(module).body.block.args)
    rows, columns = whole(0, 64), whole(1, 32)
    strides = [(rows, a * Poly.of(4)), (columns, b * Poly.of(4))]
    bounds = [(rows, (n, m)), (columns, (m,))]
    answers = [distinct(dict(s), (64, 32), 4, dict(bounds)) for s in (strides, strides[::-1])]
    assert isinstance(answers[0], Yes)
    assert answers[0] == answers[1]
