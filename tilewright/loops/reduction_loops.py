"""Reductions in normal form: what loops and reductions combine is one reduction in each iteration of one loop.

    for ..: %u, %v = tt.split (tt.reshape %x[16, 128])      for %t = ..: %s' = addf %s, (tt.reduce (axis = 1) %p)
      %s' = addf %s, (tt.reduce %u^2 + tt.reduce %v^2)  ->    with %p the square of x[16, 4096] at 4096 * %t

    for ..: %s'[16, 8] = addf %s, %w[16, 8]             ->   one sum of w[16, 4096] in each iteration, none behind
    tt.reduce (axis = 1) %s

    tt.reduce (axis = 1) (tt.reduce (axis = 2) %w[16, 8, 128])    ->    tt.reduce (axis = 1) %w[16, 1024]

What is reduced are elements computed of what is loaded (`operands.Elements`), over iterations and dims. If its normal
form has one range (`terms.py`), however pieces are cut, summed separately and put together, the loop goes through that
range, in rows that are long where memory lies side by side along it. Elements are combined in another order, as
reductions do anyway; each is computed as it was, so what is not finite comes out as it did.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis import affine
from tilewright.analysis.constants import constant_of
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.dtypes import MAX_TILE_NUMEL
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, i1, is_float, shape_of, tile_type, with_element
from tilewright.ir.values import defining_op, is_inside, is_tile, property_int
from tilewright.ir.walk import ancestors, walk
from tilewright.loops.arithmetic import conjunction
from tilewright.loops.blocks import Blocks, beside
from tilewright.loops.loaded_rows import LoadedRow, loaded_rows
from tilewright.loops.lowering import Matrix, Scalars
from tilewright.loops.masked_rests import with_rest, without_rest
from tilewright.loops.nest import ZERO, Index, Load, Node, Opaque, Poly, as_element, is_apart
from tilewright.loops.operands import FINITE, Computed, Elements, choice, shared_choice
from tilewright.loops.products import Term, fingerprint
from tilewright.loops.raising import VIEWS, Raising
from tilewright.loops.reductions import Piece, Reduction, ends_reductions, reductions_at
from tilewright.loops.subjects import REDUCTION_LOOPS
from tilewright.loops.terms import collected
from tilewright.ops.casts import ExtFOp, ExtSIOp, SIToFPOp, TruncFOp, UIToFPOp
from tilewright.ops.control import FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, AddIOp, MulFOp, MulIOp, NegFOp, SubFOp, SubIOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp
from tilewright.passes.building import Builder
from tilewright.passes.canonicalize import evaluated
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.placed_loads import first_write
from tilewright.passes.rewriting import replace


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows a target reduces at once, in elements.

    Args:
        along: of a row that lies side by side in memory.
        across: of rows whose elements lie apart.
        depth: of factors of a dot.
        most: of a result up to which these are taken.
        matrix: of each dim of a result that is a dot, at least.
    """

    along: int
    across: int
    depth: int
    most: int
    matrix: int


@dataclass(slots=True)
class _Normal:
    """A reduction as one loop.

    Args:
        found: the reduction.
        value: what is reduced.
        parts: its factors by themselves, if it is a product.
        matrices: what is loaded for it.
        mask: what knows which elements count; None where what is loaded for others adds nothing.
        row: which of the factors is one row that all rows of the other are multiplied by; None for others.
        range: that is gone along, as the nest says it.
        blocks: of it, what an iteration reduces.
        rest: how many elements behind it are masked, and not nothing for all that is known; None for no matter.
    """

    found: Reduction
    value: Computed
    parts: list[Computed]
    matrices: Sequence[Matrix]
    mask: Matrix | None
    row: int | None
    range: Poly
    blocks: Blocks
    rest: affine.Poly | None = None

    @property
    def is_dot(self) -> bool:
        """Whether what an iteration combines is a dot."""
        return self.row is not None or len(self.found.places) == 2

    @property
    def kind(self) -> Attribute:
        """The type of what is carried: that of the result without dims of one element, or of one row of a dot."""
        kind = self.found.kind
        return kind if self.row is None else tile_type((1, *shape_of(kind)), element_type(kind))


