"""What a loop adds up trip by trip is added up in blocks of trips.

    for %k = %lb .. %ub: iter_args(%s[n])            for %b = %lb .. %middle by 64: iter_args(%s[n])
      %v = tt.load %x + %k * %stride + %j[n]           %v = tt.load %x + (%b + range)[64, n] * %stride + %j[n]
      %s' = addf %s, %v                         ->     %s' = addf %s, (tt.reduce (axis = 0, addf) %v)
      yield %s'                                        yield %s'
    }                                                }
                                                     for %k = %middle .. %ub: ..  (as it was)

The tile that the loop carries is read and written once in a block, not in every trip; the block is summed in
registers, along whatever lies side by side in memory: also where that is the loop's own dim, and a trip takes one
element of each row. A row times a matrix becomes a sum of products, which `summed_rows.py` knows, and a column times a
row becomes a product of matrices. Sums are added in another order, as reductions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import cast_name, table_name
from tilewright.backends.cpu.plan.subjects import BLOCKED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.attrs import I32
from tilewright.ir.decisions import Decisions, spoken
from tilewright.ir.types import element_type, i32, shape_of, tile_type
from tilewright.ir.values import is_made_inside, owner_of, property_int
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import (
    AddFOp,
    AddIOp,
    DivSIOp,
    FmaOp,
    MaximumFOp,
    MaxNumFOp,
    MinimumFOp,
    MinNumFOp,
    MulFOp,
    MulIOp,
    SubIOp,
)
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, ReduceReturnOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before, value_before

_SUMS = (AddFOp, AddIOp, MaxNumFOp, MaximumFOp, MinNumFOp, MinimumFOp)


@dataclass(slots=True)
class _Sum:
    """A carried value to which each trip adds.

    Args:
        kind: the operation that adds.
        terms: what is added: a value, or two factors.
    """

    kind: type[Operation]
    terms: Sequence[SSAValue]


@dataclass(slots=True)
class _Loop:
    """A loop that can run in blocks.

    Args:
        op: the loop.
        carried: what becomes of each carried value: a sum, or what an integer gains in each trip.
        trips: of a block.
    """

    op: ForOp
    carried: list[_Sum | SSAValue]
    trips: int


def add_up_in_blocks(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether anything changed."""
    changed = False
    for loop in [op for op in walk(function) if isinstance(op, ForOp)]:
        carried = _carried(loop)
        if carried is None or not any(isinstance(op, LoadOp) for op in loop.body.block.ops):
            continue
        found = decisions.note(BLOCKED, loop, _in_blocks(loop, carried))
        if found is not None:
            _Blocks(found).write()
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _carried(loop: ForOp) -> list[_Sum | SSAValue] | None:
    """What becomes of the carried values, if there are sums among them and nothing but sums and counters."""
    body, found = loop.body.block, list[_Sum | SSAValue]()
    last = body.last_op
    assert last is not None
    for argument, following, result in zip(loop.carried, last.operands, loop.results, strict=True):
        op = owner_of(following)
        if op is None or op.parent is not body:
            return None
        made = _gain(op, argument, loop) or _sum(op, argument)
        if made is None or _is_reduced(result):
            return None
        found.append(made)
    return found if any(isinstance(made, _Sum) for made in found) else None


def _is_reduced(result: SSAValue) -> bool:
    """Whether a loop's result is reduced behind it: then the loop adds up tiles already (`reduced_in_trips.py`)."""
    return any(isinstance(use.operation, ReduceOp) for use in result.uses)


def _gain(op: Operation, argument: SSAValue, loop: ForOp) -> SSAValue | None:
    """What a carried integer gains in each trip."""
    if not isinstance(op, AddIOp) or shape_of(argument.type) or argument not in op.operands:
        return None
    other = op.operands[1] if op.operands[0] is argument else op.operands[0]
    return other if _is_outside(other, loop) else None


def _is_outside(value: SSAValue, loop: ForOp) -> bool:
    """Whether a scalar is made before a loop, or in it by a conversion of one that is."""
    op = owner_of(value)
    return not is_made_inside(op.operands[0] if isinstance(op, ExtSIOp) else value, loop)


