"""Trip counts: conditions under which a loop goes on, solved for what it counts.

    i < n                    i < n
    n - i > 0                i < n
    4 * i + k <= n           i < floor((n - k) / 4) + 1
    i < n, then i < m        i < min(n, m)
    i < n, then, at the end of an iteration, i < m            i < min(n, max(m + step, first + 1))

What a loop carries beside its counter and advances alike is a sum in the counter too. Limits that no comparison of the
program computes (one more, one step more) are computed with 64 bits: the largest integer is a usual way to say that
there is no limit. Else index arithmetic is taken not to wrap, as everywhere.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis.affine import Atom, Poly, expanded
from tilewright.analysis.bounds import FAR, wide_numbers
from tilewright.analysis.constants import constant_of
from tilewright.base.order import operands_first
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.types import i32, i64
from tilewright.ir.values import defining_op, is_inside, is_tile
from tilewright.ops.casts import ExtUIOp
from tilewright.ops.elementwise import AddIOp, AndIOp, CmpIOp, DivSIOp, MaxSIOp, MinSIOp, MulIOp, OrIOp, SubIOp, XOrIOp
from tilewright.ops.spec import ring_of
from tilewright.passes.building import Builder
from tilewright.passes.masks import INVERSE
from tilewright.passes.rewriting import move_before

COUNTS = (i32, i64)


@dataclass(frozen=True, slots=True)
class Bound:
    """A loop goes on while ``scale * counter < limit``.

    Args:
        limit: made of values that the loop does not change.
        scale: how often the counter occurs, positive.
        inclusive: whether it also goes on where both are equal.
        behind: whether an iteration asks at its end, of the counter that it had; the first iteration then runs in any
            case.
    """

    limit: Poly
    scale: int = 1
    inclusive: bool = False
    behind: bool = False


@dataclass(frozen=True, slots=True)
class CountedBlock:
    """A block of a loop, seen from its counter.

    Args:
        block: whose arguments the loop carries.
        counter: what stands for the counter in polynomials.
        places: the arguments that are sums in the counter.
    """

    block: Block
    counter: SSAValue
    places: Mapping[SSAValue, Poly]

    def bound(
        self, compare: Operation, *, negated: bool = False, behind: bool, predicate: str | None = None
    ) -> Bound | None:
        """What it says of the counter that `compare` holds, or that it does not; or its operands by a `predicate`."""
        if not isinstance(compare, CmpIOp) or is_tile(compare.operands[0]):
            return None
        predicate = predicate or compare.attr_values()["predicate"]
        predicate = INVERSE[predicate] if negated else predicate
        left, right = (self._sum(side) for side in compare.operands)
        if left is None or right is None or predicate not in ("slt", "sle", "sgt", "sge"):
            return None
        rest = left + -right if predicate in ("slt", "sle") else right + -left
        own = {monomial: c for monomial, c in rest.terms.items() if any(a.value is self.counter for a in monomial)}
        if len(own) != 1 or any(len(monomial) > 1 for monomial in own):
            return None
        scale = next(iter(own.values()))
        if scale < 0:
            return None
        limit, inclusive = -(rest + Poly({m: -c for m, c in own.items()})), predicate in ("sle", "sge")
        if limit.constant is None:
            return Bound(limit, scale, inclusive, behind)
        number = limit.constant // scale + 1 if inclusive else -(-limit.constant // scale)
        return Bound(Poly.of(number), 1, False, behind)

    def _sum(self, root: SSAValue) -> Poly | None:
        """A scalar as a polynomial; None if something else that the loop changes is in it."""
        known: dict[SSAValue, Poly | None] = {}

        def operands(value: SSAValue) -> Sequence[SSAValue]:
            op = defining_op(value)
            return op.operands if op is not None and ring_of(op) is not None and op.parent is self.block else ()

        for value in operands_first(root, operands, known):
            parts = [known[operand] for operand in operands(value)]
            known[value] = self._made_of(value, [part for part in parts if part is not None], None in parts)
        return known[root]

    def _made_of(self, value: SSAValue, parts: list[Poly], lost: bool) -> Poly | None:
        op, number = defining_op(value), constant_of(value)
        if isinstance(number, int):
            return Poly.of(number)
        if value in self.places or value.owner is self.block:
            return self.places.get(value)
        if not parts and not lost:
            return Poly.atom(value) if stays(value, self.block) else None
        compute = ring_of(op)
        return None if lost or compute is None else compute(*parts)


def operands_in(block: Block) -> Callable[[SSAValue], Sequence[SSAValue]]:
    """What the operations of a block compute a value from; nothing for values from elsewhere."""

    def operands(value: SSAValue) -> Sequence[SSAValue]:
        op = defining_op(value)
        return op.operands if op is not None and op.parent is block else ()

    return operands


def stays(root: SSAValue, block: Block) -> bool:
    """Whether a value is the same in all iterations and can be computed before the loop whose block this is."""
    known: set[SSAValue] = set()

    for value in operands_first(root, operands_in(block), known):
        op = defining_op(value)
        if value.owner is block or (op is not None and op.parent is block and not is_free(op)):
            return False
        known.add(value)
    return True


def is_free(op: Operation) -> bool:
    """Whether an operation may run anywhere, and any number of times."""
    return not op.regions and is_without_effects(op)


def conjuncts(root: SSAValue, *, negated: bool = False) -> Iterator[tuple[SSAValue, bool]]:
    """Truth values which together say `root` (that it is false if `negated`), each with whether it must be false."""
    todo = [(root, negated)]
    while todo:
        value, negated = todo.pop()
        op = defining_op(value)
        if isinstance(op, OrIOp if negated else AndIOp):
            todo += [(operand, negated) for operand in reversed(op.operands)]
        elif isinstance(op, XOrIOp) and constant_of(op.operands[1]):
            todo.append((op.operands[0], not negated))
        elif constant_of(value) is None or bool(constant_of(value)) is negated:
            yield value, negated


def _is_of_loop(value: SSAValue) -> bool:
    """Whether a value is an argument of a block that is not a function's, which has no operands."""
    around = value.owner.parent_op() if isinstance(value.owner, Block) else None
    return around is not None and bool(around.operands)


