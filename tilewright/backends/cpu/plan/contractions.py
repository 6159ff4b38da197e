"""Contractions: sums of products that a loop adds up are dots, whatever they are made of by how they are written.

    for ..: iter_args(%s) {                              for ..: iter_args(%t = 0) {
      %s' = %s - sum over k of (0.5 * %x[k]) * %w[n, k]    %t' = tt.dot %x[1, k], (tt.trans %w), %t
      yield %s'                                      ->    yield %t'
    }                                                    }
                                                         %s + -0.5 * (tt.reshape %t)

What an iteration adds is read from its loop nest (`loops/raising.py`): a number times the elements of two loads, summed
over a range that both have, under conditions. How they got there - signs, numbers, views, casts, where the numbers
stand, whether each iteration folds its sums or the last one does - is gone by then. As a dot, iterations are taken
several at once (`k_strip_mining.py`), through operands where they lie, and lanes are folded once.

Numbers are taken out of the sum: that changes its rounding as little as another order does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.constants import constant_of
from tilewright.analysis.matrices import memory_operand
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.subjects import SUM_AS_DOT
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.attrs import I32
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.values import defining_op, property_int
from tilewright.ir.walk import walk
from tilewright.loops.closed_forms import carried_in, combined
from tilewright.loops.lifting import float_of
from tilewright.loops.nest import (
    ALWAYS,
    ZERO,
    Apply,
    Carried,
    Every,
    Index,
    Load,
    Node,
    Number,
    Poly,
    Range,
    Reduce,
    Select,
    ranges_of,
)
from tilewright.loops.raising import Raising
from tilewright.ops.broadcast import ExpandDimsOp
from tilewright.ops.casts import ExtFOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, MulFOp, NegFOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import ReshapeOp
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.placed_loads import load_at, placed
from tilewright.passes.rewriting import insert_before, loop_carrying, transposed, value_before

_LARGEST = 1 << 20  # number that is taken out of a sum, and one over the smallest: neither overflows by it


@dataclass(frozen=True, slots=True)
class _Product:
    """What is summed in an iteration.

    Args:
        number: that it is multiplied by.
        loads: what is multiplied.
        ranges: that are reduced.
        conditions: under which an element counts, else it is zero.
    """

    number: float = 1.0
    loads: tuple[Load, ...] = ()
    ranges: tuple[Range, ...] = ()
    conditions: Every = ALWAYS


@dataclass(slots=True)
class _Sum:
    """A sum that a loop adds up.

    Args:
        loop, number: which of the loop's carried tiles it is.
        op: the reduction, or the dot; behind the loop, where its last iteration's tile is reduced.
    """

    loop: ForOp
    number: int
    op: Operation

    @property
    def is_behind(self) -> bool:
        """Whether the sum is folded behind the loop."""
        return self.op.parent is not self.loop.body.block


@dataclass(slots=True)
class _Contraction:
    """A sum as a dot.

    Args:
        sum: where it stands.
        number: that the dot is multiplied by.
        left, right: the operands, a row or rows along k, and columns.
        properties: of the dot.
    """

    sum: _Sum
    number: float
    left: SSAValue
    right: SSAValue
    properties: dict[str, Attribute]


def raise_contractions(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such sums of a function; says whether anything changed."""
    changed, raising = False, None
    for op in [op for op in walk(function) if isinstance(op, (ReduceOp, DotOp))]:
        for found in _sums_of(op) if op.parent is not None else ():  # it may be gone, with another sum of its loop
            raising = raising or Raising(function)
            product = _product_of(raising, found)
            answer = product if isinstance(product, No) else _as_dot(found, raising, *product.plan)
            plan = decisions.note(SUM_AS_DOT, op, answer)
            if plan is not None:
                _multiply(plan)
                eliminate_dead_code(function)
                changed, raising = True, None
                break
    return changed


# --- where sums stand ------------------------------------------------------------------------------------------------


