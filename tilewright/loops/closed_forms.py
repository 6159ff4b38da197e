"""What loops carry, without the loop where there is a closed form.

    moves      next = old + step, step the same in all iterations     old = first + iteration * step
    delayed    next = f(iteration), first = f(-1)                     old = f(iteration - 1)      prefetched loads
    reduced    next = old (+) term, term without what is carried      after the loop: first (+) the reduction of term
    otherwise  a recurrence

The first two are induction variables (Muchnick, "Advanced Compiler Design and Implementation", 1997, 14.1) and the
inverse of loads issued an iteration ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from xdsl.ir import Operation, SSAValue

from tilewright.analysis import affine
from tilewright.analysis.iterations import way_to
from tilewright.base.order import operands_first, reached
from tilewright.ir.types import bit_width, element_type, ir_name, is_integer, is_pointer, shape_of
from tilewright.ir.values import defining_op, is_inside, is_tile, operands_of
from tilewright.loops.arithmetic import at_least_zero, before_end, conjunction, extent_of, rounded_up
from tilewright.loops.lifting import Lifting, bounds_of, float_of
from tilewright.loops.nest import (
    ALWAYS,
    ONE,
    ZERO,
    Apply,
    Carried,
    Index,
    Node,
    Number,
    Parts,
    Poly,
    Range,
    Recurrence,
    Reduce,
    Select,
    Substitution,
    Symbol,
    applied,
    polynomial,
    walk,
)
from tilewright.loops.rescaled import is_against, moved_by, scaled_and_added, with_number
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddFOp, AddIOp, FmaOp, MulFOp, NegFOp, SubFOp
from tilewright.ops.spec import spec_of


class Values(Protocol):
    """What gives the expressions of values (`raising.py`)."""

    def value(self, value: SSAValue, index: Index = ()) -> Node: ...
    def poly(self, value: SSAValue, index: Index = ()) -> Poly: ...
    def address(self, value: SSAValue, index: Index = ()) -> tuple[Node, Poly]: ...
    def dims(self, key: object, shape: tuple[int, ...]) -> Index: ...
    def forget(self, iteration: Range) -> None: ...


@dataclass(frozen=True, slots=True)
class _Moves:
    """An integer or a pointer that gains `step` at `dims` in each iteration."""

    dims: Index
    step: Poly


@dataclass(frozen=True, slots=True)
class _Delayed:
    """A value that is `next` of the iteration before; behind the loop, too, unless it `ends` with the last one."""

    dims: Index
    next: Node
    ends: bool


@dataclass(slots=True)
class Loop:
    """A loop as a range.

    Args:
        op: the loop.
        iteration: its range.
        counter: what the body calls the counter.
        closed: closed forms of what it carries, by number.
    """

    op: ForOp
    iteration: Range
    counter: Poly
    closed: dict[int, _Moves | _Delayed] = field(default_factory=dict)

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        return tuple(self.op.yielded)


class LoopValues:
    """What loops carry and give.

    Args:
        values: expressions of everything else.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self._loops: dict[ForOp, Loop] = {}
        self._ranges: dict[ForOp, Range] = {}

    def of(self, op: ForOp) -> Loop:
        """A loop, with all closed forms that there are."""
        found = self._loops.get(op)
        if found is None:
            found = self._loops[op] = self._begun(op)
            numbers = _sources_first(op)
            while [n for n in numbers if n not in found.closed and self._close(found, n)]:
                pass  # what has been closed may close what it is made of in a circle
        return found

    def _begun(self, op: ForOp) -> Loop:
        low, high, step = (self._values.poly(value) for value in (op.lb, op.ub, op.step))
        count = Lifting()(extent_of(_steps(high - low, step)))
        iteration = self._ranges.get(op)
        if iteration is None or iteration.extent is not count:
            iteration = self._ranges[op] = Range.new(count)
        return Loop(op, iteration, low + step * Poly.atom(iteration))

    def counted(self, value: SSAValue) -> Poly | None:
        """The number of iterations of a loop, if that is how a value is computed (`passes/unit_loops.py`)."""
        way = way_to(value)
        if way is None:
            return None
        return at_least_zero(extent_of(_steps(self._translated(way.distance), self._translated(way.step))))

    def _translated(self, poly: affine.Poly) -> Poly:
        """A polynomial of `analysis/` in the terms of a nest."""
        terms = [(self._values.poly(a.value) for a in monomial) for monomial in poly.terms]
        parts = zip(terms, poly.terms.values(), strict=True)
        return sum((math.prod(atoms, start=Poly.number(c)) for atoms, c in parts), start=ZERO)

    def _forget_inside(self, op: ForOp) -> None:
        """Forms of loops inside of one were found when less was known of it."""
        for other in [other for other in self._loops if is_inside(other, op)]:
            del self._loops[other]

    # --- closed forms --------------------------------------------------------------------------------------

    def _close(self, loop: Loop, number: int) -> bool:
        """Look for a closed form of what a loop carries; says whether there is one."""
        form = self._closed(loop, number, loop.yielded[number])
        if form is None:
            return False
        loop.closed[number] = form
        self._forget_inside(loop.op)
        self._values.forget(loop.iteration)
        return True

    def _closed(self, loop: Loop, number: int, yielded: SSAValue) -> _Moves | _Delayed | None:
        element = element_type(yielded.type)
        dims = self._values.dims((loop.op, number), tuple(shape_of(yielded.type)))
        mine = Carried.of(loop.iteration, number, dims)
        if is_pointer(element):
            base, offset = self._values.address(yielded, dims)
            return _Moves(dims, offset) if base is mine and self._fixed(loop, offset) else None
        following = self._values.value(yielded, dims)
        if is_integer(element) and bit_width(element) >= 32:
            step = polynomial(following) - polynomial(mine)
            if self._fixed(loop, step):
                return _Moves(dims, step)
        if _is_combined(following, mine):
            return None  # it is made of what was there before, whatever else holds
        first = self._values.value(loop.op.iter_args[number], dims)
        if not carried_in(following, loop.iteration) and self._at(loop, following, -ONE) is first:
            return _Delayed(dims, following, ends=False)
        goes_on = Lifting(conjunction(before_end(loop.iteration.extent, Poly.atom(loop.iteration) + ONE)))
        if not any(goes_on.holds(bound) for bound in bounds_of(following)):
            return None
        known = goes_on(following)
        if known is following or carried_in(known, loop.iteration):
            return None
        image = Lifting(ALWAYS, {loop.iteration: -ONE})(known)
        return _Delayed(dims, known, ends=True) if image is Lifting()(first) else None

    def is_delayed(self, op: ForOp, number: int) -> bool:
        """Whether what a loop carries is what it would have made in the iteration before."""
        return isinstance(self.of(op).closed.get(number), _Delayed)

    @staticmethod
    def _fixed(loop: Loop, step: Poly) -> bool:
        """Whether a step is the same in all iterations."""
        return not any(part is loop.iteration or _is_carried(part, loop.iteration) for part in walk(step))

    @staticmethod
    def _at(loop: Loop, node: Node, iteration: Poly) -> Node:
        return Substitution({loop.iteration: iteration})(node)

    # --- inside the loop -----------------------------------------------------------------------------------

    def argument(self, op: ForOp, position: int, index: Index) -> Node:
        """An argument of the body: the counter, or what is carried, at the start of an iteration."""
        loop = self.of(op)
        if position == 0:
            return loop.counter
        return self._after(loop, position - 1, index, Poly.atom(loop.iteration)) or _as_polynomial(
            op.iter_args[position - 1], Carried.of(loop.iteration, position - 1, index)
        )

    def _after(self, loop: Loop, number: int, index: Index, iterations: Poly) -> Node | None:
        """What is carried, behind so many iterations, by its closed form."""
        form, first = loop.closed.get(number), loop.op.iter_args[number]
        if form is None or is_pointer(element_type(first.type)):
            return None
        here = Substitution(dict(zip(_ranges(form.dims), _places(form.dims, index), strict=True)))
        if isinstance(form, _Moves):
            return self._values.poly(first, index if is_tile(first) else ()) + iterations * here(form.step)
        if form.ends and iterations is not Poly.atom(loop.iteration):
            return None
        return self._at(loop, here(form.next), iterations - ONE)

    def moved_pointer(self, op: ForOp, position: int, index: Index) -> tuple[Node, Poly] | None:
        """Base and offset of a pointer that a loop carries, in an iteration."""
        loop = self.of(op)
        return self._pointer_after(loop, position - 1, index, Poly.atom(loop.iteration))

    def pointer_behind(self, op: ForOp, number: int, index: Index) -> tuple[Node, Poly] | None:
        """Base and offset of a pointer that a loop gives."""
        loop = self.of(op)
        return self._pointer_after(loop, number, index, _iterations(loop))

    def _pointer_after(self, loop: Loop, number: int, index: Index, iterations: Poly) -> tuple[Node, Poly] | None:
        form = loop.closed.get(number)
        if not isinstance(form, _Moves):
            return None
        here = Substitution(dict(zip(_ranges(form.dims), _places(form.dims, index), strict=True)))
        base, offset = self._values.address(loop.op.iter_args[number], index)
        return base, offset + iterations * here(form.step)

    # --- after the loop -----------------------------------------------------------------------------------

    def result(self, op: ForOp, number: int, index: Index) -> Node:
        """What a loop gives."""
        loop = self.of(op)
        closed = self._after(loop, number, index, _iterations(loop))
        return _as_polynomial(op.results[number], closed or self._reduced(op, loop, number, index))

    def _reduced(self, op: ForOp, loop: Loop, number: int, index: Index) -> Node:
        yielded, first = loop.yielded[number], loop.op.iter_args[number]
        mine = Carried.of(loop.iteration, number, index)
        element = ir_name(element_type(yielded.type))
        found = combined(self._values.value(yielded, index), mine, element)
        if found is not None and not carried_in(found[1], loop.iteration):
            monoid, term = found
            return Reduce.of(monoid, (), (loop.iteration,), term, self._values.value(first, index), element)
        rescaled = self._rescaled(op, loop, number, index)
        return rescaled or Recurrence.of(loop.iteration, number, index, self.parts(op, [number]))

    def _rescaled(self, op: ForOp, loop: Loop, number: int, index: Index) -> Node | None:
        """A sum that is rescaled when the number changes that its exponents are against, as one against the last."""
        first, following = (self._values.value(v[number], index) for v in (loop.op.iter_args, loop.yielded))
        found = scaled_and_added(following, Carried.of(loop.iteration, number, index))
        moved = None if found is None else moved_by(found[0])
        if found is None or moved is None or not isinstance(moved[0], Carried):
            return None
        before, after, term = moved[0], moved[1], found[1]
        other = before.number
        if before.iteration is not loop.iteration or after is not self._values.value(loop.yielded[other], before.index):
            return None
        begins = self._values.value(loop.op.iter_args[other], before.index)
        last = self.result(op, other, before.index)
        made = with_number(term, after, last)
        if not is_against(term, after) or carried_in(made, loop.iteration):
            return None
        element = ir_name(element_type(loop.yielded[number].type))
        begun = with_number(with_number(applied(MulFOp, (first, found[0]), element), after, last), before, begins)
        none = float_of(first) == 0 or float_of(begins) == -math.inf
        return Reduce.of(AddFOp, (), (loop.iteration,), made, None if none else begun, element)

    def parts(self, op: ForOp, numbers: Iterable[int]) -> Parts:
        """The values that recurrences are of: those that the next value of one of them needs."""
        loop = self.of(op)
        found: dict[int, tuple[Index, Node, Node]] = {}

        def needed(n: int) -> list[int]:
            return sorted({part.number for part in walk(found[n][2]) if _is_carried(part, loop.iteration)})

        for n in reached(numbers, needed):
            first, yielded = loop.op.iter_args[n], loop.yielded[n]
            dims = self._values.dims((loop.op, n), tuple(shape_of(yielded.type)))
            following = self._values.value(yielded, dims)
            found[n] = (dims, self._values.value(first, dims), following)
        return tuple((n, *found[n]) for n in sorted(found))


