"""Places that are held inside of a tensor: up to where they are the places before.

    x[min(max(i + d, 0), n - 1)]        x[i + d]    in the chunks in which 0 <= i + d and i + d <= n - 1
    x[(i + d) % n]                      x[i + d]    in the chunks in which 0 <= i + d and i + d < n
    x[where(i + d < 0, 0, i + d)]       x[i + d]    in the chunks in which 0 <= i + d

Elements at such places would be gathered. The bounds are of the kind that masks have (`masks.py`), which finds the
chunks in which they hold; there addresses are affine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly, as_operand, expanded
from tilewright.analysis.bounds import below_zero
from tilewright.analysis.index import Index
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.emit.quotients import is_quotient
from tilewright.base.decision import Yes
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.elementwise import CmpIOp, MaxSIOp, MinSIOp, RemSIOp, SelectOp

_CLAMPS = (MinSIOp, MaxSIOp, RemSIOp, SelectOp)
_MINUS_ONE = Form(Poly.of(-1))


class Clamps:
    """The held places in the addresses of a group.

    Args:
        ev: evaluator.
        pointers: the addresses, each at an index.
        suits: whether a form can be tested for many chunks at once.
        within: forms that are negative where elements are wanted, if remainders count only of what these bound.

    Attributes:
        analysis: affine forms, held places being what they are inside.
        bounds: for each held place, forms that are negative where it is inside.
    """

    def __init__(
        self,
        ev: Evaluator,
        pointers: Iterable[tuple[SSAValue, Index]],
        suits: Callable[[Form], bool],
        within: Sequence[Form] | None = None,
    ) -> None:
        self.analysis = AffineAnalysis(lambda value: value in ev.placed, ev.analysis.facts)
        self.bounds: dict[tuple[SSAValue, Index], list[Form]] = {}
        self._plain: dict[SSAValue, SSAValue] = {}
        todo = [key for pointer in pointers for key in _residual(ev.analysis, *pointer)]
        while todo:
            value, at = todo.pop()
            op = defining_op(value)
            plain = _plain(op, at, ev.analysis) if isinstance(op, _CLAMPS) and (value, at) not in self.bounds else None
            if plain is not None and not (is_quotient(value) and _is_unbounded(value, at, ev.analysis, within)):
                self.bounds[value, at] = []
                self._plain[value] = plain
                self.analysis.taken_for[value] = as_operand(plain)
                todo += [(v, i) for v, i, _ in ev.analysis.integer(plain, at).residual]
        settled = not self.bounds
        while not settled:  # one that is not known makes others unknown
            for value, at in self.bounds:
                self.bounds[value, at] = _bounds(value, at, self._plain[value], self.analysis)
            lost = {key[0] for key, forms in self.bounds.items() if not forms or not all(map(suits, forms))}
            settled = not lost
            self.bounds = {key: forms for key, forms in self.bounds.items() if key[0] not in lost}
            for value in lost:
                del self.analysis.taken_for[value]
            self.analysis.forget()


def _residual(analysis: AffineAnalysis, pointer: SSAValue, index: Index) -> list[tuple[SSAValue, Index]]:
    form = analysis.pointer(pointer, index)
    return [(value, at) for value, at, _ in form.offset.residual]


def _plain(op: Operation, index: Index, analysis: AffineAnalysis) -> SSAValue | None:
    """The operand that a held place is where nothing holds it."""
    if isinstance(op, SelectOp):
        condition, *arms = op.operands
        test = defining_op(condition)
        if not isinstance(test, CmpIOp) or not is_tile(condition):
            return None
        return next((arm for arm in arms if arm in test.operands), None)
    left, right = op.operands
    if analysis.integer(right, index).uniform:
        return left
    return right if not isinstance(op, RemSIOp) and analysis.integer(left, index).uniform else None


def _is_unbounded(value: SSAValue, at: Index, analysis: AffineAnalysis, within: Sequence[Form] | None) -> bool:
    """Whether what is divided is not known to stay some known number below the divisor, or above it."""
    place, by = analysis.operands(value, at)
    below = place.plus(by, Poly.of(-1))
    return within is not None and not any(
        (bound.coords, bound.residual) == (below.coords, below.residual)
        and expanded(bound.constant + -below.constant).constant is not None
        for bound in within
    )


def _bounds(value: SSAValue, index: Index, plain: SSAValue, analysis: AffineAnalysis) -> list[Form]:
    """Forms all of which are negative where a held place is what it is taken for; none if they are not known."""
    op = defining_op(value)
    assert op is not None
    if isinstance(op, SelectOp):
        answer = below_zero(op.operands[0], index, analysis, "")
        if not isinstance(answer, Yes):
            return []
        chosen = op.operands[1] is plain
        return [answer.plan if chosen else _MINUS_ONE.plus(answer.plan, Poly.of(-1))]
    place = analysis.integer(plain, index)
    bound = analysis.integer(op.operands[1] if op.operands[0] is plain else op.operands[0], index)
    if place.residual or not bound.uniform:
        return []
    below, above = place.plus(bound, Poly.of(-1)), bound.plus(place, Poly.of(-1))
    if isinstance(op, RemSIOp):
        return [below, _MINUS_ONE.plus(place, Poly.of(-1))]
    return [(below if isinstance(op, MinSIOp) else above).plus(_MINUS_ONE)]