def _sums_of(op: ReduceOp | DotOp) -> Iterator[_Sum]:
    """The sums that a reduction or a dot may be a part of, if nobody else wants what comes before it."""
    shape, source, loop = shape_of(op.operands[0].type), op.operands[0], op.parent_op()
    if len(shape) != 2 or element_type(op.results[0].type) != f32:
        return
    if isinstance(op, ReduceOp) and not isinstance(single_operation(op.regions[0].block), AddFOp):
        return
    if (shape[1] if isinstance(op, DotOp) else min(shape)) < tuning.SUMMED_SIZE:
        return
    number = _handed_on(loop, op.results[0]) if isinstance(loop, ForOp) else None
    if isinstance(loop, ForOp) and number is not None and not _is_plain(op, loop, number):
        yield _Sum(loop, number, op)
    behind = defining_op(source)
    if isinstance(op, ReduceOp) and isinstance(behind, ForOp) and source.has_one_use():
        number = behind.results.index(source)
        if constant_of(behind.iter_args[number]) == 0 and _is_sum(behind, number):
            yield _Sum(behind, number, op)


def _is_plain(dot: Operation, loop: ForOp, number: int) -> bool:
    """Whether a dot adds to what its loop carries, already, and has no single column, which had better be a row."""
    last = loop.body.block.last_op
    adds = (
        last is not None and isinstance(dot, DotOp) and dot.c is loop.carried[number] and last.operands[number] is dot.d
    )
    return adds and shape_of(dot.results[0].type)[1] > 1


def _handed_on(loop: ForOp, value: SSAValue) -> int | None:
    """The number of the one tile that a value becomes a part of, in a loop that does nothing else with it."""
    numbers = _ends(loop, value)
    if numbers is None or len(numbers) != 1:
        return None
    (number,) = numbers
    return number if _is_sum(loop, number) else None


def _is_sum(loop: ForOp, number: int) -> bool:
    """Whether nothing but what becomes of it needs a carried tile."""
    return _ends(loop, loop.carried[number]) == {number}


def _ends(loop: ForOp, value: SSAValue) -> set[int] | None:
    """The carried values into which a value goes; None if it does something else, too."""
    found, seen, todo = set[int](), set[Operation](), [value]
    while todo:
        for use in todo.pop().uses:
            op = use.operation
            if op is loop.body.block.last_op:
                found.add(use.index)
            elif op not in seen:
                if (
                    op.parent is not loop.body.block
                    or (op.regions and not isinstance(op, ReduceOp))
                    or not is_removable(op)
                ):
                    return None
                seen.add(op)
                todo += op.results
    return found


# --- what they are sums of -------------------------------------------------------------------------------------------


def _product_of(raising: Raising, found: _Sum) -> Answer[tuple[_Product, Index]]:
    """What an iteration adds, at an index of the result; and k last, where the sum is folded behind the loop."""
    last = found.loop.body.block.last_op
    assert last is not None
    yielded = last.operands[found.number]
    iteration = raising.loops.of(found.loop).iteration
    dims = raising.dims((found.loop, found.number), shape_of(yielded.type))
    made = combined(raising.value(yielded, dims), Carried.of(iteration, found.number, dims), "f32")
    if made is None or made[0] is not AddFOp or carried_in(made[1], iteration):
        return No("what the loop hands on is more than a sum", defining_op(yielded))
    product = _product(made[1])
    if product is None or len(product.loads) != 2:
        return No("what its iterations add is no product of two loads", found.op)
    if found.is_behind:
        axis = property_int(found.op, "axis")
        (reduced,) = dims[axis].atoms
        assert isinstance(reduced, Range)
        product, dims = replace(product, ranges=(*product.ranges, reduced)), (*dims[:axis], *dims[axis + 1 :])
    if len(product.ranges) != 1:
        return No("more than one dim of its products is summed")
    return Yes((product, dims))


