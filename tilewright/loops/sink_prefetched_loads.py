"""Prefetched loads sunk: tiles that a loop loads for its next iteration are loaded where they are used.

    %x = tt.load A(first)
    for ..: iter_args(%u = %x) {                   for .. {
      %v = tt.load A(next)                           %u = tt.load A(this iteration)
      %acc = tt.dot %u, ..                 ->        %acc = tt.dot %u, ..
      yield %v                                       yield
    }                                              }
    tt.dot %result, ..                             tt.dot (tt.load A(end)), ..

Loads ahead are meant for machines that wait for each load. A copy of a tile in scratch costs more here, and
hides from the product that its operands lie side by side in memory. That a carried tile is what the loop would have
loaded in the iteration before is its closed form in the nest (`closed_forms.py`), whatever condition, mask or branch
says that there is a next iteration. A product after the loop that goes on where it ended is for `dot_loops.py`.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis import affine
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, is_tile, result_number
from tilewright.ir.walk import every
from tilewright.loops.lifting import Lifting
from tilewright.loops.lowering import Matrix, Scalars
from tilewright.loops.nest import ZERO, Load, as_element
from tilewright.loops.operands import choice
from tilewright.loops.products import fingerprint
from tilewright.loops.raising import Raising
from tilewright.loops.subjects import SUNK_LOADS
from tilewright.ops.control import ForOp, FuncOp, IfOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.placed_loads import first_write


def sink_prefetched_loads(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all `scf.for` loops of a function, inner ones first; says whether anything changed."""
    changed = False
    for loop in reversed(every(function, ForOp)):
        asked: set[int] = set()
        while found := _found(function, loop, asked, decisions):  # loaded two iterations ahead, it is one ahead then
            for place, value, matrix in found:
                value.replace_all_uses_with(matrix.at(affine.Poly({}), None, place))
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


_Loads = list[tuple[Operation, SSAValue, Matrix]]


def _found(function: FuncOp, loop: ForOp, asked: set[int], decisions: Decisions) -> _Loads:
    """What a loop hands on of loads, by numbers that nobody asked about before: where to load it, and what it is."""
    raising, found = None, _Loads()
    for number, value in enumerate(loop.yielded):
        load = _load_for_next(loop, value)
        if load is None or not is_tile(value) or number in asked or loop.carried[number].first_use is None:
            continue
        asked.add(number)
        raising = raising or Raising(function)
        made = decisions.note(SUNK_LOADS, load, _recognise(raising, loop, number, load)) or []
        if made:
            decisions.note(
                SUNK_LOADS, defining_op(loop.iter_args[number]), Yes(loop, "loaded in the loop, where it is used")
            )
        found += made
    return found


def _load_for_next(loop: ForOp, value: SSAValue) -> LoadOp | None:
    """The load of an iteration, or of a branch of it, that gives a value."""
    op, block = defining_op(value), loop.body.block
    if op is None or op.parent is not block:
        return None
    if isinstance(op, IfOp):
        number = result_number(value)
        ends = [region.block.last_op for region in op.regions if region.blocks]
        made = [defining_op(end.operands[number]) for end in ends if end is not None]
        return next((load for load in made if isinstance(load, LoadOp)), None)
    return op if isinstance(op, LoadOp) else None


def _recognise(raising: Raising, loop: ForOp, number: int, load: LoadOp) -> Answer[_Loads]:
    """How a loop hands on what `load` has read, if its first value has been read in the same way."""
    first = defining_op(loop.iter_args[number])
    if not isinstance(first, LoadOp) or first.parent is not loop.parent or "isVolatile" in load.properties:
        return No("what the first iteration gets is not loaded before the loop", first)
    written = first_write(first, loop)
    if written is not None:
        return No("memory may change between the load and its use", written)
    if not raising.loops.is_delayed(loop, number):
        return No("the first load is not what the loop would have read one iteration before", first)
    yielded = raising.loops.of(loop).yielded[number]
    raising.value(yielded, raising.dims((yielded, "sunk"), shape_of(yielded.type)))  # so that its scalars are known
    found, behind = _Loads(), loop.next_op
    assert loop.body.block.first_op is not None and behind is not None
    places = [(loop.body.block.first_op, loop.carried[number]), (behind, loop.results[number])]
    for place, value in places:
        if value.first_use is None:
            continue
        matrix = _matrix(raising, value, load, place)
        if isinstance(matrix, No):
            return matrix
        found.append((place, value, matrix.plan))
    return Yes(found, "loaded where it is used")


def _matrix(raising: Raising, value: SSAValue, load: LoadOp, place: Operation) -> Answer[Matrix]:
    """What a value is a tile of, as it can be loaded at a place."""
    shape = shape_of(value.type)
    if len(shape) not in (1, 2):
        return No("it has a batch dimension", load)
    dims = raising.dims((value, "sunk"), shape)
    condition, element = choice(as_element(Lifting()(raising.value(value, dims))))
    if not isinstance(element, Load):
        return No("what its mask leaves out is not known to be zero, or its branch may leave it out", load)
    parts, (m, n) = sorted(condition.parts, key=fingerprint), (1, *shape)[-2:]
    made = Matrix(element, (ZERO, *dims)[-2:], (m, n), None, parts, False, load, value.type)
    return made.find(Scalars(raising, place)) or Yes(made)
