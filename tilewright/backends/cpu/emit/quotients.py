"""Quotients and remainders along a loop that is cut where one of them changes: between two cuts they are affine.

    i % n        i - start        where start <= i < start + n
    i // n       start // n

A run is what lies between two cuts. `start` is found where a run of chunks begins, which is the index of a loop around
them (`RUN`), so that what is divided is one number a run. Bounds say where a run ends, as those of masks do
(`masks.py`). Numbers that are as far from one another everywhere have one `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly, Residual
from tilewright.analysis.elements import At, operand_indices
from tilewright.analysis.index import LANE, Index, normal, sources
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.plan.recompute import table_name
from tilewright.backends.llvm.integers import DIVISIONS, REMAINDERS, SIGNED_DIVISIONS
from tilewright.ir.types import element_type, is_pointer
from tilewright.ir.values import defining_op, is_tile

RUN = 1 << 16
"""Number of the loop over runs, which goes through the indices of the loop that is cut."""

_MINUS = Poly.of(-1)
_MINUS_ONE = Form(_MINUS)


class Quotients:
    """The quotients and remainders that a group asks for.

    Args:
        ev: evaluator.
        dim: of the loop that is cut.
        wanted: places and addresses in which they may be, each at an index.
        known: affine forms of whatever else has others than usual.
        suits: whether a form can be tested for many chunks at once.

    Attributes:
        analysis: affine forms in a run.
        bounds: forms that are negative in a run, which are to be tested.
        facts: all that is known to be negative there.
        values: what has a form there.
    """

    def __init__(
        self, ev: Evaluator, dim: int, wanted: Iterable[At], known: AffineAnalysis, suits: Callable[[Form], bool]
    ) -> None:
        self._own, self._suits = frozenset((dim, LANE)), suits
        self.analysis = AffineAnalysis(lambda value: value in ev.placed, ev.analysis.facts)
        self.analysis.taken_for.update(known.taken_for)
        self.bounds: list[Form] = []
        self.facts: list[Form] = []
        self.values: list[SSAValue] = []
        self._forms: dict[At, Form | None] = {}
        self._starts: dict[object, Form] = {}
        self._collect(list(wanted))
        self._settled = True

    _settled = False

    def _collect(self, wanted: list[At]) -> None:
        """Derive the forms of what is wanted, as long as there are quotients in them that have not been looked at."""
        todo = list(wanted)
        while todo:
            value, at = todo.pop()
            for inner, index, _ in _residual(value, at, self.analysis):
                if inner not in self.analysis.taken_for and _division(inner) in DIVISIONS:
                    self.analysis.taken_for[inner] = self._rule
                    self.analysis.forget()
                    todo += [operand_indices(inner, index)[0], (value, at)]

    def _rule(self, analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
        """The form of a quotient or remainder; what is asked for later has no bounds, and so none."""
        if (value, index) not in self._forms and not self._settled:
            self._forms[value, index] = self._derived(value, index)
        return self._forms.get((value, index))

    def _derived(self, value: SSAValue, index: Index) -> Form | None:
        analysis, name = self.analysis, _division(value)
        (dividend, at), (divisor, divisor_at) = operand_indices(value, index)
        place, by = analysis.integer(dividend, at), analysis.integer(divisor, divisor_at)
        positive = analysis.positive(value)
        varies = any(self._own & sources((coord,)) for coord in place.coords)
        if not varies or not by.uniform or not (positive or name in SIGNED_DIVISIONS):
            return None
        if any(self._own & sources(inner) for _, inner, _ in place.residual):
            return None
        begin = self._at_begin(index)
        start, is_own = self._start(value, begin, place, by.constant)
        rest = _difference(place, start)
        rises = all((stride.constant or 0) > 0 for c, stride in place.coords.items() if self._own & sources((c,)))
        below, above = rest.plus(by, _MINUS), _MINUS_ONE.plus(rest, _MINUS)
        bounds = [below] if is_own and rises else [below, above]
        if not positive:
            bounds.append(_MINUS_ONE.plus(place, _MINUS))
        if not all(map(self._suits, bounds)):
            return None
        self.bounds += bounds
        self.facts += [below, above]
        self.values.append(value)
        return rest if name in REMAINDERS else Form(residual=[(value, begin, Poly.of(1))])

    def _start(self, value: SSAValue, begin: Index, place: Form, by: Poly) -> tuple[Form, bool]:
        """The multiple of `by` with which a run begins, and whether it was found for this place."""
        known, number = place.constant, place.constant.terms.get((), 0)
        key = (by, known + Poly.of(-number), frozenset(place.coords.items()), frozenset(place.residual))
        found = self._starts.get(key)
        if found is not None:
            return found, False
        (dividend, at), _ = operand_indices(value, begin)
        if _division(value) in REMAINDERS:
            start = self.analysis.integer(dividend, at).plus(Form(residual=[(value, begin, _MINUS)]))
        else:
            start = Form(residual=[(value, begin, by)])
        return self._starts.setdefault(key, start), True

    def _at_begin(self, index: Index) -> Index:
        """The index of the first element of a run of chunks."""
        (dim,) = self._own - {LANE}
        return tuple(
            normal(tuple([f._replace(src=RUN) if f.src == dim else f for f in coord if f.src != LANE]))
            for coord in index
        )


def is_quotient(value: SSAValue) -> bool:
    """Whether a multiple of a value by its divisor is not larger than what is divided."""
    return _division(value) in DIVISIONS


def has_quotients(wanted: Iterable[At], analysis: AffineAnalysis) -> bool:
    """Whether there are quotients in places and addresses, each at an index."""
    return any(_division(inner) in DIVISIONS for value, at in wanted for inner, _, _ in _residual(value, at, analysis))


def _residual(value: SSAValue, at: Index, analysis: AffineAnalysis) -> list[Residual]:
    if is_tile(value) and is_pointer(element_type(value.type)):
        return analysis.pointer(value, at).offset.residual
    return analysis.integer(value, at).residual


def _division(value: SSAValue) -> str | None:
    op = defining_op(value)
    return None if op is None or not is_tile(value) else table_name(op)


def _difference(one: Form, other: Form) -> Form:
    """`one - other`, without what is in both."""
    left, right = list(one.residual), list(other.residual)
    for part in one.residual:
        if part in right:
            left.remove(part)
            right.remove(part)
    return Form(one.constant, one.coords, left).plus(Form(other.constant, other.coords, right), _MINUS)