def normalize_reduction_loops(function: FuncOp, decisions: Decisions, rows: Rows) -> bool:
    """Rewrite all reductions of a function that are none in normal form; says whether there was one."""
    changed, raising = False, None
    ops = [op for op in walk(function) if ends_reductions(op)]
    places = {op: number for number, op in enumerate(ops)}
    for op in sorted(ops, key=lambda op: (len([*ancestors(op)]), -places[op])):  # the largest reductions first
        if op.parent is None:
            continue
        raising = raising or Raising(function)
        group = reductions_at(raising, op)
        if group is None:
            continue
        normals = decisions.note(REDUCTION_LOOPS, op, group if isinstance(group, No) else _normal(raising, group, rows))
        if normals is not None:
            for key in dict.fromkeys((normal.range, normal.blocks.size) for normal in normals):
                _write([normal for normal in normals if (normal.range, normal.blocks.size) == key])
            eliminate_common_subexpressions(function)
            eliminate_dead_code(function)
            changed, raising = True, None
    return changed


# --- as one loop -----------------------------------------------------------------------------------------------------


def _normal(raising: Raising, group: Sequence[Reduction], rows: Rows) -> Answer[list[_Normal]]:
    """The reductions of a loop as those of one loop."""
    normals, taken = list[_Normal](), set[SSAValue]().union(*(found.taken for found in group))
    for found in group:
        answer = _one(raising, found, rows, taken)
        if isinstance(answer, No):
            return answer
        normals.append(answer.plan)
    first = normals[0]
    along = all(matrix.goes_along for matrix in first.matrices)
    what = "elements of a dot" if first.is_dot else "elements of a row" if along else "elements"
    if isinstance(first.matrices[0], LoadedRow):
        return Yes(normals, "one row at a time, at the place that is loaded for it")
    return Yes(normals, f"{first.blocks.size} {what} at a time")


def _one(raising: Raising, found: Reduction, rows: Rows, taken: Collection[SSAValue]) -> Answer[_Normal]:
    reader, terms, values = Elements(raising, found.early, found.row), list[Term](), list[Computed]()
    for piece in found.pieces:
        answer = reader.product(piece.factors, sum(map(Poly.atom, piece.ranges), ZERO))
        if isinstance(answer, No):
            return answer
        if not answer.plan.leaves:
            return No("it combines what is not loaded", found.root)
        values.append(answer.plan)
        terms.append(_term(found, piece, answer.plan))
    no = _something_else(raising, found, values, taken)
    no = no or (None if found.loops else _made_twice(found, values))
    if no is not None:
        return no
    one, *more = [*collected(found.combine, terms), None]
    if one is None or more != [None] or len(one.ranges) != 1 or one.coefficient != 1:
        return No("its pieces do not go on evenly", found.root)
    return _of_term(raising, found, one, values[-1], rows)


def _something_else(
    raising: Raising, found: Reduction, values: Sequence[Computed], taken: Collection[SSAValue]
) -> No | None:
    """What the loops do beside reductions that take these results of theirs; None if it is nothing."""
    for loop in found.loops:
        most = len([result for result in loop.results if result in taken])
        no = beside(loop, found.loops, "reductions", (ReduceOp,), most)
        if no is not None:
            return no
    outside, iterations = found.outside, {raising.loops.of(loop).iteration for loop in found.outside}
    behind = list[Operation]()  # loads of pieces that no loop combines
    for piece, value in zip(found.pieces, values, strict=True):
        loads = [leaf.load for leaf in value.leaves]
        if not iterations.isdisjoint(piece.ranges):
            if not all(any(is_inside(load, loop) for loop in outside) for load in loads):
                return No("what it combines is not loaded in the loop")
        elif all(load.parent is found.root.parent for load in loads):
            behind += loads
        else:
            return No("what it combines is loaded elsewhere")
    early = [*outside, *behind]
    written = first_write(min(early, key=found.root.parent.get_operation_index), found.place)  # type: ignore[union-attr]
    return None if written is None else No("memory may change between the loads", written)