def _sources_first(op: ForOp) -> list[int]:
    """The numbers of what a loop carries, each behind those that its next value is made of where there is no circle.

    So loads that are handed on from one to the next are all closed in one round.
    """
    numbers = {argument: number for number, argument in enumerate(op.carried)}
    yielded, body = op.yielded, op.body.block
    found, known = list[int](), set[SSAValue]()

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        if value in numbers:
            return (yielded[numbers[value]],)
        by = defining_op(value)
        return operands_of(by) if by is not None and by.parent is body else ()

    for argument in numbers:
        for value in operands_first(argument, made_of, known):
            known.add(value)
            if value in numbers:
                found.append(numbers[value])
    return found


def _iterations(loop: Loop) -> Poly:
    """How many iterations a loop has: none where its extent is negative."""
    return at_least_zero(loop.iteration.extent)


def _steps(distance: Poly, step: Poly) -> Poly:
    """How many steps go along a distance: none, or less, where that is negative."""
    by = step.constant
    if by == 1:
        return distance
    if by is not None and by > 1:
        return rounded_up(distance, by)
    return polynomial(applied(ForOp, (ZERO, distance, step), "i32"), nonnegative=True)


def _is_combined(node: Node, mine: Node) -> bool:
    """Whether an operation on what is carried makes an expression."""
    return mine in (node.operands if isinstance(node, Apply) else (node.first,) if isinstance(node, Reduce) else ())


