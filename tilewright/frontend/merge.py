"""Joining the values of two branches into the results of an `scf.if`.

A `Merge` walks a pair of values, keeps what both sides share, and asks for one result for each tensor
that differs:

    %r = scf.if %c -> (T) { ...; scf.yield %a } else { ...; scf.yield %b }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute, Block, Region

from tilewright.frontend.builder import IRBuilder, Position, Side
from tilewright.frontend.exits import HIDDEN, NOTHING, UNDEFINED
from tilewright.frontend.structure import is_alike, is_same, map_leaves, parts_of, remake
from tilewright.ops.builtin import to_tensor
from tilewright.ops.control import IfOp, YieldOp
from tilewright.ops.values import constexpr, tensor


class Mismatch(Exception):
    """Two values cannot be one variable."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Place of result `index` in a merged value."""

    index: int


class Merge:
    """Collects the results of one `scf.if`.

    Args:
        builder: makes constants and undefined values where a side lacks a tensor.
        then_side: the branch taken when the condition holds.
        else_side: the other one.
    """

    def __init__(self, builder: IRBuilder, then_side: Side, else_side: Side) -> None:
        self.builder = builder
        self.sides = (then_side, else_side)
        self.pairs: list[tuple[tensor, tensor]] = []

    def value(self, a: Any, b: Any) -> Any:
        """`a` of the then-side and `b` of the else-side as one value, with a `Slot` for each result needed.

        Raises:
            Mismatch: the types differ.
        """
        if a is UNDEFINED or b is UNDEFINED:
            return self._with_undefined(a, b)
        if is_same(a, b):
            return a
        if a is HIDDEN or b is HIDDEN:
            return HIDDEN
        parts, others = parts_of(a), parts_of(b)
        if parts is not None and others is not None:
            if not is_alike(a, b):
                raise Mismatch
            return remake(a, [self.value(x, y) for x, y in zip(parts, others, strict=True)])
        first, second = self._tensor(0, a), self._tensor(1, b)
        if first.type != second.type:
            raise Mismatch
        return self._slot(first, second)

    def _tensor(self, side: int, value: Any) -> tensor:
        if isinstance(value, constexpr) and isinstance(value.value, (bool, int, float)):
            self.builder.position = self.sides[side].end
            return to_tensor(self.builder, value)
        if not isinstance(value, tensor):
            raise Mismatch
        return value

    def _with_undefined(self, a: Any, b: Any) -> Any:
        """One side never reaches the point where the value is used."""
        known, missing = (b, 0) if a is UNDEFINED else (a, 1)

        def pair(leaf: Any) -> Any:
            if not isinstance(leaf, tensor) or self._is_outside(leaf):
                return leaf
            self.builder.position = self.sides[missing].end
            poison = self.builder.poison(leaf.type)
            return self._slot(poison, leaf) if missing == 0 else self._slot(leaf, poison)

        return known if known is UNDEFINED else map_leaves(known, pair)

    def _is_outside(self, leaf: tensor) -> bool:
        """Whether a tensor is computed before the `scf.if`: then both sides may have it."""
        owner: Any = leaf.handle.owner  # type: ignore[attr-defined]
        block = owner if isinstance(owner, Block) else owner.parent
        position = self.sides[0].end.parent
        while position is not None and position.block is not block:
            position = position.parent
        return position is not None

    def _slot(self, first: tensor, second: tensor) -> Slot:
        self.pairs.append((first, second))
        return Slot(len(self.pairs) - 1)

    def build(self, cond: tensor, outer: Position, location: Attribute) -> list[tensor]:
        """Close both sides and put the `scf.if` at `outer`; returns the results that the slots number."""
        builder = self.builder
        builder.location = location
        then_side, else_side = self.sides
        builder.position = outer
        if not self.pairs and then_side.block.first_op is None and else_side.block.first_op is None:
            return []
        for index, side in enumerate(self.sides):
            builder.position = side.end
            builder.finish(YieldOp, [pair[index].handle for pair in self.pairs])
        empty = not self.pairs and else_side.block.first_op is else_side.block.last_op and _only_yields(else_side.block)
        builder.position = outer
        op = IfOp.create(
            operands=[cond.handle],  # type: ignore[list-item]
            result_types=[first.handle.type for first, _ in self.pairs],
            regions=[Region(then_side.block), Region() if empty else Region(else_side.block)],
        )
        builder.append(op)
        return [tensor(r, pair[0].type) for r, pair in zip(op.results, self.pairs, strict=True)]


def _only_yields(block: Block) -> bool:
    return isinstance(block.first_op, YieldOp)


def fill(value: Any, results: Sequence[tensor]) -> Any:
    """A merged value with its slots replaced by the results."""
    if value is NOTHING:
        return value
    return map_leaves(value, lambda leaf: results[leaf.index] if isinstance(leaf, Slot) else leaf)