def _made_twice(found: Reduction, values: Sequence[Computed]) -> No | None:
    """What somebody else wants, too, and costs more than a load to compute again; None if it is nothing."""
    made = {defining_op(value) for computed in values for value, _ in computed.places if value not in computed.kept}
    for op in made:
        uses = [use for result in op.results for use in result.uses] if op is not None else []
        if type(op) not in FINITE and any(use.operation not in (*made, *found.reduces) for use in uses):
            return No("what it costs much to compute is wanted in its own shape, too", op)
    return None


def _term(found: Reduction, piece: Piece, value: Computed) -> Term:
    """What a piece adds; conditions for all elements of memory that are factors are conditions for the product."""
    conditions = list(piece.conditions)
    if _nothing(found, value) == _FACTORS:
        shared, value.nodes = shared_choice(value.nodes)
        conditions += shared
    return Term.rebuilt(1, (value.factor(0),), piece.ranges, conjunction(conditions), ())


_SOME, _SUMMED, _FACTORS = 0, 1, 2  # what becomes of it where elements are masked


def _nothing(found: Reduction, value: Computed) -> int:
    """Whether nothing is added where one element of memory is masked (_FACTORS), or where all are (_SUMMED)."""
    known = _zero(value) if found.combine in (AddFOp, AddIOp) else _SOME
    number = _masked(value)
    begin = constant_of(found.first) if found.first is not None and found.monoid.idempotent else None
    if number is not None and (number == found.neutral or _is_same(number, begin)):
        known = max(known, _FACTORS if len(value.leaves) == 1 else _SUMMED)
    return known


def _is_same(number: float, other: float | None) -> bool:
    """Whether two numbers are one, with the same sign if they are zero."""
    return number == other and math.copysign(1, number) == math.copysign(1, other)


def _masked(computed: Computed) -> float | None:
    """What is combined where all elements of memory are masked; None if that is no known number."""
    numbers = {
        (leaf.value, leaf.index): leaf.other if is_float(element_type(leaf.value.type)) else int(leaf.other)
        for leaf in computed.leaves
    }
    for value, index in computed.places:
        op, number = defining_op(value), constant_of(value)
        if (value, index) in numbers or value in computed.kept or op is None:
            continue
        parts = VIEWS[type(op)](op, value, index) if type(op) in VIEWS else [(v, index) for v in op.operands]
        known = [numbers.get((part, at if is_tile(part) else ())) for part, at in parts]
        if number is None and None not in known:
            number = evaluated(op, [n for n in known if n is not None])
        if number is not None:
            numbers[value, index] = number
    factors = [numbers.get(factor) for factor in computed.factors]
    return None if None in factors else math.prod(n for n in factors if n is not None)


def _zero(computed: Computed) -> int:
    """Whether a value is zero where one of its leaves is (_FACTORS), or where all are (_SUMMED)."""
    leaves = {(leaf.value, leaf.index): _FACTORS if leaf.other == 0 else _SOME for leaf in computed.leaves}
    known = dict[tuple[SSAValue, Index], int | None]()  # None: a number
    for value, index in computed.places:
        op, number = defining_op(value), constant_of(value)
        if number is not None or (value, index) in leaves or value in computed.kept or op is None:
            finite = None if number is not None and math.isfinite(number) else _SOME
            known[value, index] = leaves.get((value, index), finite)
            continue
        parts = VIEWS[type(op)](op, value, index) if type(op) in VIEWS else [(v, index) for v in op.operands]
        levels = [known[part, at if is_tile(part) else ()] for part, at in parts]
        own = [level for level in levels if level is not None]
        if type(op) in _PRODUCTS and own:
            known[value, index] = min(own)
        else:
            known[value, index] = min(_SUMMED, *own) if type(op) in _DIFFERENCES and len(own) == len(levels) else _SOME
    return min(known[factor] or _SOME for factor in computed.factors)


