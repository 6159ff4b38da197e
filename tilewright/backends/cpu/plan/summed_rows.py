"""Sums over a row times a matrix that a loop adds up are products of matrices with one row.

    for ..: iter_args(%s[n]) {                              for ..: iter_args(%t[1, n]) {
      %p = mulf (broadcast %x[1, k]), %w[n, k]                %t' = tt.dot %x[1, k], (tt.trans %w), %t
      %s' = addf %s, (tt.reduce (axis = 1, addf) %p)    ->    yield %t'
      yield %s'                                             }
    }                                                       tt.reshape %t

    for ..: iter_args(%s = 0[n, k]) {
      yield math.fma (broadcast %x[1, k]), %w[n, k], %s
    }                                                   ->  the same, from 0
    tt.reduce (axis = 1, addf) %s

As sums, the lanes of each row are folded in every trip, or a whole tile of sums is kept, and a trip reads a line or
two of each row. As a product, several trips are one (`coalesce.py`), which read rows at length and fold lanes once.
Operands must lie in memory as they are multiplied; conversions of both to f32 are a product's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.matrices import memory_operand
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.subjects import SUMMED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.attrs import I32
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.values import owner_of
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.casts import ExtFOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, FmaOp, MulFOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import ReshapeOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before, loop_carrying, replace, transposed, value_before


@dataclass(slots=True)
class _Sum:
    """A sum that a loop adds up.

    Args:
        loop, number: which of the loop's carried tiles it is.
        reduction: over `axis`, in the loop or of its result.
        added: what the loop hands on.
        row, matrix: loads of what is multiplied, of one dim and of two.
    """

    loop: ForOp
    number: int
    reduction: ReduceOp
    axis: int
    added: Operation
    row: LoadOp
    matrix: LoadOp

    @property
    def in_loop(self) -> bool:
        """Whether each trip reduces its products; else the last one's sums are reduced."""
        return self.reduction.parent is self.loop.body.block


