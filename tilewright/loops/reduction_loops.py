"""Reductions over iterations in normal form: what a loop combines in several ways is reduced in one, once an iteration.

    for ..: %u, %v = tt.split (tt.reshape %x[16, 128])      for %t = ..: %s' = addf %s, (tt.reduce (axis = 1) %p)
      %s' = addf %s, (tt.reduce %u^2 + tt.reduce %v^2)  ->    with %p the square of x[16, 128] at 128 * %t

    for ..: %s'[16, 8] = addf %s, (tt.reduce %w[16, 16, 8])  ->   one sum of w[16, 128] in each iteration, none behind
    tt.reduce (axis = 1) %s

What comes out is one reduction of a product of loads over one range (`terms.py`), however pieces are cut, summed
separately and put together; the loop goes through that range. Elements are combined in another order, as reductions
do anyway. Nothing cancels and nothing is zero by itself here, so what is not finite comes out as it did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis import affine
from tilewright.analysis.constants import constant_of
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.attrs import I32
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name, shape_of, tile_type
from tilewright.ir.values import defining_op, is_inside, is_tile, result_number
from tilewright.ir.walk import walk
from tilewright.loops.blocks import beside, loop_through
from tilewright.loops.lowering import Matrix, Scalars
from tilewright.loops.nest import ALWAYS, ZERO, Load, Node, Poly, ranges_of
from tilewright.loops.normal import normalized
from tilewright.loops.products import Combination, Term, fingerprint
from tilewright.loops.raising import VIEWS, Raising
from tilewright.loops.subjects import REDUCTION_LOOPS
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.elementwise import AddFOp, FmaOp, MulFOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import ReshapeOp
from tilewright.ops.spec import Monoid, spec_of
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.placed_loads import first_write
from tilewright.passes.rewriting import replace, value_before

_PRODUCTS = (MulFOp, FmaOp)
_WIDTH = 128  # elements of a row in an iteration; how many iterations are taken as one is for planners to say


@dataclass(slots=True)
class _Reduction:
    """What is combined to a value.

    Args:
        root: the operation that gives it.
        combine: by which elements are combined.
        monoid: that this is.
        reduces, loops, loads: that it is made of.
    """

    root: Operation
    combine: Operation
    monoid: Monoid
    reduces: list[ReduceOp] = field(default_factory=list)
    loops: list[ForOp] = field(default_factory=list)
    loads: list[LoadOp] = field(default_factory=list)

    @property
    def result(self) -> SSAValue:
        """What it is combined to."""
        return next(result for result in self.root.results if result.first_use is not None)


@dataclass(slots=True)
class _Normal:
    """A reduction as one loop.

    Args:
        term: what is reduced.
        matrices: the factors in memory.
        extent: elements of a row.
        blocks: iterations; None if the last one may end early.
    """

    term: Term
    matrices: list[Matrix]
    extent: affine.Poly
    blocks: affine.Poly | None


def normalize_reduction_loops(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all reductions over iterations of a function that are none in normal form; says whether there was one."""
    changed = False
    for op in [op for op in walk(function) if isinstance(op, (ForOp, ReduceOp))]:
        found = _found(op) if op.parent is not None else None
        if found is None:
            continue
        normal = decisions.note(REDUCTION_LOOPS, op, _normal(function, found))
        if normal is not None:
            _write(found, normal)
            eliminate_dead_code(function)
            changed = True
    return changed


def _found(root: Operation) -> _Reduction | None:
    """The reduction that ends at an operation, if a loop combines more than one reduction or load to it."""
    used = [result for result in root.results if result.first_use is not None]
    if len(used) != 1 or ir_name(element_type(used[0].type)) not in ("f32", "f64"):
        return None
    combine = _combine_of(root, used[0])
    monoid = None if combine is None else spec_of(combine).monoid
    if combine is None or monoid is None:
        return None
    found = _Reduction(root, combine, monoid)
    if not _take(found, found.result) or not found.loops or not found.reduces or not found.loads:
        return None
    bases = {_base(load.ptr) for load in found.loads}
    return found if len(found.reduces) > 1 or len(bases) < len(found.loads) else None