_PRODUCTS = (MulFOp, MulIOp, NegFOp, ExtFOp, TruncFOp, SIToFPOp, UIToFPOp, ExtSIOp, *VIEWS)
_DIFFERENCES = (AddFOp, SubFOp, AddIOp, SubIOp)


def _of_term(raising: Raising, found: Reduction, term: Term, value: Computed, rows: Rows) -> Answer[_Normal]:
    """The loop that a term is."""
    scalars, size = Scalars(raising, found.place), min(shape_of(found.kind), default=1)
    nothing, rest = _nothing(found, value), None
    ended = without_rest(found, term) if nothing == _SOME else None
    if ended is not None and (rest := scalars.poly(ended[1])) is not None:
        term = ended[0]
    (r,), (factor,) = term.ranges, term.factors
    assert isinstance(factor, Opaque)
    if scalars.poly(r.extent) is None:
        return No("the number of its elements is not known before it", found.root)
    parts = _factors(raising, found, value) if nothing == _FACTORS else []
    if len(found.places) > 2 or (len(found.places) == 2 and (size < rows.matrix or not parts)):
        return No("its result has several dims, and is no dot", found.root)
    leaves = zip(factor.operands, value.leaves, strict=True)
    matrices = [_matrix(found, node, leaf.load, term, Poly.atom(r)) for node, leaf in leaves]
    if len(found.places) == 2:
        pairs = sorted(zip(matrices, parts, strict=True), key=lambda pair: pair[0].along or 0, reverse=True)
        matrices, parts = [matrix for matrix, _ in pairs], [part for _, part in pairs]
        if [matrix.along for matrix in matrices] != [1, 0] or any(ZERO in matrix.dims for matrix in matrices):
            return No("its factors are no rows and columns", found.root)
    known, apart = list(matrices), _is_masked_apart(nothing, term, matrices)
    if apart and len(found.places) == 2:
        return No("a condition of rows and columns together is that of no factor", found.root)
    if apart:
        known.append(_matrix(found, matrices[0].load, value.leaves[0].load, term, Poly.atom(r), whole=True))
    shared = size > 1 and len({matrix.shape[0] for matrix in matrices}) > 1 and not parts
    no = No("several rows share what it loads", found.root) if shared else None
    no = no or next((no for matrix in known if (no := matrix.find(scalars)) is not None), None)
    if no is not None:
        return _row_by_row(raising, found, term, value, known, scalars, rows, no)
    row = None if apart or not parts else _row(found, parts, matrices, rows)
    answer = Yes(_K) if row is not None else _width(found, matrices, rows)
    if isinstance(answer, No):
        return answer
    width = min(answer.plan, _most(found), r.extent.constant or answer.plan)
    blocks = Blocks.of(r, width, scalars)
    assert blocks is not None
    for matrix in known:
        rows_, columns = matrix.shape
        matrix.shape = (rows_, width) if matrix.along else (width, columns)
        matrix.kind = tile_type(matrix.shape, element_type(matrix.kind))
    mask = None if blocks.limit is None and not term.condition.parts else known[len(matrices) :]
    normal = _Normal(found, value, parts, matrices, mask[0] if mask else None, row, r.extent, blocks, rest)
    return Yes(normal)


def _row_by_row(
    raising: Raising,
    found: Reduction,
    term: Term,
    value: Computed,
    matrices: Sequence[Matrix],
    scalars: Scalars,
    rows: Rows,
    no: No,
) -> Answer[_Normal]:
    """The loop that a term is whose rows lie at places that are loaded, one in each iteration; else `no`."""
    (r,) = term.ranges
    is_row = len(found.places) == 1 and math.prod(shape_of(found.kind)) >= rows.matrix
    if not is_row or not found.loops or not found.reduces or r.extent.constant == 1:
        return no  # it is in normal form, or goes over a few rows
    known, blocks = loaded_rows(matrices, raising, r, scalars), Blocks.of(r, 1, scalars)
    if not known or blocks is None:
        return no
    for matrix in known:
        matrix.kind = tile_type(matrix.shape, element_type(matrix.kind))
    own, mask = known[: len(value.leaves)], known[len(value.leaves) :]
    return Yes(_Normal(found, value, [], own, mask[0] if mask else None, None, r.extent, blocks))