# --- computed ahead of a loop ------------------------------------------------------------------------------------

_FOLDED: Mapping[type[Operation], Callable[[int, int], int]] = {
    AddIOp: operator.add, SubIOp: operator.sub, MulIOp: operator.mul, MinSIOp: min, MaxSIOp: max,
}  # fmt: skip


class Preheader(Builder):
    """Puts integer arithmetic of one type in front of a loop.

    Args:
        loop: the loop.
        type_: of the numbers, i32 or i64.
        counts: what they are compared with; where that has fewer bits, wide numbers are held so that no sum overflows.
    """

    def __init__(self, loop: Operation, type_: Attribute, counts: Attribute | None = None) -> None:
        super().__init__(loop)
        self.type_, self.counts = type_, counts

    def known(self, value: SSAValue | int) -> SSAValue:
        """A number as a value."""
        return value if isinstance(value, SSAValue) else self.number(value, self.type_)

    def apply(self, kind: type[Operation], a: SSAValue | int, b: SSAValue | int) -> SSAValue:
        """The result of an operation with two operands, computed now where both are numbers."""
        left, right = (v if isinstance(v, int) else constant_of(v) for v in (a, b))
        if isinstance(left, int) and isinstance(right, int) and kind in _FOLDED:
            return self.known(_FOLDED[kind](left, right))
        return self.op(kind, self.known(a), self.known(b))

    def sum(self, of: Poly) -> SSAValue:
        """A polynomial of values that are known before the loop, or can be moved there."""
        total: SSAValue | None = None
        for monomial, coefficient in sorted(of.terms.items(), key=lambda term: (not term[0], term[1] < 0)):
            factors = [self.converted(atom.value) for atom in monomial]
            times = abs(coefficient)
            term = factors[0] if factors else self.known(times)
            for factor in factors[1:]:
                term = self.apply(MulIOp, term, factor)
            if factors and times != 1:
                term = self.apply(MulIOp, term, times)
            if total is None and coefficient > 0:
                total = term
            else:
                total = self.apply(
                    SubIOp if coefficient < 0 else AddIOp, self.known(0) if total is None else total, term
                )
        return self.known(0) if total is None else total

    def bound(self, of: Poly) -> SSAValue:
        """A sum of 64 bits that places are compared with; wide numbers are held where no sum passes 0."""
        numbers = expanded(of)
        wide = [atom for (atom,) in wide_numbers(numbers).terms if not _is_of_loop(atom.value)]
        if not wide:
            return self.sum(of)
        for atom in wide:
            scale = numbers.terms[(atom,)]
            held = self.apply(MinSIOp, self.apply(MaxSIOp, self.converted(atom.value), -FAR), FAR)
            numbers = numbers + Poly({(atom,): -scale}) + Poly({(Atom(held),): scale})
        return self.sum(numbers)

    def converted(self, value: SSAValue) -> SSAValue:
        """A value with this type, computed before the loop."""
        compute_before(value, self.anchor)
        return self.resized(value, self.type_)

    def end(self, bound: Bound, first: SSAValue, step: SSAValue | int) -> SSAValue:
        """The first number of the counter with which the loop no longer goes on."""
        limit = self.sum(bound.limit) if self.counts in (None, self.type_) else self.bound(bound.limit)
        if bound.scale != 1:
            limit = self._divided(limit, bound)
        elif bound.inclusive:
            limit = self.apply(AddIOp, limit, 1)
        if not bound.behind:
            return limit
        wide = self.converted(step) if isinstance(step, SSAValue) else step
        return self.apply(MaxSIOp, self.apply(AddIOp, limit, wide), self.apply(AddIOp, self.converted(first), 1))

    def _divided(self, limit: SSAValue, bound: Bound) -> SSAValue:
        """Rounded up; or down, and one more."""
        scale = self.known(bound.scale)
        quotient = self.apply(DivSIOp, limit, scale)  # toward zero: what is left has the sign of the limit
        left = self.apply(SubIOp, limit, self.apply(MulIOp, quotient, scale))
        more = self.compare("sge" if bound.inclusive else "sgt", left, self.known(0))
        return self.apply(AddIOp, quotient, self.cast(ExtUIOp, more, self.type_))