def multiply_summed_rows(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such sums of a function; says whether anything changed."""
    changed = False
    for op in [op for op in walk(function) if isinstance(op, ReduceOp)]:
        found = _summed(op)
        if found is not None and decisions.note(SUMMED, op, _in_memory(found)) is not None:
            _multiply(found)
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def is_product(op: ReduceOp) -> bool:
    """Whether a reduction will be a product."""
    found = _summed(op)
    return found is not None and isinstance(_in_memory(found), Yes)


def _summed(op: ReduceOp) -> _Sum | None:
    """The sum that a reduction is a part of, if nobody else wants what comes before it."""
    shape, axis = shape_of(op.operands[0].type), int(op.attr_values()["axis"])
    if len(shape) != 2 or min(shape) < tuning.SUMMED_SIZE or element_type(op.operands[0].type) != f32:
        return None
    if not isinstance(single_operation(op.regions[0].block), AddFOp) or not op.operands[0].has_one_use():
        return None
    place = _sums_of_trips(op) or _sum_at_the_end(op)
    if place is None:
        return None
    loop, number, added, factors = place
    for one, other in (factors, factors[::-1]):
        row, matrix = _repeated_row(one, axis), _load(other)
        if row is not None and matrix is not None:
            return _Sum(loop, number, op, axis, added, row, matrix)
    return None


_Place = tuple[ForOp, int, Operation, tuple[SSAValue, SSAValue]]


def _sums_of_trips(op: ReduceOp) -> _Place | None:
    """The loop that adds up a reduction, in which of its tiles and by what; and the factors of what is reduced."""
    loop, uses, product = op.parent_op(), list(op.results[0].uses), owner_of(op.operands[0])
    if not isinstance(loop, ForOp) or len(uses) != 1 or not isinstance(product, MulFOp):
        return None
    added = uses[0].operation
    number = _carried(loop, added) if isinstance(added, AddFOp) else None
    return None if number is None else (loop, number, added, (product.operands[0], product.operands[1]))


def _sum_at_the_end(op: ReduceOp) -> _Place | None:
    """The same for the reduction of what a loop adds up from zero."""
    loop = owner_of(op.operands[0])
    if not isinstance(loop, ForOp):
        return None
    number = loop.results.index(op.operands[0])
    last = loop.body.block.last_op
    assert last is not None
    added = owner_of(last.operands[number])
    if not isinstance(added, FmaOp) or _carried(loop, added) != number or added.operands[2] is not loop.carried[number]:
        return None
    if not isinstance(first := loop.iter_args[number].owner, ConstantOp) or first.splat_value != 0:
        return None
    return loop, number, added, (added.operands[0], added.operands[1])


def _carried(loop: ForOp, added: Operation) -> int | None:
    """The number of the tile that an operation of a loop adds to, if nothing else reads it."""
    ends = list(added.results[0].uses)
    if added.parent is not loop.body.block or len(ends) != 1 or ends[0].operation is not loop.body.block.last_op:
        return None
    argument = loop.carried[ends[0].index]
    return ends[0].index if argument in added.operands and argument.has_one_use() else None


def _repeated_row(value: SSAValue, axis: int) -> LoadOp | None:
    """The load of the elements along the reduced dim that a tile repeats along the other one."""
    repeat = owner_of(value)
    widened = owner_of(repeat.operands[0]) if isinstance(repeat, BroadcastOp) else None
    if not isinstance(widened, ExpandDimsOp) or int(widened.attr_values()["axis"]) != 1 - axis:
        return None
    return _load(widened.operands[0])


def _load(value: SSAValue) -> LoadOp | None:
    """The load of a tile, under a conversion to f32."""
    op = owner_of(value)
    op = owner_of(op.operands[0]) if isinstance(op, ExtFOp) else op
    return op if isinstance(op, LoadOp) else None


def _in_memory(found: _Sum) -> Answer[_Sum]:
    """Whether a product would read its operands where they lie."""
    if element_type(found.row.result.type) != element_type(found.matrix.result.type):
        return No("the row and the matrix have different types")
    analysis = AffineAnalysis(lambda value: False)
    answer = memory_operand(found.matrix.result, (), analysis)
    if isinstance(answer, No):
        return answer
    answer = memory_operand(_as_matrix(found.row), (), analysis)
    return answer if isinstance(answer, No) else Yes(found, "multiplied as a matrix of one row")


def _as_matrix(load: LoadOp) -> SSAValue:
    """A load of one dim as that of a matrix of one row, beside it."""

    operands = [_widened(value, load) for value in load.operands]
    kind = tile_type((1, *shape_of(load.result.type)), element_type(load.result.type))
    return value_before(LoadOp.create(operands=operands, result_types=[kind], properties=dict(load.properties)), load)


def _widened(value: SSAValue, anchor: Operation) -> SSAValue:
    """A tile of one dim as a matrix of one row."""
    kind = tile_type((1, *shape_of(value.type)), element_type(value.type))
    op = value.owner
    if isinstance(op, ConstantOp) and op.splat_value is not None:
        return value_before(ConstantOp.of(op.splat_value, kind), anchor)
    properties: dict[str, Attribute] = {"axis": I32.encode(0)}  # type: ignore[dict-item]
    return value_before(ExpandDimsOp.create(operands=[value], result_types=[kind], properties=properties), anchor)


def _multiply(found: _Sum) -> None:
    """A loop that carries a matrix of one row, to which a product adds."""
    loop, number, body, flat = found.loop, found.number, found.loop.body.block, found.reduction.results[0].type
    in_loop = found.in_loop
    if in_loop:
        start = _widened(loop.iter_args[number], loop)
    else:
        start = value_before(ConstantOp.of(0.0, tile_type((1, *shape_of(flat)), f32)), loop)
    loop.operands[number + 3] = start
    old = body.args[number + 1]
    new = body.insert_arg(start.type, old.index)
    matrix = found.matrix.result
    right = transposed(matrix, found.added) if found.axis == 1 else matrix
    operands = [_as_matrix(found.row), right, new]
    dot = DotOp.create(operands=operands, result_types=[start.type])  # exact, as sums are
    insert_before(dot, found.added)
    replace(found.added, [dot.d])
    body.erase_arg(old)
    results: list[SSAValue] = list(loop_carrying(loop, loop.iter_args).results)
    results[number] = value_before(ReshapeOp.create(operands=[results[number]], result_types=[flat]), loop)
    if not in_loop:
        replace(found.reduction, [results[number]])
    replace(loop, results)