def _is_masked_apart(nothing: int, term: Term, matrices: Sequence[Matrix]) -> bool:
    """Whether elements are selected after they are computed: masks of what is loaded do not leave out all others."""
    held = [frozenset(matrix.conditions) for matrix in matrices]
    by_loads = frozenset[Node]().union(*held) if nothing == _FACTORS else frozenset.intersection(*held)
    return nothing == _SOME or not term.condition.parts <= by_loads


def _factors(raising: Raising, found: Reduction, value: Computed) -> list[Computed]:
    """The factors of a product of two elements of memory, each for itself, whose masks are the product's; none if it is
    something else."""
    if found.combine is not AddFOp or len(value.factors) != 2:
        return []
    answers = [Elements(raising, found.early, ZERO).product([factor], ZERO) for factor in value.factors]
    parts = [answer.plan for answer in answers if isinstance(answer, Yes) and len(answer.plan.leaves) == 1]
    return parts if len(parts) == len(value.leaves) == 2 else []


def _matrix(found: Reduction, node: Node, load: LoadOp, term: Term, k: Poly, *, whole: bool = False) -> Matrix:
    """What is loaded for an element, its rows those of the result; or its columns, where rows do not matter.

    Conditions for rows of others are theirs, but for the one that knows all (`whole`).
    """
    own, element = choice(as_element(node))
    assert isinstance(element, Load)
    conditions = own.parts | (term.condition.parts if whole else frozenset())
    ours = [n for n, place in enumerate(found.places) if not is_apart((element.offset, *conditions), place)]
    rest = [place for n, place in enumerate(found.places) if n not in ours]
    conditions |= {c for c in term.condition.parts if is_apart(c, *rest)}
    ordered, number = sorted(conditions, key=fingerprint), ours[0] if len(ours) == 1 else 0
    place = found.places[number] if len(ours) == 1 else ZERO
    count = shape_of(found.kind)[number] if len(ours) == 1 else 1
    if number == 1:
        return Matrix(element, (k, place), (1, count), 0, ordered, False, load, load.result.type)
    return Matrix(element, (place, k), (count, 1), 1, ordered, False, load, load.result.type)


def _width(found: Reduction, matrices: Sequence[Matrix], rows: Rows) -> Answer[int]:
    """How many elements are reduced at once, if that is better than how it is written."""
    count, along = math.prod(shape_of(found.result.type)), all(matrix.goes_along for matrix in matrices)
    inner = [op for op in found.reduces if any(is_inside(op, loop) for loop in found.loops)]
    is_one = len(found.pieces) == 1 and len(found.loops) == 1 and len(found.reduces) == 1 and inner
    if is_one:
        (op,) = inner
        size = shape_of(op.operands[0].type)[property_int(op, "axis")]
        if size >= min(rows.along, _most(found)) if along else size <= rows.across:
            return No("it is in normal form")
    if len(found.places) == 2:
        return Yes(rows.depth)
    if not along and count > rows.most:
        return No("its tiles are so large that carrying them hardly matters")
    return Yes(rows.along if along else rows.across)


