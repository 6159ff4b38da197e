"""What a mask leaves out at the end of a reduction, as one element.

    sum(k < 256 * ((n + 255) / 256)) exp((k < n ? x[k] : -inf) - top)
        ->    sum(k < n) exp(x[k] - top)  +  (256 * ((n + 255) / 256) - n) * exp(-inf - top)

That it is zero is seldom known: of a row of infinities it is NaN, as it was. So it is computed, once and not for each
place that a block has behind the end, and combined with as many as there are.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis import affine
from tilewright.ir.types import bit_width, element_type, i64, is_integer, shape_of, tile_type
from tilewright.loops.arithmetic import at_least_zero, covers
from tilewright.loops.nest import ALWAYS, ONE, Below, Opaque, Poly, Range, as_element, ranges_of
from tilewright.loops.operands import Computed, choice
from tilewright.loops.products import Term, fingerprint
from tilewright.loops.ranges import replaced, settled
from tilewright.loops.reductions import Reduction
from tilewright.ops.casts import SIToFPOp
from tilewright.ops.elementwise import AddFOp, AddIOp, MulFOp
from tilewright.passes.building import Builder
from tilewright.passes.trip_count import Preheader


def without_rest(found: Reduction, term: Term) -> tuple[Term, Poly] | None:
    """A reduction as far as the bound that all loads of it have, and how many places there are behind it.

    Args:
        found: the reduction.
        term: what it is, over one range.

    Returns:
        None if loads have no such bound, the range may end before it, or many of an element are no simple thing.
    """
    (r,), (factor,) = term.ranges, term.factors
    counts = found.combine in (AddFOp, AddIOp) and bit_width(element_type(found.kind)) >= 32  # f16 ends at 65504
    simple = counts or found.monoid.idempotent
    if term.condition is not ALWAYS or not isinstance(factor, Opaque) or not simple:
        return None
    masks = [choice(as_element(node))[0].parts for node in factor.operands]
    for condition in sorted(frozenset.intersection(*masks), key=fingerprint):
        if not isinstance(condition, Below) or condition.poly.coefficient(r) is not ONE:
            continue
        bound = Poly.atom(r) - condition.poly
        if not ranges_of(bound) and covers(r.extent, bound):
            ended = Range.new(bound)
            made = settled(replaced(term, {r: Poly.atom(ended)}, [ended]))
            return (made, at_least_zero(r.extent) - at_least_zero(bound)) if len(made.ranges) == 1 else None
    return None


def with_rest(found: Reduction, value: Computed, count: affine.Poly, total: SSAValue, place: Operation) -> SSAValue:
    """What is reduced, and so many of the element that is masked, in front of an operation.

    Args:
        found: the reduction.
        value: what it reduces.
        count: of places that are masked; not negative.
        total: what the others make.
        place: the operation.
    """
    b, kind, element = Builder(place), found.kind, element_type(found.kind)
    leaves = list[SSAValue]()
    for leaf in value.leaves:
        type_ = element_type(leaf.value.type)
        number = int(leaf.other) if is_integer(type_) else leaf.other
        leaves.append(b.number(number, tile_type((*shape_of(kind), 1), type_)))
    one, many = b.viewed(value.in_rows(leaves, place), kind), Preheader(place, i64).sum(count)
    if found.combine is AddFOp:
        one = b.op(MulFOp, one, b.cast(SIToFPOp, many, element))
    elif found.combine is AddIOp:
        one = b.mul(one, b.resized(many, element))
    chosen = b.choose(b.compare("sgt", many, b.number(0)), one, b.number(found.neutral, kind))
    properties = dict(found.properties)
    return b.put(found.combine.create(operands=[total, chosen], result_types=[total.type], properties=properties))
