"""Loops of dots in normal form: dots that add to one another, however loops lead from one to the next, are one loop.

    %1 = tt.dot A(0), B(0), %0           for t = 0 .. n: iter_args(%s = %0)
    %2 = tt.dot A(1), B(1), %1    ->       yield tt.dot A(t), B(t), %s

    for o = .. { for i = .. { yield tt.dot A(o, i), B(o, i), %s } }    ->    for t = .. { yield tt.dot A(t), B(t), %s }
    for t = .. { yield tt.dot A(n - t), B(n - t), %s }                 ->    for t = .. { yield tt.dot A(t), B(t), %s }
    for o = .. { %p = for i = .. from 0 { .. }, yield addf %s, %p }    ->    for t = .. { yield tt.dot A(t), B(t), %s }

What they add up is one reduction over iterations and K (`terms.py`). If its normal form has a single range, that range
is what the new loop goes through, block by block, with operands loaded there (`lowering.py`), or computed from what is
(`operands.py`). Ranges that merge, turn around and go on where others end are matters of the normal form; nothing here
knows of them. Planners of dots look at one loop, whose iterations they join. Sums are added in another order, as
reductions are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.analysis import affine
from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.constants import constant_of
from tilewright.analysis.matrices import memory_operand, strip_views
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, result_number
from tilewright.ir.walk import among, every
from tilewright.loops.arithmetic import conjunction
from tilewright.loops.blocks import Blocks, beside
from tilewright.loops.lowering import Matrix, Scalars
from tilewright.loops.nest import ZERO, Index, Load, Node, Opaque, Poly, as_element, is_apart, range_of
from tilewright.loops.operands import Computed, Leaf, Operands, choice, load_of, loads_of, shared_choice
from tilewright.loops.products import SUMS, Term, fingerprint
from tilewright.loops.raising import Raising
from tilewright.loops.subjects import DOT_LOOPS
from tilewright.loops.terms import collected
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.placed_loads import first_write
from tilewright.passes.rewriting import insert_before


@dataclass(slots=True)
class DotSum:
    """Dots that add to one another.

    Args:
        result: what they add up to.
        first: what the first one adds to.
        dots: each with the loops around it that add it up, from outside in; the last dot first.
        is_in_parts: whether some of them begin with zero, and what they add up to is added to the others.
    """

    result: SSAValue
    first: SSAValue
    dots: list[tuple[DotOp, tuple[ForOp, ...]]]
    is_in_parts: bool = False

    @property
    def place(self) -> Operation:
        """The last operation of the sum."""
        op = defining_op(self.result)
        assert op is not None
        return op

    @property
    def last(self) -> DotOp:
        """The last dot."""
        return self.dots[0][0]

    @property
    def early(self) -> Operation:
        """The first operation of the sum."""
        dot, loops = self.dots[-1]
        return loops[0] if loops else dot

    @property
    def loops(self) -> list[ForOp]:
        """All loops of the sum, each once."""
        return list(dict.fromkeys(loop for _, loops in self.dots for loop in loops))


@dataclass(slots=True)
class _Normal:
    """A sum of dots as one loop.

    Args:
        sum: the dots.
        operands: A and B, as they are in the last dot.
        matrices: what is loaded of each.
        blocks: of a dot, through all of K.
        scalars: what stands in front of the loop.
    """

    sum: DotSum
    operands: list[Computed]
    matrices: list[list[Matrix]]
    blocks: Blocks
    scalars: Scalars = field(repr=False)


def normalize_dot_loops(
    function: FuncOp, decisions: Decisions, wanted: Callable[[DotSum], bool] = lambda sum_: True
) -> bool:
    """Rewrite all sums of dots of a function that are no loop in normal form; says whether anything changed.

    Args:
        function: tile IR whose loops carry no tiles of pointers.
        decisions: what is found is kept there.
        wanted: says of dots that add to one another whether they shall be a loop.
    """
    changed, seen = False, set[SSAValue]()
    for dot in every(function, DotOp):
        for found in _sums_of(dot) if dot.parent is not None else ():  # it may be gone, with another dot of its sum
            if found.result in seen or not wanted(found) or _is_normal(found):
                continue
            seen.add(found.result)
            normal = decisions.note(DOT_LOOPS, found.last, _normal(function, found))
            if normal is not None:
                for other, _ in found.dots[1:]:
                    decisions.note(DOT_LOOPS, other, Yes(normal, "one loop with the last one"))
                _write(normal)
                eliminate_dead_code(function)
                changed = True
                break
    return changed


# --- dots that add to one another ------------------------------------------------------------------------------------


def _sums_of(dot: DotOp) -> Iterator[DotSum]:
    """The sums that a dot is a part of, the largest one first."""
    if len(shape_of(dot.d.type)) != 2:
        return
    ends, value = list[SSAValue](), SSAValue.get(dot.d)
    while True:
        following = _added_to(value)
        if following is None or not isinstance(defining_op(following), DotOp):
            ends.append(value)
        if following is None:
            break
        value = following
    for end in reversed(ends):
        found = DotSum(end, end, [])
        found.first = _begins(end, (), found)
        if any(one is dot for one, _ in found.dots):
            yield found


def _added_to(value: SSAValue) -> SSAValue | None:
    """The next value of the sum that a value is a part of; None if something else needs it."""
    if not value.has_one_use():
        return None
    (use,) = value.uses
    op, loop = use.operation, use.operation.parent_op()
    if isinstance(op, DotOp):
        return op.d if op.c is value else None
    if isinstance(op, SUMS):
        return op.results[0]
    if isinstance(op, ForOp):
        return op.results[use.index - 3] if use.index > 2 else None
    return loop.results[use.index] if isinstance(op, YieldOp) and isinstance(loop, ForOp) else None


def _begins(value: SSAValue, loops: tuple[ForOp, ...], found: DotSum) -> SSAValue:
    """Takes in the dots that add up to a value; what the first one adds to."""
    block = loops[-1].body.block if loops else found.place.parent
    while value is found.result or value.has_one_use():
        op = defining_op(value)
        if op is None or op.parent is not block:
            return value
        if isinstance(op, DotOp) and (not found.dots or _alike(op, found.last)):
            found.dots.append((op, loops))
            value = op.c
        elif isinstance(op, ForOp):
            number = result_number(value)
            inner = DotSum(found.result, found.first, list(found.dots))
            carried = op.carried[number]
            if _begins(op.yielded[number], (*loops, op), inner) is not carried or not carried.has_one_use():
                return value
            found.dots[:], found.is_in_parts = inner.dots, found.is_in_parts or inner.is_in_parts
            value = op.iter_args[number]
        elif isinstance(op, SUMS):
            rest = _rest_of(op, loops, found)
            if rest is None:
                return value
            value = rest
        else:
            return value
    return value


def _rest_of(op: Operation, loops: tuple[ForOp, ...], found: DotSum) -> SSAValue | None:
    """The side of a sum that goes on where the other one is a loop of dots from zero on, which are taken in."""
    for part, rest in (op.operands[::-1], op.operands):
        before = defining_op(rest)
        goes_on = isinstance(rest, BlockArgument) or isinstance(before, SUMS) or among([before], DotOp, ForOp)
        inner = DotSum(found.result, found.first, list(found.dots))
        if among([defining_op(part)], ForOp) and goes_on and constant_of(_begins(part, loops, inner)) == 0:
            found.dots[:], found.is_in_parts = inner.dots, True
            return rest
    return None


def _alike(dot: DotOp, other: DotOp) -> bool:
    kinds = zip(dot.operands, other.operands, strict=True)
    return dot.properties == other.properties and all(one.type == two.type for one, two in kinds)


def _is_normal(found: DotSum) -> bool:
    """Whether a dot stands alone, or in one loop in which no load lies before that of the iteration before."""
    if len(found.dots) > 1 or len(found.loops) != 1:
        return len(found.dots) == 1 and not found.loops
    (loop,), is_down = found.loops, False
    evolution, analysis = ScalarEvolution(loop), AffineAnalysis()
    for operand, k in ((found.last.a, 1), (found.last.b, 0)):
        whole = load_of(operand) is not None
        for value in [operand] if whole else [load.result for load in loads_of(operand) if load.parent_op() is loop]:
            answer = memory_operand(value, (), analysis)
            if isinstance(answer, No):
                continue
            gain = evolution.gain(answer.plan.offset)
            for dim in (k,) if whole else (0, 1):
                step = evolution.expanded(answer.plan.strides[dim] * affine.Poly.of(shape_of(value.type)[dim]))
                if gain is None or step is None or gain == affine.Poly({}):
                    continue
                if gain == step:
                    return True  # the others need not be looked at
                is_down |= gain == -step
    return not is_down


# --- what they add up ------------------------------------------------------------------------------------------------


def _normal(function: FuncOp, found: DotSum) -> Answer[_Normal]:
    """A sum of dots as one loop."""
    no = _something_else(found)
    if no is not None:
        return no
    raising = Raising(function)
    dims = raising.dims((found.result, "sum"), shape_of(found.result.type))
    reader, terms, operands = Operands(raising, found.early), list[Term](), list[Computed]()
    for dot, loops in reversed(found.dots):
        answer = _operands(raising, reader, dot, dims)
        if isinstance(answer, No):
            return answer
        operands = answer.plan
        terms.append(_term(raising, operands, dot, loops))
    one, *more = collected(AddFOp, terms)
    if more or len(one.ranges) != 1 or one.coefficient != 1:
        return No("its dots do not go on evenly, whatever its loops count to", found.last)
    return _of_term(raising, found, one, operands, dims)


def _something_else(found: DotSum) -> No | None:
    """What the loops of a sum do beside; None if it is nothing."""
    own = {*found.loops, *(dot for dot, _ in found.dots)}
    for loop in found.loops:
        no = beside(loop, own, "the sum of its dots")
        if no is not None:
            return no
    block = found.place.parent
    assert block is not None
    loads = [load for dot, loops in found.dots if not loops for v in (dot.a, dot.b) for load in loads_of(v)]
    here = [op for op in (*[loops[0] if loops else dot for dot, loops in found.dots], *loads) if op.parent is block]
    written = first_write(min(here, key=block.get_operation_index), found.place)
    return None if written is None else No("memory may change between the dots", written)


def _operands(raising: Raising, reader: Operands, dot: DotOp, dims: Index) -> Answer[list[Computed]]:
    """What the operands of a dot are made of."""
    (k,) = raising.dims((dot, "k"), shape_of(dot.a.type)[1:])
    found = list[Computed]()
    for value, index in ((dot.a, (dims[0], k)), (dot.b, (k, dims[1]))):
        answer = reader.of(value, index, k)
        if isinstance(answer, No):
            return answer
        away = next((leaf.load for leaf in answer.plan.leaves if leaf.load.parent is not dot.parent), None)
        if away is not None:
            return No("an operand is not loaded beside the dot", away)
        if k is ZERO and not answer.plan.is_load:
            return No("K has one element", dot)
        found.append(answer.plan)
    return Yes(found)


def _term(raising: Raising, operands: Sequence[Computed], dot: DotOp, loops: tuple[ForOp, ...]) -> Term:
    """What a dot adds up, over K and the iterations of the loops around it."""
    (k,) = raising.dims((dot, "k"), shape_of(dot.a.type)[1:])
    ranges = tuple([raising.loops.of(loop).iteration for loop in loops])
    nodes = [operand.nodes[0] if operand.is_load else operand.factor(side) for side, operand in enumerate(operands)]
    conditions, factors = shared_choice(nodes)
    reduced = (*ranges, range_of(k)) if k is not ZERO else ranges
    return Term.rebuilt(1, tuple(factors), reduced, conjunction(conditions), ())


# --- as one loop -----------------------------------------------------------------------------------------------------


def _of_term(raising: Raising, found: DotSum, term: Term, operands: list[Computed], dims: Index) -> Answer[_Normal]:
    """The loop that a term is: its operands, and how far it goes."""
    (r,), dot = term.ranges, found.last
    factors = _sides(term, dims)
    if factors is None:
        return No("the operands are no rows and columns", dot)
    (inner,) = raising.dims((dot, "k"), shape_of(dot.a.type)[1:])
    scalars, matrices = Scalars(raising, found.place), list[list[Matrix]]()
    blocks = Blocks.of(r, shape_of(dot.a.type)[1], scalars)
    if blocks is None:
        return No("the number of its iterations is not known before it", found.place)
    k = Poly.atom(r)
    for factor, operand, index in zip(factors, operands, ((dims[0], k), (k, dims[1])), strict=True):
        if not operand.is_load and (blocks.limit is not None or term.condition.parts) and not operand.is_finite():
            return No("what is computed of the zeros behind the end of K may be infinite", dot)
        made = list[Matrix]()
        for node, leaf in zip(_leaves(factor), operand.leaves, strict=True):
            places = index if operand.is_load else tuple([k if place is inner else place for place in leaf.index])
            matrix = _matrix(term, node, leaf, places, (*dims, k))
            no = matrix.find(scalars)
            if no is not None:
                return no
            made.append(matrix)
        matrices.append(made)
    return Yes(_Normal(found, operands, matrices, blocks, scalars), "one loop through all of K")


def _sides(term: Term, dims: Index) -> tuple[Node, ...] | None:
    """The factors of a product, the one of rows first."""
    for pair in (term.factors, term.factors[::-1]):
        if all(is_apart(factor, dims[1 - side]) and _side(factor) in (None, side) for side, factor in enumerate(pair)):
            return pair
    return None


def _side(factor: Node) -> object:
    return dict(factor.attributes)["side"] if isinstance(factor, Opaque) else None


def _leaves(factor: Node) -> tuple[Node, ...]:
    return factor.operands if isinstance(factor, Opaque) else (factor,)


def _matrix(term: Term, node: Node, leaf: Leaf, index: Index, dims: Index) -> Matrix:
    """What a leaf of an operand is a tile of, with `dims` the ranges of rows, columns and K."""
    own, load = choice(as_element(node))
    assert isinstance(load, Load)
    conditions = {c for c in term.condition.parts if not is_apart(c, *index) or is_apart(c, *dims)} | own.parts
    places, (m, n) = (ZERO, *index)[-2:], (1, *shape_of(leaf.value.type))[-2:]
    if leaf.is_part and len(index) == 2:  # what is repeated is loaded once
        rows, columns = (is_apart((load.offset, *conditions), place) for place in places)
        places = (ZERO if rows else places[0], ZERO if columns else places[1])
        m, n = (1 if rows else m), (1 if columns else n)
    along = places.index(dims[2]) if dims[2] in places else None
    is_transposed = strip_views(leaf.value) == (leaf.load.result, True)
    ordered = sorted(conditions, key=fingerprint)
    return Matrix(load, places, (m, n), along, ordered, is_transposed, leaf.load, leaf.value.type)


def _write(normal: _Normal) -> None:
    """Put the loop in front of the last operation of the sum, and let its result stand for the sum."""
    found, blocks, dot = normal.sum, normal.blocks, normal.sum.last
    loop = blocks.loop([found.first], chain.from_iterable(normal.matrices), found.place)
    end, at = loop.body.block.last_op, blocks.at(loop)
    assert end is not None
    operands = [
        operand.made([matrix.at(at, blocks.limit, end) for matrix in matrices], end)
        for operand, matrices in zip(normal.operands, normal.matrices, strict=True)
    ]
    made = DotOp.create(
        operands=[*operands, loop.carried[0]], result_types=[found.first.type], properties=dot.properties
    )
    insert_before(made, end)
    made.location = dot.location
    end.operands = [made.d]
    found.result.replace_all_uses_with(loop.results[0])