def _ranges(dims: Index) -> list[Range]:
    return [atom for dim in dims for atom in dim.atoms if isinstance(atom, Range)]


def _places(dims: Index, index: Index) -> list[Poly]:
    return [place for dim, place in zip(dims, index, strict=True) if dim is not ZERO]


def _is_carried(part: object, iteration: Range) -> bool:
    return isinstance(part, Carried) and part.iteration is iteration


def carried_in(node: Node, iteration: Range) -> bool:
    """Whether an expression needs what a loop carries without a closed form."""
    return any(_is_carried(part, iteration) for part in walk(node))


def _as_polynomial(value: SSAValue, node: Node) -> Node:
    element = element_type(value.type)
    return polynomial(node) if is_integer(element) and bit_width(element) > 1 else node


# --- values that are combined with what was there before ------------------------------------------------------------

Combined = tuple[type[Operation], Node]


def combined(node: Node, mine: Node, element: str) -> Combined | None:
    """The monoid and the term by which an expression is another, combined with the term; None if it is not.

    Args:
        node: the expression.
        mine: what it is to be made of, once.
        element: type of both.
    """
    if isinstance(node, Poly):
        symbol = next((a for m, c in node.key for a in m if isinstance(a, Symbol) and a.value is mine), None)
        by = None if symbol is None else node.coefficient(symbol)
        return None if symbol is None or by is not ONE else (AddIOp, node - Poly.atom(symbol))
    if isinstance(node, Reduce) and node.first is not None and node.monoid is not None:
        rest = Reduce.of(node.monoid, node.attributes, node.ranges, node.body, None, node.type)
        return _joined(node.monoid, node.first, rest, mine, element)
    if isinstance(node, Select):
        return _of_sides(node, mine, element)
    if not isinstance(node, Apply):
        return None
    if node.op is SubFOp:
        return _joined(AddFOp, node.operands[0], applied(NegFOp, node.operands[1:], element), mine, element)
    if node.op is FmaOp:
        product = applied(MulFOp, node.operands[:2], element)
        return _joined(AddFOp, node.operands[2], product, mine, element)
    monoid = spec_of(node.op).monoid
    if monoid is None or len(node.operands) != 2:
        return None
    one, other = node.operands
    return _joined(node.op, one, other, mine, element) or (
        _joined(node.op, other, one, mine, element) if monoid.commutes else None
    )