def _base(pointer: SSAValue) -> SSAValue:
    """The pointer that offsets are added to."""
    op = defining_op(pointer)
    while isinstance(op, AddPtrOp) or type(op) in VIEWS:
        assert op is not None
        pointer = op.operands[0]
        op = defining_op(pointer)
    return pointer


def _combine_of(root: Operation, result: SSAValue) -> Operation | None:
    if isinstance(root, ReduceOp):
        return single_operation(root.regions[0].block)
    assert isinstance(root, ForOp)
    op = defining_op(root.yielded[result_number(result)])
    return None if op is None or op.regions else op


def _take(found: _Reduction, value: SSAValue) -> bool:
    """Takes in what a value is made of; whether that is loads, what combines them, products of them and views."""
    todo, seen, sums = [value], set[SSAValue](), isinstance(found.combine, AddFOp)
    carried = set[SSAValue]()
    while todo:
        value = todo.pop()
        if value in seen or value in carried:
            continue
        seen.add(value)
        op, constant = defining_op(value), constant_of(value)
        is_behind = op is not None and op is not found.root and op.parent is found.root.parent
        if constant is None and is_behind and not value.has_one_use():
            return False  # what somebody else wants is computed anyway
        if constant is not None:
            if not (sums and isinstance(constant, float) and 0 < constant < math.inf):
                return False
        elif isinstance(op, ForOp):
            number = result_number(value)
            first = op.iter_args[number]
            if first not in carried and constant_of(first) != found.monoid.identity(32):
                return False
            found.loops += [op] if op not in found.loops else []
            carried.add(op.carried[number])
            todo.append(op.yielded[number])
        elif isinstance(op, ReduceOp):
            same = single_operation(op.regions[0].block)
            if same is None or type(same) is not type(found.combine):
                return False
            found.reduces.append(op)
            todo.append(op.operands[0])
        elif isinstance(op, LoadOp):
            found.loads.append(op)
        elif op is not None and (type(op) in (*VIEWS, type(found.combine)) or (sums and type(op) in _PRODUCTS)):
            todo += op.operands
        else:
            return False
    return True


def _something_else(found: _Reduction) -> No | None:
    """What the loops do beside; None if it is nothing."""
    outer = found.loops[0]
    for loop in found.loops:
        no = beside(loop, found.loops, "the reduction", (ReduceOp,))
        if no is not None:
            return no
    if not all(is_inside(load, outer) for load in found.loads) or outer.parent is not found.root.parent:
        return No("what it combines is not loaded in the loop")
    written = first_write(outer, found.root)
    return None if written is None else No("memory may change between the loads", written)


def _normal(function: FuncOp, found: _Reduction) -> Answer[_Normal]:
    """A reduction as one loop."""
    no = _something_else(found)
    if no is not None:
        return no
    raising, result = Raising(function), found.result
    dims, kind = raising.dims((result, "reduced"), shape_of(result.type)), ir_name(element_type(result.type))
    node = normalized(raising.value(result, dims))
    if not isinstance(node, Combination) or len(node.terms) != 1 or len(node.terms[0].ranges) != 1:
        return No("its pieces do not go on evenly", found.root)
    (term,) = node.terms
    (r,) = term.ranges
    if term.attributes or not all(map(partial(_is_whole, kind), term.factors)):
        return No("it is no reduction of products of loads", found.root)
    loads = sorted({f for f in term.factors if isinstance(f, Load)}, key=fingerprint)
    if len(found.reduces) == 1 and len(loads) == len(found.loads):
        return No("it is in normal form")
    rows, scalars = [dim for dim in dims if dim is not ZERO], Scalars(raising, found.root)
    extent, divided = scalars.poly(r.extent), r.extent.divided(_WIDTH)
    blocks = None if divided is None else scalars.poly(divided)
    if extent is None or len(rows) > 1:
        return No("the number of its elements is not known before it", found.root)
    is_whole = blocks is not None and term.condition is ALWAYS
    if not is_whole and (not isinstance(found.combine, AddFOp) or len(loads) > 1):
        return No("what lies behind its end is not known to add nothing", found.root)
    matrices, k = list[Matrix](), Poly.atom(r)
    for load in loads:
        matrix = _matrix(raising, load, term, rows, k, found)
        no = matrix.find(scalars)
        if no is not None:
            return no
        matrices.append(matrix)
    return Yes(_Normal(term, matrices, extent, blocks), "one reduction in each iteration of one loop")