def _sum(op: Operation, argument: SSAValue) -> _Sum | None:
    """What is added to a carried value that nothing else reads."""
    if not argument.has_one_use() or not op.results[0].has_one_use():
        return None
    if isinstance(op, FmaOp) and op.operands[2] is argument:
        return _Sum(AddFOp, op.operands[:2])
    if isinstance(op, _SUMS) and argument in op.operands:
        return _Sum(type(op), [op.operands[1] if op.operands[0] is argument else op.operands[0]])
    return None


def _in_blocks(loop: ForOp, carried: list[_Sum | SSAValue]) -> Answer[_Loop]:
    """Whether a loop can run in blocks of trips, and should."""
    step, bounds = constant_of(loop.step), [constant_of(bound) for bound in loop.operands[:2]]
    if not isinstance(step, int) or step < 1 or loop.unsignedCmp is not None:
        return No("the step is not known, or the counter has no sign")
    for op in loop.body.block.ops:
        if op is not loop.body.block.last_op and (not _has_block(op) or "isVolatile" in op.properties):
            return No(f"each trip has {spoken(op)}", op)
    shapes = [shape_of(r.type) for op in loop.body.block.ops for r in op.results]
    size = max(map(prod, shapes))
    if size > tuning.BLOCKED_ELEMENTS:
        return No("its tiles are so large that carrying them hardly matters")
    rank = max(map(len, shapes))
    trips = tuning.BLOCKED_TRIPS if rank < 2 and size <= tuning.BLOCKED_ROW else tuning.BLOCKED_LEAST
    trips = trips if rank else 4 * trips
    lower, upper = bounds
    if isinstance(lower, int) and isinstance(upper, int) and (count := len(range(lower, upper, step))) < trips:
        if count < tuning.BLOCKED_LEAST:
            return No("it has few trips")
        trips = 1 << (count.bit_length() - 1)
    return Yes(_Loop(loop, carried, trips), f"{trips} trips at a time")


def _has_block(op: Operation) -> bool:
    """Whether it is known what an operation is for a block of trips."""
    if isinstance(op, LoadOp | AddPtrOp | SplatOp | ExpandDimsOp | BroadcastOp | ConstantOp | MakeRangeOp):
        return True
    return len(op.results) == 1 and not op.regions and (cast_name(op) or table_name(op)) is not None


