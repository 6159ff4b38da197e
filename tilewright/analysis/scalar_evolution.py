"""Scalar evolution: what scalars gain from one iteration of a loop to the next, as polynomials.

for i = lb .. ub by s: iter_args(%k = 0)       gain(k) = BLOCK, gain(i) = s
  yield %k + BLOCK
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from xdsl.ir import SSAValue

from tilewright.analysis.affine import Atom, Poly, scalar_poly
from tilewright.analysis.constants import constant_of
from tilewright.ir.types import is_integer
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.control import ForOp
from tilewright.ops.spec import ring_of


class ScalarEvolution:
    """What scalars gain from one iteration of a loop to the next."""

    def __init__(self, loop: ForOp) -> None:
        self.loop = loop
        self.body = loop.body.block
        self._known: dict[SSAValue, Poly] = {}

    def gain(self, poly: Poly) -> Poly | None:
        """How much a polynomial grows from one iteration to the next; None if iterations differ."""
        here = self._substituted(poly, {})
        if here is None:
            return None
        following = self._next
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
        op = defining_op(value)
        return value.owner is self.body or (op is not None and op.parent is self.body)

    @functools.cached_property
    def _next(self) -> dict[SSAValue, Poly] | None:
        """The loop's scalars in the next iteration, in terms of those of this one."""
        last = self.body.last_op
        assert last is not None
        counter = self.body.args[0]
        out: dict[SSAValue, Poly] = {counter: Poly.atom(counter) + scalar_poly(self.loop.step)}
        for argument, value in zip(self.body.args[1:], last.operands, strict=True):
            if not is_tile(argument):
                advanced = self._expanded(value)
                if advanced is None:
                    return None
                out[argument] = advanced
        return out

    def _expanded(self, value: SSAValue) -> Poly | None:
        """A scalar as a polynomial in the loop's arguments and in scalars that no arithmetic here computes."""
        found = self._known.get(value)
        if found is not None:
            return found
        op = defining_op(value)
        if op is None or constant_of(value) is not None:
            return scalar_poly(value)
        compute = ring_of(op)
        parts = [None] if compute is None else [self._expanded(operand) for operand in op.operands]
        if compute is None or None in parts:  # opaque: fine if it is computed before the loop
            return None if self._inside(value) else scalar_poly(value)
        made: Poly = compute(*parts)
        self._known[value] = made
        return made

    def _substituted(self, poly: Poly, values: dict[SSAValue, Poly]) -> Poly | None:
        """A polynomial with in-loop scalars expanded and the loop's arguments replaced by `values`."""
        known: dict[Atom, Poly] = {}
        for atom in dict.fromkeys([atom for monomial in poly.terms for atom in monomial]):
            found = self._expanded(atom.value)
            if found is None or (atom.unsigned and self._inside(atom.value)):
                return None
            known[atom] = replaced(found, values) if values else found
        return poly.at(known.__getitem__)


def replaced(poly: Poly, values: Mapping[SSAValue, Poly]) -> Poly:
    """A polynomial with other values in the places of some scalars."""
    return poly.at(lambda atom: values.get(atom.value) or Poly({(atom,): 1}))