def _is_whole(kind: str, factor: Node) -> bool:
    """Whether a factor is an element of memory that is read wherever it counts."""
    return isinstance(factor, Load) and factor.type == kind and factor.condition is ALWAYS


def _matrix(raising: Raising, load: Load, term: Term, rows: list[Poly], k: Poly, found: _Reduction) -> Matrix:
    """A factor, its rows those of the result."""
    extent = math.prod(shape_of(found.result.type))
    conditions = sorted(term.condition.parts, key=fingerprint)
    has_rows = bool(rows) and not ranges_of(rows[0]).isdisjoint(ranges_of((load.offset, tuple(conditions))))
    shape = (extent, _WIDTH) if rows else (_WIDTH,)
    kind = tile_type(shape, element_type(found.result.type))
    dims = (rows[0] if has_rows else ZERO, k)
    return Matrix(load, dims, (extent if has_rows else 1, _WIDTH), 1, conditions, False, found.loads[0], kind)


def _write(found: _Reduction, normal: _Normal) -> None:
    """Put the loop in front of the end of the reduction, and let its result stand for that."""
    root, result, element = found.root, found.result, element_type(found.result.type)
    shape = shape_of(normal.matrices[0].kind)[:-1]
    kind = tile_type(shape, element) if shape else element
    first = value_before(ConstantOp.of(float(found.monoid.identity(32)), kind), root)
    loop = loop_through(normal.extent, _WIDTH, normal.blocks, first, root)
    body, end = loop.body.block, loop.body.block.last_op
    assert end is not None
    for matrix in normal.matrices:
        matrix.hoist(loop)
    end.location = loop.location
    end.operands = [_combined(found, normal, body, end)]
    total = SSAValue.get(loop.results[0])
    if normal.term.coefficient != 1:
        number = value_before(ConstantOp.of(float(normal.term.coefficient), kind), root)
        total = value_before(MulFOp.create(operands=[total, number], result_types=[kind]), root)
    if total.type != result.type:
        view = ReshapeOp if is_tile(total) else SplatOp
        total = value_before(view.create(operands=[total], result_types=[result.type]), root)
    if isinstance(root, ReduceOp):
        replace(root, [total])
    else:
        result.replace_all_uses_with(total)


def _combined(found: _Reduction, normal: _Normal, body: Block, end: Operation) -> SSAValue:
    """What an iteration hands on."""
    at = affine.Poly.of(_WIDTH) * affine.Poly.atom(body.args[0])
    limit = normal.extent if normal.blocks is None else None
    tiles = {matrix.load: matrix.at(at, limit, end) for matrix in normal.matrices}
    product, *factors = [tiles[factor] for factor in normal.term.factors if isinstance(factor, Load)]
    for factor in factors:
        product = value_before(MulFOp.create(operands=[product, factor], result_types=[product.type]), end)
    kind = body.args[1].type
    reduce = ReduceOp.create(
        operands=[product],
        result_types=[kind],
        properties={"axis": I32.encode(len(shape_of(product.type)) - 1)},  # type: ignore[dict-item]
        regions=[found.reduces[0].regions[0].clone()],
    )
    total = value_before(reduce, end)
    return value_before(type(found.combine).create(operands=[body.args[1], total], result_types=[kind]), end)
