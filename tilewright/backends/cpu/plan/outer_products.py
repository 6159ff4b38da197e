"""Outer products that a loop adds up are products of matrices, of many iterations at a time.

    for %k = 0 to %n: iter_args(%s[m, n])               for %b = 0 to %n by 64: iter_args(%s[m, n])
      %x[m, 1] = tt.load %a + %i * %sm + %k       ->      %x[m, 64] = tt.load .., mask %b + range < %n
      %y[1, n] = tt.load %b + %k * %sk + %j               %y[64, n] = tt.load .., mask %b + range < %n
      yield fma (broadcast %x), (broadcast %y), %s        yield tt.dot %x, %y, %s

Both operands are loads whose addresses grow evenly, so a block of iterations is a matrix in memory; where there are no
more iterations both are zero. `strip_mining.py` adds up what else a loop adds up, and leaves the last iterations as
they were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.matrices import MemoryOperand, memory_operand
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.subjects import SUM_AS_DOT
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.attrs import I32
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, pointee_bytes, shape_of, tile_type
from tilewright.ir.values import defining_op, is_made_inside, is_tile
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.casts import ExtFOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, AddIOp, DivSIOp, FmaOp, MaxSIOp, MulFOp, SubIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.placed_loads import load_at
from tilewright.passes.rewriting import insert_before, value_before
from tilewright.passes.rewriting import replace as put_in_place
from tilewright.passes.trip_count import COUNTS, Preheader


@dataclass(slots=True)
class _Factor:
    """A column of the left matrix, or a row of the right one, as it is in the first iteration.

    Args:
        load: where it lies; along K it grows by what the address gains in an iteration.
        gain: that.
        dim: of K.
    """

    load: MemoryOperand
    gain: Poly
    dim: int


def multiply_outer_products(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether anything changed."""
    changed = False
    for loop in [op for op in walk(function) if isinstance(op, ForOp)]:
        found = _sum(loop)
        if found is not None:
            factors = decisions.note(SUM_AS_DOT, found[1], _factors(loop, found[2]))
            if factors is not None:
                _multiply(loop, found[0], factors)
                changed = True
    if changed:
        hoist_loop_invariants(function)  # bounds and strides, which `load_at` makes in the loop
        eliminate_dead_code(function)
    return changed


def _sum(loop: ForOp) -> tuple[int, Operation, tuple[SSAValue, SSAValue]] | None:
    """The one tile that a loop carries, what adds to it, and the column and the row whose product that is."""
    last = loop.body.block.last_op
    assert last is not None
    numbers = [n for n, argument in enumerate(loop.carried) if is_tile(argument)]
    if len(numbers) != 1 or any(
        result.first_use is not None for n, result in enumerate(loop.results) if n not in numbers
    ):
        return None
    (number,), argument = numbers, loop.carried[numbers[0]]
    added = defining_op(last.operands[number])
    shape, one_type = shape_of(argument.type), element_type(argument.type) == f32
    if added is None or added.parent is not loop.body.block or len(shape) != 2 or not one_type:
        return None
    if isinstance(added, FmaOp) and added.operands[2] is argument:
        factors = added.operands[0], added.operands[1]
    elif isinstance(added, AddFOp) and argument in added.operands:
        product = defining_op(added.operands[1] if added.operands[0] is argument else added.operands[0])
        if not isinstance(product, MulFOp):
            return None
        factors = product.operands[0], product.operands[1]
    else:
        return None
    if min(shape) < tuning.SUMMED_SIZE or not argument.has_one_use() or not added.results[0].has_one_use():
        return None
    x, y = (_repeated(value) for value in factors)
    if x is None or y is None or {x[1], y[1]} != {0, 1}:
        return None
    return number, added, (x[0], y[0]) if x[1] == 1 else (y[0], x[0])


def _repeated(value: SSAValue) -> tuple[SSAValue, int] | None:
    """What a matrix repeats along one dim, and that dim."""
    repeat = defining_op(value)
    if not isinstance(repeat, BroadcastOp):
        return None
    sizes = shape_of(repeat.operands[0].type)
    return (repeat.operands[0], sizes.index(1)) if sizes.count(1) == 1 and len(sizes) == 2 else None


def _factors(loop: ForOp, vectors: tuple[SSAValue, SSAValue]) -> Answer[tuple[_Factor, _Factor]]:
    """A column and a row as parts of matrices in memory."""
    body = loop.body.block
    if loop.unsignedCmp is not None or loop.lb.type not in COUNTS or (constant_of(loop.step) or 0) < 1:
        return No("the step is not known, or the counter has no sign")
    other = next((op for op in body.ops if op is not body.last_op and not is_removable(op)), None)
    if other is not None:
        return No("the loop does something else, too", other)
    found = []
    for vector, dim in zip(vectors, (1, 0), strict=True):
        answer = _factor(loop, vector, dim)
        if isinstance(answer, No):
            return answer
        found.append(answer.plan)
    if found[0].load.elem != found[1].load.elem:
        return No("the columns and the rows have different types")
    return Yes(
        (found[0], found[1]), f"outer products of {tuning.OUTER_ITERATIONS} iterations are multiplied as matrices"
    )


