"""Strip-mining of sums: what a loop adds up iteration by iteration is added up in blocks of iterations.

    for %k = 0 .. %n: iter_args(%s[n])               for %b = 0 .. %middle by 64: iter_args(%s[n])
      %v = tt.load %x + %k * %stride + %j[n]           %v = tt.load %x + (%b + range)[64, n] * %stride + %j[n]
      %s' = addf %s, %v                         ->     %s' = addf %s, (tt.reduce (axis = 0, addf) %v)
      yield %s'                                        yield %s'
    }                                                }
                                                     for %k = %middle .. %n: ..  (as it was)

The tile that the loop carries is read and written once in a block, not in every iteration; the block is summed in
registers, along whatever lies side by side in memory. Where iterations take pieces of rows that go on from one to the
next, upwards or downwards, as the loop nest tells (`row_strips.py`), the block is as long as rows are, and the pieces
are one dim: lanes are folded once. A row times a matrix becomes a sum of products, which `contractions.py` knows, and a
column times a row becomes a product of matrices; for that, and in rows, iterations that there are not are masked. Sums
are added in another order, as reductions are.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.collapse_reductions import reduced_over
from tilewright.backends.cpu.plan.iteration_tiles import IterationTiles, has_tile
from tilewright.backends.cpu.plan.reduction_variables import Gain, Sum, carried_sums
from tilewright.backends.cpu.plan.reductions_into_loops import added_by, carried_by, reduce_each
from tilewright.backends.cpu.plan.row_strips import Strips, whole_rows
from tilewright.backends.cpu.plan.subjects import STRIP_MINED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import bit_width, element_type, i1, shape_of, tile_type, with_element
from tilewright.ir.values import defining_op, is_made_inside, property_int
from tilewright.ir.walk import walk
from tilewright.loops.raising import Raising
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.casts import ExtFOp, ExtSIOp, TruncIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.elementwise import (
    AddIOp,
    AndIOp,
    CmpIOp,
    DivSIOp,
    DivUIOp,
    MinSIOp,
    MulFOp,
    MulIOp,
    RemSIOp,
    RemUIOp,
    SelectOp,
    SubIOp,
)
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.shape import ReshapeOp, TransOp
from tilewright.ops.spec import spec_of
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import erase, insert_before, replace, value_before
from tilewright.passes.sums_to_dots import repeated

_CARRIES_ZERO = (BroadcastOp, ExpandDimsOp, ExtFOp, ReshapeOp, SplatOp, TransOp)
_DIVISIONS = (DivSIOp, DivUIOp, RemSIOp, RemUIOp)  # of iterations that there are not, by what may be zero there


def strip_mine_sums(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether anything changed."""
    changed = False
    _reduce_pieces(function)
    for loop in [op for op in walk(function) if isinstance(op, ForOp)]:
        carried = carried_sums(loop)
        if carried is None or not any(isinstance(op, LoadOp) for op in loop.body.block.ops):
            continue
        answer = _rows(Strips(loop, carried), function)
        if isinstance(answer, No):
            if any(map(_is_reduced, loop.results)):
                continue
            answer = _blocks(Strips(loop, carried))
        strips = decisions.note(STRIP_MINED, loop, answer)
        if strips is not None:
            _Blocks(strips).write()
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _is_reduced(result: SSAValue) -> bool:
    """Whether a loop's result is reduced after it: then the loop adds up tiles already (`reductions_into_loops.py`)."""
    return any(isinstance(use.operation, ReduceOp) for use in result.uses)


def _reduce_pieces(function: FuncOp) -> None:
    """Tiles that are reduced after their loop are reduced in each iteration, if several iterations are taken as one."""
    for op in [op for op in walk(function) if isinstance(op, ReduceOp)]:
        found = carried_by(op)
        carried = carried_sums(found.loop) if found is not None else None
        if found is None or carried is None or found.mask is not None:
            continue
        own = carried[found.number]
        if isinstance(own, Sum):
            own.terms = [added_by(found)]
            strips = Strips(found.loop, carried, {found.number: (own.terms[0], property_int(op, "axis"))})
            if isinstance(_rows(strips, function), Yes):
                reduce_each(found)
            elif own.terms[0].first_use is None and (product := defining_op(own.terms[0])) is not None:
                erase(product)


# --- what is known of a loop ---------------------------------------------------------------------------------


def _rows(strips: Strips, function: FuncOp) -> Answer[Strips]:
    """Whether what iterations take goes on from one to the next."""
    summed = {defining_op(c.terms[0]) for c in strips.carried if isinstance(c, Sum)}
    no = _lost(strips, {op for op in summed if isinstance(op, ReduceOp)})
    return no or whole_rows(strips, Raising(function))