def _joined(monoid: type[Operation], one: Node, other: Node, mine: Node, element: str) -> Combined | None:
    """`one (+) other`, of which `one` is, or is made of, `mine`."""
    if one is mine:
        return monoid, other
    found = combined(one, mine, element)
    if found is None or found[0] is not monoid:
        return None
    return monoid, applied(monoid, (found[1], other), element)


def _of_sides(node: Select, mine: Node, element: str) -> Combined | None:
    """Under a condition a term, otherwise another, or none."""
    sides = [combined(side, mine, element) for side in (node.then, node.otherwise) if side is not mine]
    monoids = {side[0] for side in sides if side is not None}
    if None in sides or len(monoids) != 1:
        return None
    (monoid,) = monoids
    terms = iter([side[1] for side in sides if side is not None])
    neutral = identity_of(monoid, element)
    then, otherwise = (neutral if side is mine else next(terms) for side in (node.then, node.otherwise))
    return monoid, Select.of(node.condition, then, otherwise)


def identity_of(monoid: type[Operation], element: str) -> Node:
    """The neutral element of a monoid."""
    known = spec_of(monoid).monoid
    assert known is not None
    bits = int("".join(c for c in element if c.isdigit()) or 32)
    value = known.identity(bits)
    if element.startswith(("i", "u")) and element != "i1":
        return Poly.number(int(value))
    return Number.of(repr(float(value)), element)