def _most(found: Reduction) -> int:
    """How many elements of a row are a tile at most."""
    return 1 << (MAX_TILE_NUMEL // math.prod(shape_of(found.result.type))).bit_length() - 1


_K = 128  # elements of a row times a matrix: planners of dots join iterations


def _row(found: Reduction, parts: Sequence[Computed], matrices: Sequence[Matrix], rows: Rows) -> int | None:
    """Which factor is one row for all rows of the other, both as they lie in memory; None if it is no such dot."""
    heights, count = [matrix.shape[0] for matrix in matrices], math.prod(shape_of(found.result.type))
    if len(found.places) != 1 or count < rows.matrix or sorted(heights) != [1, count]:
        return None
    return heights.index(1) if _are_loads(parts) and all(matrix.is_dense for matrix in matrices) else None


def _are_loads(parts: Sequence[Computed]) -> bool:
    """Whether factors are elements of memory, of one type, widened at most."""
    ops = [defining_op(value) for part in parts for value, _ in part.places]
    plain = all(isinstance(op, (ExtFOp, LoadOp, *VIEWS)) for op in ops)
    return plain and len({element_type(part.leaves[0].value.type) for part in parts}) == 1


# --- writing ---------------------------------------------------------------------------------------------------------


def _write(normals: Sequence[_Normal]) -> None:
    """Put the loop in front of the end of the reductions, and let its results stand for those."""
    normal, place, firsts, tiles = normals[0], normals[0].found.place, list[SSAValue](), _Tiles()
    b = Builder(place)
    for found, kind in [(normal.found, normal.kind) for normal in normals]:
        number = found.neutral if found.begin is None else found.begin
        first = found.first or b.number(number, found.kind)
        firsts.append(b.viewed(first, kind))
    blocks = normal.blocks
    if blocks.extent.constant == blocks.size:
        totals = [_combined(n, affine.Poly.of(0), None, f, place, tiles) for n, f in zip(normals, firsts, strict=True)]
    else:
        matrices = [m for n in normals for m in ([*n.matrices, n.mask] if n.mask else n.matrices)]
        loop = blocks.loop(firsts, matrices, place)
        carried, end, at = loop.carried, loop.body.block.last_op, blocks.at(loop)
        assert end is not None
        pairs = zip(normals, carried, strict=True)
        end.operands = [_combined(n, at, blocks.limit, arg, end, tiles) for n, arg in pairs]
        totals = list(loop.results)
    for normal, total in zip(normals, totals, strict=True):
        found = normal.found
        if normal.rest is not None:
            total = with_rest(found, normal.value, normal.rest, total, place)
        total = b.viewed(total, found.result.type)
        if isinstance(found.root, ReduceOp):
            replace(found.root, [total])
        else:
            found.result.replace_all_uses_with(total)


_Tiles = dict[tuple[Node, float, tuple[Node, ...]], SSAValue]  # what is loaded once for all sums


def _combined(
    normal: _Normal, at: affine.Poly, limit: affine.Poly | None, carried: SSAValue, anchor: Operation, known: _Tiles
) -> SSAValue:
    """What is carried, combined with the elements from a place on."""
    found, value, b = normal.found, normal.value, Builder(anchor)
    rows = shape_of(found.kind)
    if normal.is_dot:
        return _dot(normal, [matrix.at(at, limit, anchor) for matrix in normal.matrices], carried, b)
    tiles = list[SSAValue]()
    for matrix, leaf in zip(normal.matrices, value.leaves, strict=True):
        key = matrix.load, leaf.other, tuple(matrix.conditions)
        if key not in known:
            loaded = matrix.at(at, limit, anchor, leaf.other)
            known[key] = b.viewed(loaded, tile_type((*rows, normal.blocks.size), element_type(loaded.type)))
        tiles.append(known[key])
    tile = value.in_rows(tiles, anchor)
    mask = None if normal.mask is None else normal.mask.inside(at, limit, anchor)
    if mask is not None:
        tile = b.choose(b.viewed(mask, with_element(tile.type, i1)), tile, b.number(found.neutral, tile.type))
    one = normal.blocks.size == 1
    total = b.viewed(tile, carried.type) if one else b.reduced(found.combine, tile, len(rows), found.properties)
    made = found.combine.create(
        operands=[carried, total], result_types=[carried.type], properties=dict(found.properties)
    )
    return b.put(made)


def _dot(normal: _Normal, tiles: Sequence[SSAValue], carried: SSAValue, b: Builder) -> SSAValue:
    """What is carried, and the dot of elements of two factors, as exact as sums."""
    if not _are_loads(normal.parts):
        tiles = [part.in_rows([tile], b.anchor) for part, tile in zip(normal.parts, tiles, strict=True)]
    if normal.row is None:
        left, right = tiles
    else:
        left, right = tiles[normal.row], b.transposed(tiles[1 - normal.row])
    return b.make(DotOp, carried.type, left, right, carried, inputPrecision="ieee")
