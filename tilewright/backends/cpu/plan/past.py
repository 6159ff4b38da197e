"""Chunks past the end of a row, in which all masks are false: what they store is left out, what they compute is one.

A block is often the next power of two above a row, 8,192 elements for 5,120. There a load is what stands for elements
that are not there, and whatever is made of that alone is the same in all these chunks:

    for chunk = limit .. end + 1:       the masked ones, and the first one past the end
    for chunk = end + 1 .. extent:      accumulators and tiles in scratch take in that one's values again

A group that only stores ends at `end`; so does one that sums what is zero past it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form
from tilewright.analysis.bounds import is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices, side_bit
from tilewright.analysis.index import Index
from tilewright.analysis.slices import slices_of
from tilewright.backends.cpu.plan.recompute import cast_name, is_lazy
from tilewright.backends.cpu.plan.steps import Buffer, Step
from tilewright.backends.cpu.plan.unseen import is_made_in_loop
from tilewright.backends.cpu.plan.wrapped import implies
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import operands_first
from tilewright.ir.traits import is_view
from tilewright.ir.types import shape_of
from tilewright.ir.values import is_tile, owner_of
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import AddFOp, AddIOp, MulFOp, SelectOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import single_operation
from tilewright.ops.shape import CatOp, JoinOp

At = tuple[SSAValue, Index]

_SUMS = (AddFOp, AddIOp)
FEWEST_CHUNKS = 4
"""Chunks of a row, of fewer of which hardly any can lie past its end."""


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of the chunks past the end.

    Args:
        forms: none of them is negative there.
        again: roots whose values are taken in again, in the order of the sinks; none in a group that only stores, or
            adds zeros.
    """

    forms: list[Form]
    again: list[SSAValue]


def plan_past(
    step: Step, indices: list[Index], dim: int, false: dict[At, Form], placed: dict[SSAValue, Buffer]
) -> Answer[Past]:
    """Whether the chunks past the end of a loop need not be computed each.

    Args:
        step: the group.
        indices: of its chunks.
        dim: of the innermost loop.
        false: the comparisons that are false there, with the form that is not negative then.
        placed: tiles in scratch.
    """
    if not false:
        return No("no mask ends with the row")
    known = _Known(dim, frozenset(false), placed)
    again, adds_nothing = [], True
    for sink in step.sinks:
        if sink.kind == "store":
            if not all(len(sink.roots) > 2 and known.is_false((sink.roots[2], index)) for index in indices):
                return No("a store goes on where masks end", sink.op)
            continue
        if sink.source is not None:
            return No("a tile is copied", sink.op)
        for root in sink.roots:
            causes = (known.cause((root, index)) for index in indices)
            cause = next((value for value in causes if value is not None), None)
            if cause is not None:
                return No("elements past the end differ", owner_of(cause))
        again += sink.roots
        sums = sink.kind == "reduce" and sink.op and isinstance(single_operation(sink.op.regions[0].block), _SUMS)
        adds_nothing &= bool(sums) and all(known.is_zero((sink.roots[0], index)) for index in indices)
    again = [] if adds_nothing else again
    return Yes(Past(list(false.values()), again), "computed once" if again else "left out")


def is_unseen(step: Step, dim: int, bound: Form, analysis: AffineAnalysis) -> bool:
    """Whether nothing that a group makes past the end of a dim is ever stored, so that it need not be made.

    Args:
        step: the group.
        dim: rows of it.
        bound: the number, in the coordinate of `dim`, that is not negative past the end.
        analysis: of the function.
    """
    masks: list[tuple[SSAValue | None, int]] = []
    for sink in step.sinks:
        if sink.kind == "store":
            masks.append((sink.roots[2] if len(sink.roots) > 2 else None, dim))
            continue
        if sink.source is not None or sink.axis == dim or shape_of(sink.roots[0].type) != step.shape:
            return False
        if any(is_made_in_loop(atom) for atom in bound.constant.atoms()):
            return False  # another trip may store it
        reduced = sink.op if sink.kind == "reduce" else None
        made = sink.roots if reduced is None else reduced.results
        rows = dim if reduced is None else dim - (sink.axis < dim)
        for slices in (slices_of(value, rows) for value in made):
            if slices.mixed is not None or slices.loads:
                return False
            stores = slices.stores.items()
            masks += [(op.operands[2] if len(op.operands) > 2 else None, place) for op, place in stores]
    return all(mask is not None and implies(mask, place, bound, analysis) for mask, place in masks)


@dataclass(slots=True)
class _Known:
    """Which values are the same in all chunks past the end.

    Args:
        dim: of the loop over the chunks.
        false: comparisons that are false in all of them.
        placed: tiles in scratch.
        one: of values that were asked about, whether they are.
    """

    dim: int
    false: frozenset[At]
    placed: dict[SSAValue, Buffer]
    one: dict[At, bool] = field(default_factory=dict)

    def is_false(self, at: At) -> bool:
        """Whether a mask is surely false."""
        op = owner_of(at[0])
        if at in self.false:
            return True
        return op is not None and is_conjunction(op) and any(map(self.is_false, operand_indices(*at)))

    def is_zero(self, at: At) -> bool:
        """Whether a value is surely zero."""
        value, op = at[0], owner_of(at[0])
        if constant_of(value) == 0:
            return True
        if op is None or not is_tile(value) or value in self.placed:
            return False
        operands = operand_indices(*at)
        if isinstance(op, LoadOp):
            return len(operands) > 1 and self.is_false(operands[1]) and all(map(self.is_zero, operands[2:]))
        if isinstance(op, SelectOp):
            return self.is_zero(operands[2]) and (self.is_false(operands[0]) or self.is_zero(operands[1]))
        if isinstance(op, MulFOp | AddFOp | AddIOp) or is_view(op) or cast_name(op) in ("extf", "truncf", "sitofp"):
            return all(map(self.is_zero, operands))  # zero times infinity is not zero
        return False

    def cause(self, root: At) -> SSAValue | None:
        """A value because of which a root is not the same; None if it is."""
        for at in operands_first(root, lambda at: self._made_of(at) or (), self.one):
            parts = self._made_of(at)
            self.one[at] = parts is not None and all(self.one[part] for part in parts)
            if parts is None:
                return at[0]
        return None

    def _made_of(self, at: At) -> list[At] | None:
        """What decides on a value there; None if it is the place of the element, or nobody knows what."""
        value, index = at
        along = any(part.src == self.dim for coord in index for part in coord)
        if not is_tile(value) or not along or constant_of(value) is not None or self.is_false(at):
            return []
        op = owner_of(value)
        if op is None or value in self.placed or not is_lazy(op) or isinstance(op, MakeRangeOp | GatherOp):
            return None
        if isinstance(op, JoinOp | CatOp) and any(part.src == self.dim for part in side_bit(op, *at)[0]):
            return None
        if isinstance(op, LoadOp) and "isVolatile" in op.properties:
            return None
        operands = operand_indices(*at)
        known = operands[1:2] if isinstance(op, LoadOp) else operands[:1] if isinstance(op, SelectOp) else []
        return operands[2:] if any(map(self.is_false, known)) else operands