class _Blocks:
    """Writes a loop over blocks of trips in front of one over trips."""

    def __init__(self, found: _Loop) -> None:
        self.op, self.carried, self.trips = found.op, found.carried, found.trips
        self.known: dict[SSAValue, SSAValue] = {}
        self.last: Operation = found.op  # in front of which operations are put

    def write(self) -> None:
        """Write the loop; the one that was begins where it ends."""
        loop, counter = self.op, self.op.induction_var.type
        stride = value_before(ConstantOp.of(self.trips * int(constant_of(loop.step) or 1), counter), loop)
        middle = self._middle(stride)
        body = Block(arg_types=[arg.type for arg in loop.body.block.args])
        end = YieldOp.create(operands=list(body.args[1:]))
        body.add_op(end)
        made = ForOp.create(
            operands=[loop.lb, middle, stride, *loop.iter_args],
            result_types=loop.result_types,
            properties=dict(loop.properties),
            regions=[Region(body)],
        )
        insert_before(made, loop)
        end.location, self.last = loop.location, end
        place = self._range(counter)
        self.known[loop.induction_var] = self._grown(body.args[0], place, loop.step)
        for old, new, carried in zip(loop.carried, body.args[1:], self.carried, strict=True):
            if not isinstance(carried, _Sum):
                self.known[old] = self._grown(new, self._range(old.type), self._outside(carried))
        end.operands = [self._next(new, carried) for new, carried in zip(body.args[1:], self.carried, strict=True)]
        loop.operands = [middle, *loop.operands[1:3], *made.results]

    def _middle(self, stride: SSAValue) -> SSAValue:
        """Where the last whole block ends."""
        loop = self.op
        length = self._binary(SubIOp, loop.ub, loop.lb)
        return self._binary(AddIOp, loop.lb, self._binary(MulIOp, self._binary(DivSIOp, length, stride), stride))

    def _next(self, value: SSAValue, carried: _Sum | SSAValue) -> SSAValue:
        """A carried value after a block."""
        if not isinstance(carried, _Sum):
            times = value_before(ConstantOp.of(self.trips, value.type), self.last)
            return self._binary(AddIOp, value, self._binary(MulIOp, self._outside(carried), times))
        terms = [self._block(term) for term in carried.terms]
        added = terms[0] if len(terms) == 1 else self._binary(MulFOp, *terms)
        element = element_type(value.type)
        body = Block(arg_types=[element, element])
        both = carried.kind.create(operands=list(body.args), result_types=[element])
        body.add_ops([both, ReduceReturnOp.create(operands=list(both.results))])
        for op in body.ops:
            op.location = self.op.location
        total = self._make(ReduceOp, [added], value.type, properties={"axis": I32.encode(0)}, regions=[Region(body)])
        return self._binary(carried.kind, value, total)

    # -- values of all trips of a block, along a first dim ---------------------------------------------

    def _block(self, value: SSAValue) -> SSAValue:
        """A value of the loop for each trip of a block."""
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._made(value)
        return found

    def _made(self, value: SSAValue) -> SSAValue:
        shape, op = shape_of(value.type), owner_of(value)
        kind = tile_type((self.trips, *shape), element_type(value.type))
        number = constant_of(value)
        if number is not None:
            return value_before(ConstantOp.of(number, kind), self.last)
        if op is None or not is_made_inside(value, self.op) or isinstance(op, MakeRangeOp | ConstantOp):
            return self._repeated(self._outside(value), kind)
        operands = [self._block(operand) for operand in op.operands]
        if isinstance(op, ExpandDimsOp):
            axis = property_int(op, "axis")
            return self._expanded(operands[0], axis + 1 if axis >= 0 else len(shape) + axis + 1)
        if isinstance(op, SplatOp | BroadcastOp):
            return self._spread(operands[0], shape)
        operands = [self._spread(operand, shape) for operand in operands]
        return self._make(type(op), operands, kind, properties=dict(op.properties), attributes=dict(op.attributes))

    def _outside(self, value: SSAValue) -> SSAValue:
        """What every trip makes alike, made in the block's trip too."""
        op = owner_of(value)
        if op is None or not is_made_inside(value, self.op):
            return value
        made = op.clone()
        insert_before(made, self.last)
        return made.results[0]

    def _repeated(self, value: SSAValue, kind: Attribute) -> SSAValue:
        """What does not depend on the trip, for each trip."""
        if not shape_of(value.type):
            return self._make(SplatOp, [value], kind)
        return self._make(BroadcastOp, [self._expanded(value, 0)], kind)

    def _spread(self, value: SSAValue, shape: tuple[int, ...]) -> SSAValue:
        """What has one number, or fewer elements, for each trip, as a tile of `shape` for each."""
        while len(shape_of(value.type)) < len(shape) + 1:
            value = self._expanded(value, len(shape_of(value.type)))
        kind = tile_type((self.trips, *shape), element_type(value.type))
        return value if value.type == kind else self._make(BroadcastOp, [value], kind)

    def _expanded(self, value: SSAValue, axis: int) -> SSAValue:
        shape = shape_of(value.type)
        kind = tile_type((*shape[:axis], 1, *shape[axis:]), element_type(value.type))
        return self._make(ExpandDimsOp, [value], kind, properties={"axis": I32.encode(axis)})

    def _range(self, kind: Attribute) -> SSAValue:
        """The number of each trip of a block."""
        ends = {"start": I32.encode(0), "end": I32.encode(self.trips)}
        place = self._make(MakeRangeOp, [], tile_type((self.trips,), i32), properties=ends)
        wanted = tile_type((self.trips,), kind)
        return place if wanted == place.type else self._make(ExtSIOp, [place], wanted)

    def _grown(self, value: SSAValue, place: SSAValue, gain: SSAValue) -> SSAValue:
        """``value + place * gain`` for each trip."""
        grown = place if constant_of(gain) == 1 else self._binary(MulIOp, place, self._repeated(gain, place.type))
        return self._binary(AddIOp, self._repeated(value, place.type), grown)

    # -- operations ------------------------------------------------------------------------------------

    def _binary(self, op: type[Operation], left: SSAValue, right: SSAValue) -> SSAValue:
        return self._make(op, [left, right], left.type)

    def _make(self, op: type[Operation], operands: Sequence[SSAValue], kind: Attribute, **more: Any) -> SSAValue:
        return value_before(op.create(operands=operands, result_types=[kind], **more), self.last)