def _lost(strips: Strips, but: set[object]) -> No | None:
    """Why it is not known what a loop does in several iterations; None if it is."""
    loop = strips.loop
    if not is_unit(loop):
        return No("it does not count its iterations")
    for op in loop.body.block.ops:
        if op is loop.body.block.last_op or op in but:
            continue
        divides = (
            isinstance(op, _DIVISIONS) and not constant_of(op.operands[1]) and is_made_inside(op.operands[1], loop)
        )
        if not has_tile(op) or divides:
            return No(f"each iteration has {describe_op(op)}", op)
    return None


def _blocks(strips: Strips) -> Answer[Strips]:
    """Whether a loop can run in blocks of iterations, and should."""
    loop, count = strips.loop, constant_of(strips.loop.ub)
    no = _lost(strips, set())
    if no is not None:
        return no
    dots = [c for c in strips.carried if isinstance(c, Sum) and _is_outer_product(c)]
    shapes = [shape_of(r.type) for op in loop.body.block.ops for r in op.results]
    rank, size = max(map(len, shapes)), max(map(prod, shapes))
    if dots:
        strips.iterations, strips.masked = tuning.OUTER_ITERATIONS, True
    elif size > tuning.STRIP_ELEMENTS:
        return No("its tiles are so large that carrying them hardly matters")
    else:
        rows = rank < 2 and size <= tuning.STRIP_ROW
        strips.iterations = (tuning.STRIP_ITERATIONS if rows else tuning.STRIP_LEAST) * (1 if rank else 4)
    if isinstance(count, int) and count < strips.iterations:
        if count < tuning.STRIP_LEAST:
            return No("it has few iterations")
        strips.iterations = 1 << (count.bit_length() - 1)
    strips.pieces = {n: (c.terms[0], -1) for n, c in enumerate(strips.carried) if isinstance(c, Sum)}
    return Yes(strips, f"{strips.iterations} iterations at a time")


def _is_outer_product(added: Sum) -> bool:
    """Whether what is added are the products of a column and a row, large enough for a product of matrices."""
    product = defining_op(added.terms[0])
    factors = product.operands if len(added.terms) == 1 and isinstance(product, MulFOp) else added.terms
    parts = [repeated(factor) for factor in factors]
    dims = {part[1] for part in parts if part is not None}
    shape = shape_of(factors[0].type)
    return len(parts) == 2 and len(shape) == 2 and dims == {0, 1} and min(shape) >= tuning.SUMMED_SIZE


# --- writing --------------------------------------------------------------------------------------------------


