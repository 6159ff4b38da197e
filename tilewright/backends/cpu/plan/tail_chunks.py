"""Tail chunks, in which all masks are false: what they store is left out, what they compute is one.

A block is often the next power of two above a row, 8,192 elements for 5,120. There a load is what stands for elements
that are not there, and whatever is made of that alone is the same in all these chunks:

    for chunk = limit .. end + 1:       the masked ones, and the first one past the end
    for chunk = end + 1 .. extent:      accumulators and tiles in scratch take in that one's values again; sums alone
                                        a multiple of them, without a loop

A group that only stores ends at `end`. So does what takes nothing from the same value once more: a maximum, a sum of
zeros, a tile in scratch that nobody reads there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import isfinite

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form
from tilewright.analysis.bounds import is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import At, operand_indices, side_bit
from tilewright.analysis.index import Index, whole
from tilewright.analysis.slices import slices_of
from tilewright.analysis.unread import asked_for, implies
from tilewright.backends.cpu.plan.recompute import cast_name, is_lazy
from tilewright.backends.cpu.plan.steps import Buffer, CopySink, MaterializeSink, ReduceSink, Sink, Step, StoreSink
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import operands_first
from tilewright.ir.traits import is_view
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import AddFOp, AddIOp, MulFOp, MulIOp, SelectOp, SubFOp, SubIOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp, is_volatile
from tilewright.ops.reduce import single_operation
from tilewright.ops.shape import CatOp, JoinOp
from tilewright.ops.spec import spec_of

_EXACT = ("extf", "extsi")  # casts that change no number

FEWEST_CHUNKS = 4
"""Chunks of a row, of fewer of which hardly any can lie past its end."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What is known of the chunks past the end.

    Args:
        forms: none of them is negative there.
        once: whether a group that does more than to store needs one of these chunks.
        again: numbers of the sinks that take in that chunk's values again.
    """

    forms: list[Form]
    once: bool
    again: list[int]


def plan_tail(
    step: Step,
    indices: list[Index],
    dim: int,
    false: dict[At, Form],
    placed: dict[SSAValue, Buffer],
    analysis: AffineAnalysis,
) -> Answer[Tail]:
    """Whether the chunks past the end of a loop need not be computed each.

    Args:
        step: the group.
        indices: of its chunks.
        dim: of the innermost loop.
        false: the comparisons that are false there, with the form that is not negative then.
        placed: tiles in scratch.
        analysis: of the function.
    """
    if not false:
        return No("no mask ends with the row")
    known = _TailValues(dim, frozenset(false), placed)
    others, again = 0, []
    for number, sink in enumerate(step.sinks):
        if isinstance(sink, StoreSink):
            if not all(len(sink.roots) > 2 and known.is_false((sink.roots[2], index)) for index in indices):
                return No("a store goes on where masks end", sink.op)
            continue
        if isinstance(sink, CopySink):
            return No("a tile is copied", sink.op)
        for root in sink.roots:
            causes = (known.cause((root, index)) for index in indices)
            cause = next((value for value in causes if value is not None), None)
            if cause is not None:
                return No("elements past the end differ", defining_op(cause))
        others += 1
        bounds = [form for form in false.values() if set(form.coords) == {indices[0][dim]} and not form.residual]
        if isinstance(sink, MaterializeSink):
            unread = any(_is_unread(step, sink, dim, _along(form, dim, step), analysis) for form in bounds)
        else:
            unread = all(_takes_once(sink, known, index) for index in indices)
        if not unread:
            again.append(number)
    return Yes(Tail(list(false.values()), others > 0, again), "computed once" if others else "left out")


def _takes_once(sink: Sink, known: _TailValues, index: Index) -> bool:
    """Whether a reduction that has taken in a value is not changed by it any more.

    One over another dim than that of the loop has a result for each element of that: only what changes none is left.
    """
    op = single_operation(sink.op.regions[0].block) if isinstance(sink, ReduceSink) else None
    monoid = None if op is None else spec_of(op).monoid
    if monoid is None:
        return False
    element = element_type(sink.roots[0].type)
    return (monoid.idempotent and sink.axis == known.dim) or known.number((sink.roots[0], index)) == monoid.identity(
        bit_width(element)
    )


def _is_unread(step: Step, sink: Sink, dim: int, bound: Form, analysis: AffineAnalysis) -> bool:
    """Whether nobody but the group itself wants what it keeps in scratch past the end."""
    if shape_of(sink.roots[0].type) != step.shape:
        return False
    apart = [each.op for each in step.sinks if isinstance(each, ReduceSink)]
    return _are_dead(sink.roots, dim, bound, analysis, apart)


def is_dead(step: Step, dim: int, form: Form, analysis: AffineAnalysis) -> bool:
    """Whether nothing that a group makes past the end of a dim is ever stored, so that it need not be made.

    Args:
        step: the group.
        dim: rows of it.
        form: the number, in a coordinate that stands for that of `dim`, that is not negative past the end.
        analysis: of the function.
    """
    bound = _along(form, dim, step)
    for sink in step.sinks:
        if isinstance(sink, StoreSink):
            if len(sink.roots) < 3 or not implies(sink.roots[2], dim, bound, analysis):
                return False
            continue
        if isinstance(sink, CopySink) or sink.axis == dim or shape_of(sink.roots[0].type) != step.shape:
            return False
        reduced = sink.op if isinstance(sink, ReduceSink) else None
        made = sink.roots if reduced is None else reduced.results
        rows = dim if reduced is None else dim - (sink.axis < dim)
        if not _are_dead(made, rows, bound, analysis):
            return False
    return True


def _along(form: Form, dim: int, step: Step) -> Form:
    """A form of one coordinate in that of a dim."""
    (stride,) = form.coords.values()
    return Form(form.constant, {whole(dim, step.shape[dim]): stride})


def _are_dead(
    values: Iterable[SSAValue], dim: int, bound: Form, analysis: AffineAnalysis, apart: Collection[Operation] = ()
) -> bool:
    """Whether no store wants what is made of some values where a bound is not negative; but for what `apart` makes."""
    for slices in (slices_of(value, dim, lambda use, _: use.operation in apart) for value in values):
        if slices.loads or asked_for(slices, [bound], analysis) is not None:
            return False
    return True


@dataclass(slots=True)
class _TailValues:
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
        op = defining_op(at[0])
        if at in self.false:
            return True
        return op is not None and is_conjunction(op) and any(map(self.is_false, operand_indices(*at)))

    def number(self, at: At, depth: int = 8) -> int | float | None:
        """The number that a value is past the end, if so many operations say it."""
        op, found = defining_op(at[0]), constant_of(at[0])
        if found is not None or op is None or not depth or at[0] in self.placed or not is_lazy(op):
            return found
        operands = operand_indices(*at)
        if isinstance(op, LoadOp | SelectOp):
            mask, rest = (operands[1:2], operands[2:]) if isinstance(op, LoadOp) else (operands[:1], operands[2:])
            if not any(map(self.is_false, mask)):
                return None
            return self.number(rest[0], depth - 1) if rest else 0
        numbers = {self.number(part, depth - 1) for part in operands}
        if len(numbers) == 1 and (is_view(op) or cast_name(op) in _EXACT):
            return numbers.pop()
        if isinstance(op, MulFOp | MulIOp) and 0 in numbers and all(n is not None and isfinite(n) for n in numbers):
            return 0
        return 0 if isinstance(op, AddFOp | AddIOp | SubFOp | SubIOp) and numbers == {0} else None

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
        op = defining_op(value)
        if op is None or value in self.placed or not is_lazy(op) or isinstance(op, MakeRangeOp | GatherOp):
            return None
        if isinstance(op, JoinOp | CatOp) and any(part.src == self.dim for part in side_bit(op, *at)[0]):
            return None
        if is_volatile(op):
            return None
        operands = operand_indices(*at)
        known = operands[1:2] if isinstance(op, LoadOp) else operands[:1] if isinstance(op, SelectOp) else []
        return operands[2:] if any(map(self.is_false, known)) else operands
