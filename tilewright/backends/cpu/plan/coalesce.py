"""K-coalescing: several trips of a loop that only multiplies run as one product with a larger K.

    for k in 0 .. n:                          for t in 0 .. n by U:        u = min(U, n - t)
      acc += A[:, k BK : (k+1) BK] @ ...  ->    acc += A[:, t BK : (t+u) BK] @ B[t BK : (t+u) BK, :]
      pointers += BK                            pointers += u BK

The accumulator tile is then loaded and stored once for U trips, and the micro-kernels run longer. Legal when the body
holds one dot of two operands in memory and nothing else but scalar arithmetic, when the operands of consecutive trips
lie side by side along K, and when a bound along K shrinks by BK from trip to trip.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot import ELEM, DotPlan
from tilewright.backends.cpu.plan.dot_operands import MemoryOperand, Operand
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import spoken
from tilewright.ir.types import is_integer
from tilewright.ir.values import is_tile, owner_of
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.elementwise import AddFOp, AddIOp, MulIOp, SubIOp
from tilewright.ops.memory import LoadOp

_ARITHMETIC = (AddIOp, SubIOp, MulIOp, ExtSIOp)


@dataclass(eq=False, slots=True)
class Coalescing:
    """How a loop's trips are joined.

    Args:
        loop: the loop.
        factor: most trips in one product.
        steps: what each carried scalar gains in a trip, in their order.
    """

    loop: ForOp
    factor: int
    steps: list[Poly]


def plan_coalescing(dot: Operation, a: Operand, b: Operand, plan: DotPlan) -> Answer[Coalescing]:
    """How the trips of the loop around `dot` are joined, where that is possible and pays."""
    if not isinstance(a, MemoryOperand) or not isinstance(b, MemoryOperand):
        return No(f"operand {'b' if isinstance(a, MemoryOperand) else 'a'} is not read from memory")
    loop = dot.parent_op()
    if not isinstance(loop, ForOp) or dot.parent is not loop.body.block:
        return No("it is not in the body of a for loop", loop if isinstance(loop, WhileOp | IfOp) else None)
    if plan.k != plan.padded_k(plan.k):
        return No(f"a K block of {plan.k} is no multiple of the {plan.k_block} that an instruction takes")
    factor = tuning.JOINED_PANEL_BYTES // (plan.panel_columns * ELEM[plan.operand].bytes) // plan.k
    if factor < 2:
        return No(f"a K block of {plan.k} is large enough by itself")
    if a.conditions or b.conditions:
        return No("a scalar condition is a part of a mask", (a if a.conditions else b).load)
    no = _something_else(loop, dot)
    return no or _side_by_side(loop, a, b, plan, factor)


def _side_by_side(loop: ForOp, a: MemoryOperand, b: MemoryOperand, plan: DotPlan, factor: int) -> Answer[Coalescing]:
    """The plan, if the operands of consecutive trips lie side by side along K, and bounds shrink with them."""
    trip = _Trip(loop)
    steps = trip.carried_steps()
    along_k = (a.strides[1], b.strides[0])
    aligned = all(
        trip.gain(operand.offset) == trip.expanded(stride * Poly.of(plan.k))
        for operand, stride in zip((a, b), along_k, strict=True)
    )
    if steps is None:
        return No("the loop carries a scalar that does not grow evenly")
    if not aligned:
        return No("the operands of consecutive trips do not lie side by side along K")
    shrinking, fixed = (*a.bounds[1], *b.bounds[0]), (*a.bounds[0], *b.bounds[1], *a.strides, *b.strides)
    if any(trip.gain(bound) != Poly.of(-plan.k) for bound in shrinking):
        return No("the bound along K does not shrink by a block in each trip")
    if any(trip.gain(poly) != Poly({}) for poly in fixed):
        return No("a stride, or the bound of rows or columns, changes from trip to trip")
    return Yes(Coalescing(loop, factor, steps), f"up to {factor} trips as one product")


def _something_else(loop: ForOp, dot: Operation) -> No | None:
    """What a body does but to accumulate `dot` and to advance scalars; None if it is nothing."""
    body = loop.body.block
    last = body.last_op
    assert last is not None
    for number, value in enumerate(last.operands):
        if is_tile(value) and value is not dot.results[0] and value is not body.args[number + 1]:
            adds = isinstance(value.owner, AddFOp)
            instead = "acc = tl.dot(a, b, acc)" if adds and dot.results[0] in value.owner.operands else ""  # type: ignore[union-attr]
            return No("the loop carries a tile that is not the product's sum", value.owner, instead)
    if len(list(dot.results[0].uses)) != 1 or dot.operands[2] not in body.args:
        return No("it does not sum into what the loop carries", instead="acc = tl.dot(a, b, acc)")
    for op in body.ops:
        if op is dot or op is last:
            continue
        tile = any(is_tile(result) for result in op.results)
        if op.regions or not is_lazy(op) or (isinstance(op, LoadOp) and not tile):
            return No(f"the loop also has {spoken(op)}", op, "it outside of the loop")
    return None


class _Trip:
    """What scalars gain from one trip of a loop to the next."""

    def __init__(self, loop: ForOp) -> None:
        self.loop = loop
        self.body = loop.body.block
        self._known: dict[SSAValue, Poly] = {}

    def gain(self, poly: Poly) -> Poly | None:
        """How much a polynomial grows from one trip to the next; None if that is not the same for all trips."""
        here = self._substituted(poly, {})
        if here is None:
            return None
        following = self._next()
        there = None if following is None else self._substituted(poly, following)
        if there is None:
            return None
        difference = there + -here
        return None if any(self._inside(atom) for atom in difference.atoms()) else difference

    def expanded(self, poly: Poly) -> Poly | None:
        """A polynomial in the same terms as gains."""
        return self._substituted(poly, {})

    def carried_steps(self) -> list[Poly] | None:
        """Gain of each carried scalar."""
        scalars = [arg for arg in self.body.args[1:] if not is_tile(arg)]
        gains = [self.gain(Poly.atom(arg)) if is_integer(arg.type) else None for arg in scalars]
        found = [gain for gain in gains if gain is not None]
        return found if len(found) == len(gains) else None

    def _inside(self, value: SSAValue) -> bool:
        op = owner_of(value)
        return value.owner is self.body or (op is not None and op.parent is self.body)

    def _next(self) -> dict[SSAValue, Poly] | None:
        """The loop's scalars in the next trip, in terms of those of this one."""
        last = self.body.last_op
        assert last is not None
        counter = self.body.args[0]
        out: dict[SSAValue, Poly] = {counter: Poly.atom(counter) + self._scalar(self.loop.step)}
        for argument, value in zip(self.body.args[1:], last.operands, strict=True):
            if not is_tile(argument):
                advanced = self._expanded(value)
                if advanced is None:
                    return None
                out[argument] = advanced
        return out

    def _scalar(self, value: SSAValue) -> Poly:
        known = constant_of(value)
        return Poly.of(known) if isinstance(known, int) else Poly.atom(value)

    def _expanded(self, value: SSAValue) -> Poly | None:
        """A scalar as a polynomial in the loop's arguments and in scalars that no arithmetic here computes."""
        found = self._known.get(value)
        if found is not None:
            return found
        op = owner_of(value)
        if op is None or constant_of(value) is not None:
            return self._scalar(value)
        parts = [self._expanded(operand) for operand in op.operands] if isinstance(op, _ARITHMETIC) else [None]
        if None in parts:  # opaque: fine if it is computed before the loop
            return None if self._inside(value) else self._scalar(value)
        known = [part for part in parts if part is not None]
        if isinstance(op, ExtSIOp):
            made = known[0]
        elif isinstance(op, MulIOp):
            made = known[0] * known[1]
        else:
            made = known[0] + (known[1] if isinstance(op, AddIOp) else -known[1])
        self._known[value] = made
        return made

    def _substituted(self, poly: Poly, values: dict[SSAValue, Poly]) -> Poly | None:
        """A polynomial with in-loop scalars expanded and the loop's arguments replaced by `values`."""
        total = Poly({})
        for monomial, coefficient in poly.terms.items():
            term = Poly.of(coefficient)
            for atom in monomial:
                factor = self._expanded(atom.value)
                if factor is None or (atom.unsigned and self._inside(atom.value)):
                    return None
                if values:
                    factor = self._replaced(factor, values)
                term = term * factor
            total = total + term
        return total

    def _replaced(self, poly: Poly, values: dict[SSAValue, Poly]) -> Poly:
        total = Poly({})
        for monomial, coefficient in poly.terms.items():
            term = Poly.of(coefficient)
            for atom in monomial:
                term = term * values.get(atom.value, Poly({(atom,): 1}))
            total = total + term
        return total
