"""Collapsed strips of rows: loops that take a piece of each row in every iteration take many as one.

    for %t = 0 .. %n step 128: iter_args(%s[16])      for %b = 0 .. %n step 1024: iter_args(%s[16])
      %v = tt.load (%x + %t + ..)[16, 128]              %v = tt.load (%x + %b + ..)[16, 1024]  (those that there are)
      %s' = addf %s, (tt.reduce (axis = 1) %v)   ->     %s' = addf %s, (tt.reduce (axis = 1) %v)

Each reduction ends in folding the lanes of every row, and jumps from row to row in memory; both are paid less often.
That is so where the pieces of a row lie side by side in memory, from iteration to iteration upwards or downwards, also
pieces of one element, or of a tile that the loop adds up and that is reduced after it. Sums are added in another order,
as reductions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Region, SSAValue

from tilewright.analysis.affine import ZERO, AffineAnalysis, Form, Poly, expanded
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Coord, Index, identity, whole
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.collapse_reductions import cone, goes_as_one, reduced_over
from tilewright.backends.cpu.plan.iteration_tiles import IterationTiles, has_tile
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.reduction_variables import Gain, Sum, carried_sums
from tilewright.backends.cpu.plan.reductions_into_loops import carried_by, reduce_each
from tilewright.backends.cpu.plan.subjects import STRIP_MINED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import bit_width, element_type, i1, pointee_bytes, shape_of, tile_type, with_element
from tilewright.ir.values import defining_op, is_made_inside, property_int
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import BroadcastOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.elementwise import (
    AddIOp,
    AndIOp,
    CmpIOp,
    DivSIOp,
    DivUIOp,
    MinSIOp,
    MulIOp,
    RemSIOp,
    RemUIOp,
    SelectOp,
    SubIOp,
)
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.spec import spec_of
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before, replace, value_before

_DIVISIONS = (DivSIOp, DivUIOp, RemSIOp, RemUIOp)  # of iterations that there are not, by what may be zero there


@dataclass(slots=True)
class _Rows:
    """A loop over pieces of rows.

    Args:
        loop: the loop.
        carried: what becomes of each carried value.
        pieces: of each sum by its number, what is reduced, and along which dim; -1 for pieces of one element.
        extent: of a piece.
        down: whether the pieces come from the last one to the first.
        loads: dim of each load along which the pieces lie; those that every iteration repeats are not among them.
    """

    loop: ForOp
    carried: list[Sum | Gain]
    pieces: dict[int, tuple[SSAValue, int]] = field(default_factory=dict)
    extent: int = 0
    down: bool = False
    loads: dict[LoadOp, int] = field(default_factory=dict)

    @property
    def iterations(self) -> int:
        """That are taken as one."""
        return tuning.COLLAPSED_ROW // self.extent


def collapse_row_strips(function: FuncOp, decisions: Decisions) -> set[ForOp]:
    """Rewrite all such loops of a function; gives the new ones."""
    written: set[ForOp] = set()
    _reduce_pieces(function)
    for loop in [op for op in walk(function) if isinstance(op, ForOp)]:
        carried = carried_sums(loop)
        answer = None if carried is None else _in_rows(_Rows(loop, carried), function)
        if isinstance(answer, Yes):
            decisions.note(STRIP_MINED, loop, answer)
            written.add(_Writer(answer.plan).write())
    if written:
        eliminate_dead_code(function)
    return written


def _reduce_pieces(function: FuncOp) -> None:
    """Tiles that are reduced after their loop are reduced in each iteration, if several iterations are taken as one."""
    for op in [op for op in walk(function) if isinstance(op, ReduceOp)]:
        found = carried_by(op)
        carried = carried_sums(found.loop) if found is not None else None
        if found is None or carried is None or found.mask is not None:
            continue
        own = carried[found.number]
        if isinstance(own, Sum) and len(own.terms) == 1:
            rows = _Rows(found.loop, carried, {found.number: (own.terms[0], property_int(op, "axis"))})
            if isinstance(_in_rows(rows, function), Yes):
                reduce_each(found)


# --- what is known of a loop ---------------------------------------------------------------------------------


def _in_rows(rows: _Rows, function: FuncOp) -> Answer[_Rows]:
    """Whether the pieces that a loop takes lie side by side, and several should be taken as one."""
    loop = rows.loop
    step, counter = constant_of(loop.step), loop.induction_var.type
    if not isinstance(step, int) or step < 1 or loop.unsignedCmp is not None:
        return No("the step is not known, or the counter has no sign")
    if any(isinstance(c, Gain) and a.type != counter for a, c in zip(loop.carried, rows.carried, strict=True)):
        return No("its counters are of several types")
    answer = _pieces(rows)
    if isinstance(answer, No):
        return answer
    reductions = {defining_op(c.terms[0]) for c in rows.carried if isinstance(c, Sum)}
    for op in loop.body.block.ops:
        if op is loop.body.block.last_op or op in reductions:
            continue
        if not has_tile(op) or isinstance(op, _DIVISIONS):
            return No(f"each iteration has {describe_op(op)}", op)
    return _side_by_side(rows, AffineAnalysis(lambda value: False, ElementFacts(function)))


def _pieces(rows: _Rows) -> Answer[None]:
    """Finds what the loop reduces in each iteration."""
    extents = set[int]()
    for number, sum_ in enumerate(rows.carried):
        if not isinstance(sum_, Sum):
            continue
        if len(sum_.terms) > 1:
            return No("it adds up dots")
        if number not in rows.pieces:
            rows.pieces[number] = _piece(sum_)
        value, axis = rows.pieces[number]
        extents.add(shape_of(value.type)[axis] if axis >= 0 else 1)
    rows.extent = extents.pop()
    if extents:
        return No("its pieces have several extents")
    if rows.extent > tuning.LONGEST_STRIP:
        return No("its pieces are long")
    shapes = [(shape_of(value.type), axis) for value, axis in rows.pieces.values()]
    if not all(goes_as_one((rows.iterations, *shape), (0, axis + 1)) for shape, axis in shapes if axis >= 0):
        return No("places in its pieces are no bits of places in the row")
    return Yes(None)


def _piece(sum_: Sum) -> tuple[SSAValue, int]:
    """What an iteration reduces to add it to a sum; or what it adds, a piece of one element."""
    op = defining_op(sum_.terms[0])
    if isinstance(op, ReduceOp) and op.results[0].has_one_use():
        kind = single_operation(op.regions[0].block)
        if type(kind) is sum_.kind:
            return op.operands[0], property_int(op, "axis")
    return sum_.terms[0], -1


def _side_by_side(rows: _Rows, analysis: AffineAnalysis) -> Answer[_Rows]:
    """Whether all that the pieces are loaded from, and masked by, goes on from one iteration to the next."""
    gains, ways = _gains(rows), set[int]()
    for value, axis in rows.pieces.values():
        for part, at in dict.fromkeys(cone(value, identity(shape_of(value.type)))):
            way = _way(part, at, axis, rows, gains, analysis)
            if way is None:
                return No("its pieces do not lie side by side", defining_op(part))
            ways.add(way)
            if way and isinstance(defining_op(part), LoadOp) and not _is_of_one_row(at, shape_of(value.type), axis):
                return No("several rows share what it loads", defining_op(part))
    ways.discard(0)
    if len(ways) != 1 or not rows.loads:
        return No("its pieces lie in no order")
    rows.down = ways == {-1}
    return Yes(rows, f"{rows.iterations * rows.extent} elements of a row at a time")


def _is_of_one_row(at: Index, shape: Sequence[int], axis: int) -> bool:
    """Whether an index names all dims of a tile but one."""
    named = {part.src for coord in at for part in coord}
    return all(extent == 1 or dim == axis or dim in named for dim, extent in enumerate(shape))


def _way(
    value: SSAValue, at: Index, axis: int, rows: _Rows, gains: dict[SSAValue, Poly], analysis: AffineAnalysis
) -> int | None:
    """Whether a value goes on upwards, 1, or downwards, -1, or is none that must, 0; None if it does not go on."""
    op, along = defining_op(value), whole(axis, rows.extent) if axis >= 0 else None
    if isinstance(op, LoadOp):
        return _load_way(op, at, along, rows, gains, analysis)
    if along is None:
        return 0  # pieces of one element may be compared with anything
    if isinstance(op, CmpIOp):
        first, second = (analysis.integer(*part) for part in operand_indices(value, at))
        data = first.residual or second.residual
        return 0 if data else _form_way(first.plus(second, Poly.of(-1)), along, rows, gains)
    lost = op is None or not is_lazy(op)
    return None if lost and along in at else 0


def _load_way(
    op: LoadOp, at: Index, along: Coord | None, rows: _Rows, gains: dict[SSAValue, Poly], analysis: AffineAnalysis
) -> int | None:
    """The same of a load, whose pieces must lie in memory without a gap."""
    form = analysis.pointer(*operand_indices(op.results[0], at)[0])
    if form.base is None or form.base in rows.loop.carried or is_made_inside(form.base, rows.loop):
        return None
    if any(is_made_inside(v, rows.loop) or along in index for v, index, _ in form.offset.residual):
        return None
    way = _form_way(form.offset, along, rows, gains)
    if not way:
        return way
    size, dim = Poly.of(pointee_bytes(op.ptr.type)), -1
    if along is not None:
        if form.offset.coords.get(along) != size or along not in at:
            return None
        dim = at.index(along)
    elif _gain(form.offset.constant, gains, rows.loop) not in (size, -size) or size in form.offset.coords.values():
        return None  # lanes go along another dim
    return way if rows.loads.setdefault(op, dim) == dim else None


def _form_way(form: Form, along: Coord | None, rows: _Rows, gains: dict[SSAValue, Poly]) -> int | None:
    """How a form that has a stride along the pieces goes on from iteration to iteration."""
    own = {part.src for part in along or ()}
    for coord, by in form.coords.items():
        if _gain(by, gains, rows.loop) != ZERO or (coord != along and own & {part.src for part in coord}):
            return None
    gain = _gain(form.constant, gains, rows.loop)
    if gain is None or not gain.terms:
        return 0 if gain is not None and along not in form.coords else None
    if along is None:
        return 1 if gain.never_negative else -1
    piece = form.coords.get(along, ZERO) * Poly.of(rows.extent)
    if gain == piece:
        return 1
    return -1 if gain == -piece else None


def _gains(rows: _Rows) -> dict[SSAValue, Poly]:
    """What each counter gains in an iteration."""
    loop = rows.loop
    gains = {loop.induction_var: Poly.of(int(constant_of(loop.step) or 1))}
    for argument, carried in zip(loop.carried, rows.carried, strict=True):
        if isinstance(carried, Gain):
            by = expanded(Poly.atom(carried.value))
            gains[argument] = by if carried.kind is AddIOp else -by
    return gains


def _gain(poly: Poly, gains: dict[SSAValue, Poly], loop: ForOp) -> Poly | None:
    """What a polynomial gains in an iteration; None if that is not the same in all iterations."""
    total = ZERO
    for monomial, coefficient in expanded(poly).terms.items():
        moving = [atom for atom in monomial if atom.value in gains]
        rest = tuple(atom for atom in monomial if atom not in moving)
        if any(is_made_inside(atom.value, loop) or atom.value in loop.carried for atom in rest):
            return None
        if not moving:
            continue
        if len(moving) > 1 or moving[0].unsigned:
            return None
        total = total + Poly({rest: coefficient}) * gains[moving[0].value]
    return total


# --- writing --------------------------------------------------------------------------------------------------


class _Writer(IterationTiles):
    """Writes the loop that takes several pieces as one, in place of the one that takes them one by one."""

    def __init__(self, rows: _Rows) -> None:
        super().__init__(rows.loop, rows.iterations)
        self.rows = rows

    def write(self) -> ForOp:
        """Replace the loop by one over rows of pieces; gives it."""
        loop, counter = self.loop, self.loop.induction_var.type
        step = int(constant_of(loop.step) or 1)
        body = Block(arg_types=[arg.type for arg in loop.body.block.args])
        end = YieldOp.create(operands=list(body.args[1:]))
        body.add_op(end)
        by = value_before(ConstantOp.of(self.iterations * step, counter), loop)
        made = ForOp.create(
            operands=[loop.lb, loop.ub, by, *loop.iter_args],
            result_types=loop.result_types,
            properties=dict(loop.properties),
            regions=[Region(body)],
        )
        insert_before(made, loop)
        end.location, self.last = loop.location, end
        self.left = self._iterations_left(body.args[0], step)
        self.known[loop.induction_var] = self.grown(body.args[0], self._places(counter), loop.step)
        for old, new, carried in zip(loop.carried, body.args[1:], self.rows.carried, strict=True):
            if isinstance(carried, Gain):
                self.known[old] = self.grown(new, self._places(old.type), self.outside(carried.value), carried.kind)
        news = zip(body.args[1:], self.rows.carried, strict=True)
        end.operands = [self._next(number, new, carried) for number, (new, carried) in enumerate(news)]
        replace(loop, list(made.results))
        return made

    def _iterations_left(self, counter: SSAValue, step: int) -> SSAValue:
        """The iterations that there are, of those that are taken as one."""

        def number(value: int) -> SSAValue:
            return value_before(ConstantOp.of(value, counter.type), self.last)

        left = self.binary(AddIOp, self.binary(SubIOp, self.loop.ub, counter), number(step - 1))
        return self.binary(MinSIOp, self.binary(DivSIOp, left, number(step)), number(self.iterations))

    def _places(self, kind: object) -> SSAValue:
        """Which iteration each is; the last one first, if the pieces come from the last one to the first."""
        place = self.range(kind)  # type: ignore[arg-type]
        if not self.rows.down:
            return place
        one = value_before(ConstantOp.of(1, self.left.type), self.last)
        return self.binary(SubIOp, self.repeated(self.binary(SubIOp, self.left, one), place.type), place)

    def _next(self, number: int, value: SSAValue, carried: Sum | Gain) -> SSAValue:
        """A carried value after these iterations."""
        if isinstance(carried, Gain):
            return self.binary(carried.kind, value, self.binary(MulIOp, self.outside(carried.value), self.left))
        source, axis = self.rows.pieces[number]
        added = self._without_more(self.block(source), source, axis, carried)
        if axis < 0:
            return self.binary(carried.kind, value, self.added_up(carried.kind, added, value.type))
        like = defining_op(carried.terms[0])
        assert isinstance(like, ReduceOp)
        return self.binary(carried.kind, value, reduced_over(like, added, (0, axis + 1), self.last))

    def _without_more(self, tile: SSAValue, source: SSAValue, axis: int, carried: Sum) -> SSAValue:
        """A tile with nothing, the neutral element, for iterations that there are not."""
        monoid = spec_of(carried.kind).monoid
        assert monoid is not None
        neutral = monoid.identity(bit_width(element_type(tile.type)))
        op = defining_op(source)
        if (
            isinstance(op, LoadOp)
            and op in self.rows.loads
            and op.other is not None
            and constant_of(op.other) == neutral
        ):
            return tile
        nothing = value_before(ConstantOp.of(neutral, tile.type), self.last)
        return self.make(SelectOp, [self._inside(shape_of(source.type), axis), tile, nothing], tile.type)

    def made(self, value: SSAValue) -> SSAValue:
        """A value for each iteration; loads leave out iterations that there are not."""
        op = defining_op(value)
        if not isinstance(op, LoadOp) or op not in self.rows.loads:
            return super().made(value)
        shape = shape_of(value.type)
        pointer = self.spread(self.block(op.ptr), shape)
        mask = self._inside(shape, self.rows.loads[op])
        if op.mask is not None:
            mask = self.binary(AndIOp, self.spread(self.block(op.mask), shape), mask)
        kind = tile_type((self.iterations, *shape), element_type(value.type))
        other = value_before(ConstantOp.of(0, kind), self.last)
        if op.other is not None:
            other = self.spread(self.block(op.other), shape)
        return self.make(LoadOp, [pointer, mask, other], kind, properties=dict(op.properties))

    def _inside(self, shape: tuple[int, ...], axis: int) -> SSAValue:
        """Which elements belong to iterations that there are, as places along the row of all pieces."""
        kind, extent = self.left.type, self.rows.extent if axis >= 0 else 1
        whole_shape = (self.iterations, *shape)
        size = value_before(ConstantOp.of(extent, kind), self.last)
        place = self._along(self.times(self.range(kind), size), 0, whole_shape)
        if axis >= 0:
            place = self.binary(AddIOp, place, self._along(self.numbers(extent, kind), axis + 1, whole_shape))
        end = self.make(SplatOp, [self.binary(MulIOp, self.left, size)], place.type)
        predicate = {"predicate": CmpIOp.PREDICATES["slt"]}
        return self.make(CmpIOp, [place, end], with_element(place.type, i1), properties=predicate)

    def _along(self, row: SSAValue, dim: int, shape: tuple[int, ...]) -> SSAValue:
        """A row of numbers along a dim of a tile."""
        for axis in range(len(shape)):
            if axis != dim:
                row = self.expanded(row, axis)
        kind = tile_type(shape, element_type(row.type))
        return row if row.type == kind else self.make(BroadcastOp, [row], kind)