def _product(node: Node) -> _Product | None:
    """An expression as a product; None if it is none."""
    number = float_of(node)
    if number is not None:
        return _Product(number)
    if isinstance(node, Load):
        return _Product(loads=(node,))
    if isinstance(node, Reduce):
        inner = _product(node.body) if node.monoid is AddFOp and node.first in (None, Number.of("0.0", "f32")) else None
        return inner and replace(inner, ranges=(*node.ranges, *inner.ranges))
    if isinstance(node, Select) and float_of(node.otherwise) == 0 and isinstance(node.condition, Every):
        inner = _product(node.then)
        return inner and replace(inner, conditions=Every.of(inner.conditions.parts | node.condition.parts))
    if not isinstance(node, Apply) or node.type != "f32":
        return None
    if node.op is ExtFOp:
        return _product(node.operands[0]) if isinstance(node.operands[0], Load) else None
    total = _Product(-1.0) if node.op is NegFOp else _Product()
    for operand in node.operands if node.op in (MulFOp, NegFOp) else ():
        part = _product(operand)
        if part is None:
            return None
        total = _times(total, part)
    return total if total.loads else None


def _times(x: _Product, y: _Product) -> _Product:
    conditions = Every.of(x.conditions.parts | y.conditions.parts)
    return _Product(x.number * y.number, x.loads + y.loads, x.ranges + y.ranges, conditions)


# --- as dots ---------------------------------------------------------------------------------------------------------


def _as_dot(found: _Sum, raising: Raising, product: _Product, dims: Index) -> Answer[_Contraction]:
    """The dot that a sum of products is, if its operands lie in memory as they are multiplied."""
    if not 1 / _LARGEST <= abs(product.number) <= _LARGEST:
        return No(f"its products are multiplied by {product.number:g}")
    (k,) = product.ranges
    places = [dim for dim in dims if dim is not ZERO]
    if len(places) not in (1, 2):
        return No("its result is no row and no matrix")
    rows, columns = (ZERO, *places) if len(places) == 1 else places
    for one, other in (product.loads, product.loads[::-1]):
        here = _independent(one, columns) and _independent(other, rows)
        if here and not _independent(other, columns):
            return _of_operands(found, raising, replace(product, loads=(one, other)), (rows, Poly.atom(k), columns))
    return No("its factors are no rows and columns")


def _independent(load: Load, place: Poly) -> bool:
    """Whether a load reads the same wherever it is along a dim."""
    return ranges_of(place).isdisjoint(ranges_of((load.offset, load.condition, load.base)))


def _of_operands(
    found: _Sum, raising: Raising, product: _Product, places: tuple[Poly, Poly, Poly]
) -> Answer[_Contraction]:
    rows, k, columns = places
    if product.loads[0].type != product.loads[1].type:
        return No("the row and the matrix have different types")
    if any(part not in load.condition.parts for part in product.conditions.parts for load in product.loads):
        return No("a condition is no mask of both loads", found.op, "the same mask on both loads")
    sides: list[SSAValue] = []
    for load, place in zip(product.loads, ((rows, k), (k, columns)), strict=True):
        if load not in raising.sources:
            return No("an iteration takes what the one before has loaded", found.op)
        op, index = raising.sources[load]
        if op.parent is not found.loop.body.block:
            return No("a factor is loaded outside of the loop's body", op)
        side = _operand(op, index, place)
        if isinstance(side, No):
            return side
        sides.append(side.plan)
    properties = dict(found.op.properties) if isinstance(found.op, DotOp) else {}
    text = "multiplied as a matrix of one row" if rows is ZERO else "added up by a dot"
    return Yes(_Contraction(found, product.number, sides[0], sides[1], properties), text)


def _operand(load: LoadOp, index: Index, place: tuple[Poly, Poly]) -> Answer[SSAValue]:
    """A load as an operand, its elements at an index being those of the operand at a place."""
    if index == place or index == place[::-1]:
        source: SSAValue = load.result
    elif len(index) == 1 and index[0] in place and ZERO in place:
        source = _as_matrix(load)
        index = (ZERO, index[0])
    elif ZERO in place and len(index) == 2:
        return _one_row(load, index, place)
    else:
        return No("a factor is read in another order", load)
    answer = memory_operand(source, (), AffineAnalysis(lambda value: False))
    if isinstance(answer, No):
        return answer
    return Yes(source if index == place else transposed(source, load))


