"""Conditions where they belong: a masked load is a choice, and a choice goes up through what is strict.

    load if p else v                  (load) if p else v
    exp(x if p else -inf)             exp(x) if p else 0
    (x if p else -inf) - m            x - m if p else -inf
    x if p else (x if q else v)       x if q else v                 where p implies q
    float(p)                          1 if p else 0
    a / sqrt(b)                       a * rsqrt(b)
    widened x                         x

What is known to hold is left out on the way.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tilewright.ir.types import scalar_type
from tilewright.loops.arithmetic import FALSE, TRUE, below, conjunction, implies, negation, never_negative
from tilewright.loops.nest import (
    ALWAYS,
    Apply,
    Below,
    Every,
    Load,
    Node,
    Number,
    Poly,
    Range,
    Select,
    Substitution,
    Symbol,
    Unless,
    applied,
    parts_of,
    ranges_of,
)
from tilewright.ops.casts import ExtFOp, ExtUIOp, TruncFOp, UIToFPOp
from tilewright.ops.elementwise import (
    AddFOp,
    DivFOp,
    DivSIOp,
    MulFOp,
    PreciseDivFOp,
    PreciseSqrtOp,
    SubFOp,
)
from tilewright.ops.math import OPS
from tilewright.ops.spec import Call, spec_of

SQRT, RSQRT = OPS["sqrt"], OPS["rsqrt"]
_SAME: dict[type[Operation], type[Operation]] = {PreciseDivFOp: DivFOp, PreciseSqrtOp: SQRT}  # but for rounding
_BOUNDS: weakref.WeakKeyDictionary[Any, frozenset[Node]] = weakref.WeakKeyDictionary()


class Lifting(Substitution):
    """Expressions with their conditions as far out as they go.

    Args:
        known: what holds wherever the expression is asked for.
        values: polynomials in the places of ranges; None for an expression that has not been lifted yet.
    """

    def __init__(self, known: Every = ALWAYS, values: Mapping[Range, Poly] | None = None) -> None:
        super().__init__(values or {}, self._rule_of)
        self.known, self._lifted = known, values is not None
        self._holding: dict[Node, bool] = {}

    def _image(self, node: Any) -> Any:
        untouched = self._lifted and self._values.keys().isdisjoint(ranges_of(node))
        if untouched and not any(self.holds(condition) for condition in bounds_of(node)):
            return node
        return super()._image(node)

    def _rule_of(self, node: Any) -> Any:
        rule = _RULES.get(type(node))
        return node if rule is None else rule(self, node)

    def holds(self, condition: Node) -> bool:
        """Whether a condition is known to hold."""
        found = self._holding.get(condition)
        if found is None:
            parts = self.known.parts
            found = condition in parts or any(implies(part, condition) for part in parts)
            self._holding[condition] = found
        return found

    def below(self, node: Below) -> Node:
        """A bound that may be known by now."""
        return below(node.poly)

    def every(self, node: Every) -> Node:
        """What is left to ask for."""
        return conjunction([part for part in node.parts if not self.holds(part)])

    def unless(self, node: Unless) -> Node:
        """A condition that may be known by now."""
        return negation(node.conditions) or node

    def load(self, node: Load) -> Node:
        """A load that reads everywhere, chosen where it is read."""
        if node.condition is ALWAYS:
            return node if node.other is None else self._bare(node)
        other = node.other
        if other is None:
            other = Poly.number(0) if _is_integer(node.type) else Number.of("0.0", node.type)
        return self.choice(node.condition, _as(other, self._bare(node)), other)

    @staticmethod
    def _bare(node: Load) -> Node:
        return Load.of(node.base, node.offset, ALWAYS, None, node.type, node.epoch)

    def select(self, node: Select) -> Node:
        """One of two values."""
        return self.choice(node.condition, node.then, node.otherwise)

    def choice(self, condition: Node, then: Node, otherwise: Node) -> Node:
        """One of two values, if it depends on the condition at all."""
        condition = conjunction([condition])
        if condition is ALWAYS or then is otherwise:
            return then
        if FALSE in condition.parts:
            return otherwise
        if isinstance(then, Select) and isinstance(then.condition, Every):
            left = conjunction([p for p in then.condition.parts if not _implied(condition, p)])
            if then.otherwise is otherwise:
                return Select.of(conjunction([condition, left]), then.then, otherwise)
            then = then if left is then.condition else self.choice(left, then.then, then.otherwise)
        weaker = otherwise.condition if isinstance(otherwise, Select) and otherwise.then is then else None
        if isinstance(weaker, Every) and all(_implied(condition, part) for part in weaker.parts):
            return otherwise
        return Select.of(condition, then, otherwise)

    # --- operations ------------------------------------------------------------------------------------

    def apply(self, node: Apply) -> Node:
        """An operation of which a choice may be made outside."""
        if node.op is DivSIOp:
            return self._quotient(node)
        if node.op in _SAME:
            node = Apply.of(_SAME[node.op], node.attributes, node.operands, node.type, node.types)
        if node.op is ExtFOp:
            return node.operands[0]
        if node.op in (UIToFPOp, ExtUIOp) and node.types == ("i1",):
            return self._indicator(node)
        if node.op in (AddFOp, SubFOp):
            return self._beside_infinity(node)
        if node.op is MulFOp:
            return self._scaled_infinity(node)
        return self._strict(node)

    def _quotient(self, node: Apply) -> Node:
        """Nothing, where the number is smaller."""
        number, by = node.operands
        if isinstance(number, Poly) and isinstance(by, Poly) and never_negative(number):
            return Poly.number(0) if self.holds(Below.of(number - by)) else node
        return node

    def _indicator(self, node: Apply) -> Node:
        one, zero = (
            (Poly.number(1), Poly.number(0))
            if _is_integer(node.type)
            else (Number.of("1.0", node.type), Number.of("0.0", node.type))
        )
        (condition,) = node.operands
        if isinstance(condition, (Every, Below)) or condition in (TRUE, FALSE):
            return self.choice(condition, one, zero)
        return node

    def _beside_infinity(self, node: Apply) -> Node:
        """What is added to an infinity does not change it."""
        for number, operand in enumerate(node.operands):
            if isinstance(operand, Select) and (value := float_of(operand.otherwise)) in (math.inf, -math.inf):
                if has_infinity(node.operands[1 - number]):
                    return node
                operands = list(node.operands)
                operands[number] = operand.then
                inside = self(applied(node.op, operands, node.type))
                sign = -1.0 if number and node.op is SubFOp else 1.0
                return self.choice(operand.condition, inside, Number.of(repr(sign * (value or 0)), node.type))
        return node

    def _scaled_infinity(self, node: Apply) -> Node:
        for number, operand in enumerate(node.operands):
            by = float_of(node.operands[1 - number])
            if isinstance(operand, Select) and (value := float_of(operand.otherwise)) is not None and by:
                operands = list(node.operands)
                operands[number] = operand.then
                inside = self(applied(node.op, operands, node.type))
                return self.choice(operand.condition, inside, Number.of(repr(value * by), node.type))
        return node

    def _strict(self, node: Apply) -> Node:
        """An operation on one element that is no constant, of a choice between it and a constant."""
        spec = spec_of(node.op)
        chosen = [o for o in node.operands if isinstance(o, Select)]
        if len(chosen) != 1 or spec.reference is None or not _is_float(node.type) or node.types or node.attributes:
            return node
        (select,) = chosen
        others = [select.otherwise if operand is select else operand for operand in node.operands]
        numbers = [float_of(other) for other in others]
        if None in numbers or node.op is TruncFOp:
            return node
        with np.errstate(all="ignore"):
            folded = float(
                spec.reference(_call(node.type, len(numbers)), *[np.asarray(n, np.float64) for n in numbers])
            )
        inside = self(applied(node.op, [select.then if o is select else o for o in node.operands], node.type))
        return self.choice(select.condition, inside, Number.of(repr(folded), node.type))


_RULES: dict[type[Node], Any] = {
    Below: Lifting.below,
    Every: Lifting.every,
    Unless: Lifting.unless,
    Load: Lifting.load,
    Select: Lifting.select,
    Apply: Lifting.apply,
}


def _implied(condition: Every, part: Node) -> bool:
    return part in condition.parts or any(implies(p, part) for p in condition.parts)


def _call(element: str, operands: int) -> Call:
    type_ = scalar_type(element)
    return Call(operand_types=(type_,) * operands, result_types=(type_,))


def _as(like: Node, load: Node) -> Node:
    return Poly.atom(Symbol.of(load, False)) if isinstance(like, Poly) else load


def _is_integer(type_: str) -> bool:
    return type_.startswith("i") and type_ != "i1"


def _is_float(type_: str) -> bool:
    return type_.startswith(("f", "bf"))


def float_of(node: Node) -> float | None:
    """The value of a constant of floats."""
    return float(node.text) if isinstance(node, Number) and node.type != "i1" else None


def has_infinity(node: Node) -> bool:
    """Whether an expression may choose an infinity."""
    value = float_of(node)
    if value is not None:
        return math.isinf(value)
    return isinstance(node, Select) and (has_infinity(node.then) or has_infinity(node.otherwise))


def bounds_of(node: Any) -> frozenset[Node]:
    """The conditions in an expression."""
    if isinstance(node, (tuple, frozenset)):
        return frozenset().union(*[bounds_of(part) for part in node])
    if not isinstance(node, Node):
        return frozenset()
    found = _BOUNDS.get(node)
    if found is None:
        found = frozenset[Node]().union(*[bounds_of(part) for part in parts_of(node)])
        if isinstance(node, Every):
            found |= node.parts
        _BOUNDS[node] = found
    return found