def _factor(loop: ForOp, vector: SSAValue, dim: int) -> Answer[_Factor]:
    source = defining_op(vector)
    source = defining_op(source.operands[0]) if isinstance(source, ExtFOp) else source
    widened = isinstance(source, ExpandDimsOp)
    source = defining_op(source.operands[0]) if isinstance(source, ExpandDimsOp) else source
    source = defining_op(source.operands[0]) if widened and isinstance(source, ExtFOp) else source
    if not isinstance(source, LoadOp) or source.parent is not loop.body.block:
        return No("a factor is not loaded in each iteration", source)
    matrix = _as_matrix(source, dim) if len(shape_of(source.result.type)) == 1 else source.result
    answer = memory_operand(matrix, (), AffineAnalysis(lambda value: False))
    if isinstance(answer, No):
        return answer
    load, evolution = answer.plan, ScalarEvolution(loop)
    if load.conditions:
        return No("a scalar condition is a part of its mask", source)
    base, offset = load.base, load.offset
    while isinstance(owner := defining_op(base), AddPtrOp) and not is_tile(base):
        base, offset = owner.operands[0], offset + Poly.atom(owner.operands[1]) * Poly.of(pointee_bytes(base.type))
    gain, first = evolution.gain(offset), evolution.expanded(offset)
    steady = (load.strides[1 - dim], *load.bounds[1 - dim])
    kept = [evolution.expanded(poly) for poly in steady]
    known = [poly for poly in kept if poly is not None]
    if gain is None or first is None or len(known) < len(kept) or load.bounds[dim] or is_made_inside(base, loop):
        return No("its addresses are not known to grow evenly", source)
    if any(evolution.gain(poly) != Poly({}) for poly in steady):
        return No("its stride or its bound changes from iteration to iteration", source)
    size = pointee_bytes(base.type)
    if any(number % size for poly in (first, gain, known[0]) for number in poly.terms.values()):
        return No("its addresses are no multiples of its elements", source)
    strides, bounds = [known[0], known[0]], [evolution.at_first(poly) for poly in known[1:]]
    strides[1 - dim], strides[dim] = evolution.at_first(known[0]), gain
    of_dims: list[list[Poly]] = [[], []]
    of_dims[1 - dim] = bounds
    placed = replace(load, base=base, offset=evolution.at_first(first), strides=strides, bounds=of_dims)
    return Yes(_Factor(placed, gain, dim))


def _as_matrix(load: LoadOp, dim: int) -> SSAValue:
    """A load of one dim as that of a matrix of one row or column, along `dim`, beside it."""

    def widened(value: SSAValue) -> SSAValue:
        shape = shape_of(value.type)
        kind, number = tile_type((*shape[:dim], 1, *shape[dim:]), element_type(value.type)), constant_of(value)
        if number is not None:
            return value_before(ConstantOp.of(number, kind), load)
        properties: dict[str, Attribute] = {"axis": I32.encode(dim)}  # type: ignore[dict-item]
        return value_before(ExpandDimsOp.create(operands=[value], result_types=[kind], properties=properties), load)

    operands = [widened(value) for value in load.operands]
    kind = tile_type(shape_of(operands[0].type), element_type(load.result.type))
    return value_before(LoadOp.create(operands=operands, result_types=[kind], properties=dict(load.properties)), load)


def _multiply(loop: ForOp, number: int, factors: tuple[_Factor, _Factor]) -> None:
    """A loop over blocks of iterations in the place of a loop."""
    preheader, first = Preheader(loop, loop.lb.type), loop.iter_args[number]
    kind, counter, count = first.type, loop.lb.type, tuning.OUTER_ITERATIONS
    room = preheader.apply(MaxSIOp, preheader.apply(SubIOp, loop.ub, loop.lb), 0)
    iterations = preheader.apply(
        DivSIOp, preheader.apply(AddIOp, room, preheader.apply(SubIOp, loop.step, 1)), loop.step
    )
    block = Block(arg_types=[counter, kind])
    done, total = block.args
    end = YieldOp.create(operands=[total])
    block.add_op(end)
    made = ForOp.create(
        operands=[preheader.known(0), iterations, preheader.known(count), first],
        result_types=[kind],
        regions=[Region(block)],
    )
    insert_before(made, loop)
    end.location, left = loop.location, Poly.atom(iterations) + -Poly.atom(done)
    operands: list[SSAValue] = []
    for factor, rows in zip(factors, (shape_of(kind)[0], shape_of(kind)[1]), strict=True):
        shape, bounds = [rows, rows], [list(of_dim) for of_dim in factor.load.bounds]
        shape[factor.dim], bounds[factor.dim] = count, [left]
        offset = factor.load.offset + Poly.atom(done) * factor.gain
        loaded = load_at(factor.load, offset, bounds, end, tuple(shape))
        if element_type(loaded.type) != f32:
            loaded = value_before(ExtFOp.create(operands=[loaded], result_types=[tile_type(tuple(shape), f32)]), end)
        operands.append(loaded)
    dot = DotOp.create(operands=[*operands, total], result_types=[kind])  # exact, as sums are
    insert_before(dot, end)
    end.operands = [dot.d]
    results: list[SSAValue] = list(loop.iter_args)
    results[number] = made.results[0]
    put_in_place(loop, results)