def _one_row(load: LoadOp, index: Index, place: tuple[Poly, Poly]) -> Answer[SSAValue]:
    """One row of a load all rows of which are the same."""
    answer = placed(load)
    if isinstance(answer, No):
        return answer
    dims = [dim for dim, at in enumerate(index) if at in place and at is not ZERO]
    if len(dims) != 1 or answer.plan.strides[1 - dims[0]].terms:
        return No("a factor is read in another order", load)
    (along,) = dims
    shape = tuple([n if dim == along else 1 for dim, n in enumerate(shape_of(load.result.type))])
    bounds = [bound if dim == along else [] for dim, bound in enumerate(answer.plan.bounds)]
    row = load_at(answer.plan, answer.plan.offset, bounds, load, shape)
    return Yes(row if (place[0] is ZERO) == (along == 1) else transposed(row, load))


def _as_matrix(load: LoadOp) -> SSAValue:
    """A load of one dim as a matrix of one row."""
    kind = tile_type((1, *shape_of(load.result.type)), element_type(load.result.type))
    properties: dict[str, Attribute] = {"axis": I32.encode(0)}  # type: ignore[dict-item]
    op = ExpandDimsOp.create(operands=[load.result], result_types=[kind], properties=properties)
    op.location = load.location
    load.parent_block().insert_op_after(op, load)  # type: ignore[union-attr]
    return op.results[0]


# --- rewriting -------------------------------------------------------------------------------------------------------


def _multiply(plan: _Contraction) -> None:
    """A loop that carries what a dot adds to, and what becomes of it behind the loop."""
    loop, number, body = plan.sum.loop, plan.sum.number, plan.sum.loop.body.block
    behind = plan.sum.is_behind
    end, old, given = body.last_op, body.args[number + 1], loop.iter_args[number]
    assert end is not None
    kind = tile_type((shape_of(plan.left.type)[0], shape_of(plan.right.type)[1]), f32)
    from_zero = behind or plan.number != 1
    zero = value_before(ConstantOp.of(0.0, kind), loop)
    start = zero if from_zero or constant_of(given) == 0 else _reshaped(given, kind, loop)
    carried = body.insert_arg(kind, old.index)
    dot = DotOp.create(operands=[plan.left, plan.right, carried], result_types=[kind], properties=plan.properties)
    insert_before(dot, defining_op(end.operands[number]) or end)
    dot.location = plan.sum.op.location
    end.operands[number] = dot.d
    old.replace_all_uses_with(value_before(ConstantOp.of(0.0, old.type), loop))
    body.erase_arg(old)
    loop.operands[number + 3] = start
    results: list[SSAValue] = list(loop_carrying(loop, loop.iter_args).results)
    result = plan.sum.op.results[0] if behind else loop.results[number]
    total = results[number]
    total = _reshaped(total, result.type, loop)
    if plan.number != 1:
        total = _after(plan.number, total, None if behind else given, loop)
    if behind:
        result.replace_all_uses_with(total)
    results[number] = total if not behind else value_before(ConstantOp.of(0.0, loop.results[number].type), loop)
    for one, other in zip(loop.results, results, strict=True):
        one.replace_all_uses_with(other)
    loop.detach()  # type: ignore[no-untyped-call]
    loop.erase()


def _reshaped(value: SSAValue, kind: Attribute, anchor: Operation) -> SSAValue:
    """A tile with the shape of a type."""
    if value.type == kind:
        return value
    return value_before(ReshapeOp.create(operands=[value], result_types=[kind]), anchor)


def _after(number: float, total: SSAValue, first: SSAValue | None, anchor: Operation) -> SSAValue:
    """A sum times a number, and what it begins with."""
    by = value_before(ConstantOp.of(number, total.type), anchor)
    total = value_before(MulFOp.create(operands=[total, by], result_types=[total.type]), anchor)
    if first is None or constant_of(first) == 0:
        return total
    return value_before(AddFOp.create(operands=[first, total], result_types=[total.type]), anchor)