def compute_before(root: SSAValue, loop: Operation) -> None:
    """Move what computes a value, of which `stays` holds, in front of a loop."""

    def operands(value: SSAValue) -> Sequence[SSAValue]:
        op = defining_op(value)
        return op.operands if op is not None and is_inside(op, loop) else ()

    for value in operands_first(root, operands, ()):
        op = defining_op(value)
        if op is not None and is_inside(op, loop):
            move_before(op, loop)


def end_of(bounds: Sequence[Bound], loop: Operation, first: SSAValue, step: SSAValue | int) -> SSAValue:
    """Where a loop ends that goes on as long as all of some conditions hold.

    Args:
        bounds: of its counter.
        loop: in front of which the end is computed.
        first: the counter's first number.
        step: positive.
    """
    preheader, wide = Preheader(loop, first.type), Preheader(loop, i64, first.type)
    if first.type == i32 and _needs_64_bits(bounds):
        end = least_end(wide, bounds, first, step)
        return preheader.converted(wide.apply(MaxSIOp, end, wide.converted(first)))  # far below is no iteration either
    return least_end(preheader, bounds, first, step)


def _needs_64_bits(bounds: Sequence[Bound]) -> bool:
    if any(atom.type == i64 for bound in bounds for atom in bound.limit.atoms()):
        return True
    return len(bounds) > 1 and not all(_is_plain(bound) for bound in bounds)


def _is_plain(bound: Bound) -> bool:
    """Whether the end is a number of 32 bits that stands in the program."""
    if bound.inclusive or bound.behind or bound.scale != 1:
        return False
    number = bound.limit.constant
    return len(bound.limit.terms) == 1 if number is None else abs(number) < 1 << 31


def least_end(preheader: Preheader, bounds: Sequence[Bound], first: SSAValue, step: SSAValue | int) -> SSAValue:
    """The least of the numbers of the counter with which a loop no longer goes on."""
    total, *rest = (preheader.end(bound, first, step) for bound in bounds)
    for end in rest:
        total = preheader.apply(MinSIOp, total, end)
    return total
