"""Sums that are rescaled whenever the number changes that their exponents are taken against.

    l = l * exp(m - m') + t(m')       m' the next m, t(m') = exp(-m') * something

is, after the loop, the sum of all t(M), M being the last m: of a term's factors exp(-m'), exp(m' - m''), and so on,
exp(-M) is left. That is how a softmax reads its row once (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018), and attention its keys.
"""

from __future__ import annotations

import math

from tilewright.loops.lifting import float_of
from tilewright.loops.nest import Apply, Node, Reduce, Select, Substitution, applied, walk
from tilewright.ops.casts import ExtFOp, TruncFOp
from tilewright.ops.elementwise import AddFOp, FmaOp, MulFOp, NegFOp, SubFOp
from tilewright.ops.math import OPS

_EXPONENTIALS = (OPS["exp"], OPS["exp2"])


def scaled_and_added(node: Node, mine: Node) -> tuple[Node, Node] | None:
    """The factor and the term, where an expression is another times the factor, and the term."""
    if isinstance(node, Reduce) and node.monoid is AddFOp and node.first is not None:
        factor = _factor_of(node.first, mine)
        rest = Reduce.of(node.monoid, node.attributes, node.ranges, node.body, None, node.type)
        return None if factor is None else (factor, rest)
    if not isinstance(node, Apply):
        return None
    if node.op is FmaOp:
        factor = _factor_of(applied(MulFOp, node.operands[:2], node.type), mine)
        return None if factor is None else (factor, node.operands[2])
    if node.op is AddFOp:
        for one, other in (node.operands, node.operands[::-1]):
            factor = _factor_of(one, mine)
            if factor is not None:
                return factor, other
    return None


def _factor_of(node: Node, mine: Node) -> Node | None:
    if isinstance(node, Apply) and node.op is MulFOp:
        for one, other in (node.operands, node.operands[::-1]):
            if one is mine:
                return other
    return None


def moved_by(factor: Node) -> tuple[Node, Node] | None:
    """What a factor moves an exponent from and to."""
    if isinstance(factor, Apply) and factor.op in _EXPONENTIALS:
        (difference,) = factor.operands
        if isinstance(difference, Apply) and difference.op is SubFOp:
            return difference.operands[0], difference.operands[1]
    return None


def is_against(node: Node, number: Node) -> bool:
    """Whether an expression is exp(-number) times what does not depend on the number."""
    if isinstance(node, Reduce):
        return node.monoid is AddFOp and is_against(node.body, number) and _is_against_if_any(node.first, number)
    if isinstance(node, Select):
        return is_against(node.then, number) and (float_of(node.otherwise) == 0 or is_against(node.otherwise, number))
    if not isinstance(node, Apply):
        return False
    if node.op in _EXPONENTIALS:
        return _is_minus(node.operands[0], number)
    if node.op in (ExtFOp, TruncFOp):
        return is_against(node.operands[0], number)
    if node.op is MulFOp:
        one, other = node.operands
        return (is_against(one, number) and not depends(other, number)) or (
            is_against(other, number) and not depends(one, number)
        )
    return node.op is AddFOp and all(is_against(operand, number) for operand in node.operands)


def _is_against_if_any(node: Node | None, number: Node) -> bool:
    return node is None or float_of(node) == 0 or is_against(node, number)


def _is_minus(node: Node, number: Node) -> bool:
    """Whether an expression is something less the number."""
    if isinstance(node, Select):
        return float_of(node.otherwise) == -math.inf and _is_minus(node.then, number)
    if not isinstance(node, Apply):
        return False
    *rest, last = node.operands
    taken = last is number if node.op is SubFOp else _is_negated(last, number) and node.op in (AddFOp, FmaOp)
    return taken and not any(depends(operand, number) for operand in rest)


def _is_negated(node: Node, number: Node) -> bool:
    return isinstance(node, Apply) and node.op is NegFOp and node.operands[0] is number


def depends(node: Node, part: Node) -> bool:
    """Whether an expression has a part."""
    return any(found is part for found in walk(node))


def with_number(node: Node, number: Node, other: Node) -> Node:
    """An expression with another number."""
    return Substitution({}, lambda made: other if made is number else made)(node)