class _Blocks(IterationTiles):
    """Writes the loop that takes several iterations as one, in place of the one that takes them one by one."""

    def __init__(self, strips: Strips) -> None:
        super().__init__(strips.loop, strips.iterations)
        self.strips = strips
        count = constant_of(strips.loop.ub)
        self.remainder = not strips.masked
        self.all_there = self.remainder or (isinstance(count, int) and count % strips.iterations == 0)

    def write(self) -> None:
        """Replace the loop; or put it in front of it, which then runs the iterations that are left over."""
        loop, counter = self.loop, self.loop.induction_var.type
        body = Block(arg_types=[arg.type for arg in loop.body.block.args])
        end = YieldOp.create(operands=list(body.args[1:]))
        body.add_op(end)
        by = value_before(ConstantOp.of(self.iterations, counter), loop)
        end_of_blocks = self.binary(MulIOp, self.binary(DivSIOp, loop.ub, by), by) if self.remainder else loop.ub
        made = ForOp.create(
            operands=[loop.lb, end_of_blocks, by, *loop.iter_args],
            result_types=loop.result_types,
            properties=dict(loop.properties),
            regions=[Region(body)],
        )
        insert_before(made, loop)
        end.location, self.last = loop.location, end
        self.room = self.binary(SubIOp, loop.ub, body.args[0])
        self.left = self.binary(MinSIOp, self.room, self.number(self.iterations))
        self.known[loop.induction_var] = self.grown(body.args[0], self._places(counter), self.number(1))
        for old, new, carried in zip(loop.carried, body.args[1:], self.strips.carried, strict=True):
            if isinstance(carried, Gain):
                self.known[old] = self.grown(new, self._places(old.type), self.outside(carried.value), carried.kind)
        self.moving = set(self.known)
        news = zip(body.args[1:], self.strips.carried, strict=True)
        end.operands = [self._next(number, new, carried) for number, (new, carried) in enumerate(news)]
        if self.remainder:
            loop.operands = [end_of_blocks, *loop.operands[1:3], *made.results]
        else:
            replace(loop, list(made.results))

    def number(self, value: int) -> SSAValue:
        return value_before(ConstantOp.of(value, self.loop.induction_var.type), self.last)

    def _places(self, kind: Attribute) -> SSAValue:
        """Which iteration each is; the last one first, if the pieces come from the last one to the first."""
        place = self.range(kind)
        if not self.strips.down:
            return place
        last = self._as(self.binary(SubIOp, self.left, self.number(1)), kind)
        return self.binary(SubIOp, self.repeated(last, place.type), place)

    def _as(self, number: SSAValue, kind: Attribute) -> SSAValue:
        """A number of iterations in another type."""
        if number.type == kind:
            return number
        return self.make(ExtSIOp if bit_width(kind) > bit_width(number.type) else TruncIOp, [number], kind)

    def _next(self, number: int, value: SSAValue, carried: Sum | Gain) -> SSAValue:
        """A carried value after these iterations."""
        if isinstance(carried, Gain):
            gained = self.binary(MulIOp, self.outside(carried.value), self._as(self.left, value.type))
            return self.binary(carried.kind, value, gained)
        source, axis = self.strips.pieces[number]
        terms = [self.block(source), *(self.block(term) for term in carried.terms[1:])]
        added = terms[0] if len(terms) == 1 else self.binary(MulFOp, *terms)
        added = self._without_more(added, (source, *carried.terms[1:]), axis, carried)
        if axis < 0:
            return self.binary(carried.kind, value, self.added_up(carried.kind, added, value.type))
        like = defining_op(carried.terms[0])
        assert isinstance(like, ReduceOp)
        return self.binary(carried.kind, value, reduced_over(like, added, (0, axis + 1), self.last))

    def _without_more(self, tile: SSAValue, sources: tuple[SSAValue, ...], axis: int, carried: Sum) -> SSAValue:
        """A tile with nothing, the neutral element, for iterations that there are not."""
        monoid = spec_of(carried.kind).monoid
        assert monoid is not None
        neutral = monoid.identity(bit_width(element_type(tile.type)))
        if self.all_there or all(self._is_neutral(source, neutral) for source in sources):
            return tile
        nothing = value_before(ConstantOp.of(neutral, tile.type), self.last)
        return self.make(SelectOp, [self._inside(shape_of(sources[0].type), axis), tile, nothing], tile.type)

    def _is_neutral(self, value: SSAValue, neutral: float) -> bool:
        """Whether a value is the neutral element in iterations that there are not, as its loads are masked."""
        op = defining_op(value)
        if isinstance(op, LoadOp):
            return op.result in self.moving and (neutral == 0 if op.other is None else constant_of(op.other) == neutral)
        if isinstance(op, MulFOp) and neutral == 0:
            return all(self._is_neutral(operand, neutral) for operand in op.operands)
        return isinstance(op, _CARRIES_ZERO) and neutral == 0 and self._is_neutral(op.operands[0], neutral)

    def made(self, value: SSAValue) -> SSAValue:
        """A value for each iteration; loads leave out iterations that there are not."""
        op = defining_op(value)
        if op is not None and is_made_inside(value, self.loop):
            for operand in op.operands:
                self.block(operand)
            if not self.moving.isdisjoint(op.operands):
                self.moving.add(value)
        if not isinstance(op, LoadOp) or value not in self.moving or self.all_there:
            return super().made(value)
        shape = shape_of(value.type)
        mask = self._inside(shape, self.strips.rows.get(op, -1))
        if op.mask is not None:
            mask = self.binary(AndIOp, self.spread(self.block(op.mask), shape), mask)
        kind = tile_type((self.iterations, *shape), element_type(value.type))
        other = value_before(ConstantOp.of(0, kind), self.last)
        if op.other is not None:
            other = self.spread(self.block(op.other), shape)
        return self.make(
            LoadOp, [self.spread(self.block(op.ptr), shape), mask, other], kind, properties=dict(op.properties)
        )

    def _inside(self, shape: tuple[int, ...], axis: int) -> SSAValue:
        """Which elements belong to iterations that there are, as places along the row of all pieces."""
        kind, whole_shape, end = self.left.type, (self.iterations, *shape), self.room
        if axis < 0:
            place = self._along(self.range(kind), 0, whole_shape)
        else:
            size = self.number(self.strips.extent)
            place, end = (
                self._along(self.times(self.range(kind), size), 0, whole_shape),
                self.binary(MulIOp, self.left, size),
            )
            inner = self._along(self.numbers(self.strips.extent, kind), axis + 1, whole_shape)
            place = self.binary(AddIOp, place, inner)
        predicate = {"predicate": CmpIOp.PREDICATES["slt"]}
        compared = [place, self.make(SplatOp, [end], place.type)]
        return self.make(CmpIOp, compared, with_element(place.type, i1), properties=predicate)

    def _along(self, row: SSAValue, dim: int, shape: tuple[int, ...]) -> SSAValue:
        """A row of numbers along a dim of a tile."""
        for axis in range(len(shape)):
            if axis != dim:
                row = self.expanded(row, axis)
        kind = tile_type(shape, element_type(row.type))
        return row if row.type == kind else self.make(BroadcastOp, [row], kind)
