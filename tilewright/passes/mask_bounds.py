"""Masks compare the place of an element with a bound.

    2 * i < 2 * n          i < n
    i <= n - 1             i < n
    n - i > 0              i < n
    i + 3 < n + 3          i < n
    2 * i >= 0             true
    k + i < n, 64 bits     i < n - k, 32 bits, in a loop of k up to n

where `i` is what `tl.arange` gives along one dim. How long a mask stays the same, and so how many elements are accessed
at once, can then be read off both sides (`ops/facts.py`). Only comparisons that masks of loads and stores are made of
are rewritten: index arithmetic does not wrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly, expanded
from tilewright.analysis.bounds import below_zero, is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index, whole
from tilewright.analysis.iterations import is_unit, way_of
from tilewright.base import dtypes
from tilewright.base.decision import No
from tilewright.base.options import Options
from tilewright.base.order import reached
from tilewright.base.target import NO_TARGET
from tilewright.frontend.builder import IRBuilder, Position
from tilewright.ir.types import element_type, i32, i64, shape_of
from tilewright.ir.values import defining_op, users_of
from tilewright.ir.walk import among, ancestors, every
from tilewright.ops.builtin import BUILTINS
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AndIOp, CmpIOp
from tilewright.ops.elementwise_base import CompareOp
from tilewright.ops.functions.operators import add, greater_equal, less_than
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.values import tensor
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import move_before, replace
from tilewright.passes.trip_count import Preheader


def compare_places_with_bounds(root: Operation) -> bool:
    """Rewrite the masks of all accesses below `root`, in place; says whether there was one to rewrite."""
    analysis = AffineAnalysis()
    changed = False
    for op in list(dict.fromkeys(_comparisons(root))):
        found = _bounded(op, analysis)
        if found is not None:
            replace(op, [found])
            _leave_out(found)
            changed = True
    return changed


def _leave_out(part: SSAValue) -> None:
    """Take a part that is always true out of the conjunctions that it stands in."""
    if isinstance(part.owner, ConstantOp):
        for user in users_of(part):
            if isinstance(user, AndIOp):
                replace(user, [next((side for side in user.operands if side is not part), part)])


def _comparisons(root: Operation) -> Iterator[CompareOp]:
    """The comparisons that masks of loads and stores are made of."""
    masks = [op.mask for op in every(root, LoadOp, StoreOp) if op.mask is not None]
    for value in reached(masks, _joined):
        op = defining_op(value)
        if isinstance(op, CmpIOp) and shape_of(value.type):
            yield op


def _joined(value: SSAValue) -> Sequence[SSAValue]:
    """The parts that a mask joins by `and`."""
    op = defining_op(value)
    return op.operands if op is not None and is_conjunction(op) else ()


def _bounded(op: CompareOp, analysis: AffineAnalysis) -> SSAValue | None:
    """The same comparison of a range and a scalar; None if it is one, or cannot be one."""
    mask = op.results[0]
    index: Index = tuple(whole(dim, extent) for dim, extent in enumerate(shape_of(mask.type)))
    wide = element_type(op.operands[0].type) == i64
    answer = below_zero(mask, index, analysis, "")
    if isinstance(answer, No):
        return None
    constant, coords = expanded(answer.plan.constant), answer.plan.coords
    if not coords and constant == Poly.of(-1):
        return Builder(op).number(True, mask.type)
    if not wide and _is_bounded(op, index, analysis):
        return None
    if len(coords) != 1 or any(atom.unsigned for monomial in constant.terms for atom in monomial):
        return None
    ((coord, stride),) = coords.items()
    if coord not in index or stride.constant not in (1, -1):
        return None
    # place + constant < 0, or constant - place < 0
    below = stride.constant == 1
    bound = -constant if below else constant + Poly.of(1)
    narrow = wide and _is_rest_of_loop(bound, op)
    if wide and not narrow and _is_bounded(op, index, analysis):
        return None
    sides = (Poly.of(0), bound) if narrow else _sides(bound, shape_of(mask.type)[index.index(coord)])
    kind = dtypes.int64 if wide and not narrow else dtypes.int32
    return None if sides is None else _compared(op, index.index(coord), *sides, kind, below=below)


def _sides(bound: Poly, extent: int) -> tuple[Poly, Poly] | None:
    """What is added to a place and what it is compared with, for a bound of the place; neither of them can wrap.

    A bound that the program does not compute may pass the ends of its type, as that of `i <= n` does where the largest
    integer says that there is none. A number of the program does not, nor does a sum with the place.
    """
    number = bound.constant
    if number is not None:
        return Poly.of(0), Poly.of(min(max(number, 0), extent))
    limits = [Poly({monomial: 1}) for monomial, c in bound.terms.items() if c == 1 and len(monomial) == 1]
    if len(limits) != 1 or () in bound.terms:
        return None
    return limits[0] + -bound, limits[0]


def _is_rest_of_loop(bound: Poly, op: Operation) -> bool:
    """Whether a bound is how far the counter of a loop around `op`, of 32 bits, still goes: they hold that, too."""
    loops = among(ancestors(op), ForOp)
    return any(_ends(loop) == bound for loop in loops if loop.ub.type == i32 and loop.unsignedCmp is None)


def _ends(loop: ForOp) -> Poly | None:
    """How far the counter still goes in a loop from a number that is not negative."""
    if is_unit(loop):
        way = way_of(loop)
        return way.left(loop) if way.fits else None
    start, end = constant_of(loop.lb), constant_of(loop.ub)
    last = Poly.of(end) if isinstance(end, int) else Poly.atom(loop.ub)
    return last + -Poly.atom(loop.induction_var) if isinstance(start, int) and start >= 0 else None


def _is_bounded(op: CompareOp, index: Index, analysis: AffineAnalysis) -> bool:
    """Whether one side is a place and the other a scalar, in the order of which runs of equal truth are known."""
    left, right = (analysis.integer(value, at) for value, at in operand_indices(op.results[0], index))
    if op.attr_values()["predicate"] in ("sgt", "sle", "ugt", "ule"):
        left, right = right, left
    if right.coords or right.residual or left.residual or any(p.constant != 1 for p in left.coords.values()):
        return False
    return not all(expanded(side.constant).terms.get(()) for side in (left, right))


def _compared(op: Operation, dim: int, start: Poly, bound: Poly, kind: dtypes.dtype, *, below: bool) -> SSAValue:
    """`start + place < bound`, or `>= bound`, of the places along a dim, as integers of a kind; in front of `op`."""
    shape, before = shape_of(op.results[0].type), Preheader(op, i64 if kind == dtypes.int64 else i32)
    limit = tensor(before.sum(bound), kind)
    builder = IRBuilder(NO_TARGET, Options())
    builder.position = Position(Block())
    builder.location = op.location or builder.location
    place: tensor = BUILTINS["cast"].fn(builder, BUILTINS["arange"].fn(builder, 0, shape[dim]), kind)
    if start.terms:
        place = add.fn(builder, tensor(before.sum(start), kind), place)
    for other in range(len(shape)):
        if other != dim:
            place = BUILTINS["expand_dims"].fn(builder, place, other)
    place = BUILTINS["broadcast_to"].fn(builder, place, *shape)
    made: tensor = (less_than if below else greater_equal).fn(builder, place, limit)
    for new in list(builder.position.block.ops):
        move_before(new, op)
    return made.handle  # type: ignore[return-value]
