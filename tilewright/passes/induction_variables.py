"""Induction variables: what a loop carries and could as well compute is computed.

    %i = 0 to %n step 1, carried %p = %first, %q = 0          %i = 0 to %n step 1
      ... %p ... %q ...                                 ->      ... %first ... %i * 64 ...
      yield %p, %q + 64

A value that every iteration hands on as it is never changes; an integer that gains a number in every iteration is a
multiple of the counter, moved; a tile that the first iteration and every next one get by the same arithmetic from
numbers that the loop carries is made of these by who uses it. Then masks and addresses of one block do not depend on
different values that are the same, and what never changes can be computed before the loop. `tl.advance` carries the
place of a block along every dim, in 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit, way_of
from tilewright.base.order import operands_first
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.types import i64
from tilewright.ir.values import defining_op, is_tile, result_number
from tilewright.ir.walk import every
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.elementwise import AddIOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import take_out_invariants

_Pair = tuple[SSAValue, SSAValue]  # of a value that a loop carries: the first, and what an iteration hands on


def simplify_induction_variables(root: Operation) -> bool:
    """Rewrite the uses of such values in every `scf.for` below `root`; says whether there were any.

    The loops still carry what is now dead: `dce` takes it away.
    """
    changed = False
    for loop in every(root, ForOp):
        changed |= take_out_invariants(loop)
        changed |= _count(loop)
    return changed


def rematerialize_carried(function: FuncOp) -> bool:
    """Make tiles that a loop makes for its next iteration of numbers that it carries where they are used, in every
    `scf.for` of a function; says whether there were any."""
    changed = False
    for loop in every(function, ForOp):
        pairs = list(zip(loop.iter_args, loop.yielded, strict=True))
        numbers = {pair: number for number, pair in enumerate(pairs) if not is_tile(pair[0])}
        for number, pair in enumerate(pairs):
            if is_tile(pair[0]) and pair[1] is not loop.carried[number]:
                changed |= _rematerialize(loop, number, _parts_of(pair, numbers), numbers)
    if changed:
        eliminate_dead_code(function)
    return changed


def _count(loop: ForOp) -> bool:
    """Let multiples of the counter stand for integers that gain a number in an iteration."""
    counter = loop.induction_var
    if not is_unit(loop):
        return False
    changed = False
    for carried, first, following in zip(loop.carried, loop.iter_args, loop.yielded, strict=True):
        gain = _gain(carried, following)
        if carried.type not in (counter.type, i64) or gain is None:
            continue
        anchor = loop.body.block.first_op
        assert anchor is not None
        way = way_of(loop)
        narrow = way.fits and way.step == Poly.of(gain)  # it is the counter of the program, moved
        carried.replace_all_uses_with(_moved(counter, gain, first, anchor, narrow=narrow))
        changed = True
    return changed


def _gain(carried: SSAValue, following: SSAValue) -> int | None:
    """What an iteration adds to a carried value, if that is a number."""
    op = defining_op(following)
    if not isinstance(op, AddIOp) or carried not in op.operands:
        return None
    other = op.operands[1] if op.operands[0] is carried else op.operands[0]
    number = constant_of(other)
    return number if isinstance(number, int) else None


def _moved(counter: SSAValue, gain: int, first: SSAValue, anchor: Operation, *, narrow: bool) -> SSAValue:
    """``counter * gain + first`` in the type of `first`, in front of `anchor`; the product in that of `counter` if
    that holds it."""
    b, type_, place = Builder(anchor), first.type, counter
    if type_ != place.type and not narrow:
        place = b.cast(ExtSIOp, place, type_)
    if gain != 1:
        place = b.mul(place, b.number(gain, place.type))
    if type_ != place.type:
        place = b.cast(ExtSIOp, place, type_)
    return place if constant_of(first) == 0 else b.add(place, first)


def _parts_of(pair: _Pair, numbers: Mapping[_Pair, int]) -> dict[_Pair, list[_Pair]]:
    """What both of a pair are made of alike, operands first, each with its operands; nothing if that is more than
    numbers of the loop, and what it does not change."""
    found: dict[_Pair, list[_Pair]] = {}

    def parts(each: _Pair) -> list[_Pair]:
        ops = [defining_op(value) for value in each]
        return [] if each in numbers or _is_same(each) or None in ops else list(zip(*(op.operands for op in ops if op)))

    for each in operands_first(pair, parts, found):
        found[each] = parts(each)
        if each not in numbers and not _is_same(each) and not _is_one_kind(*map(defining_op, each)):
            return {}
    return found if not numbers.keys().isdisjoint(found) else {}


def _is_same(pair: _Pair) -> bool:
    """Whether both of a pair are one value, or one number."""
    first, second = pair
    number = constant_of(first)
    known = number is not None and first.type == second.type
    return first is second or (known and repr(number) == repr(constant_of(second)))  # -0.0 is another


def _is_one_kind(first: Operation | None, second: Operation | None) -> bool:
    """Whether two operations of equal operands would give equal results."""
    if first is None or second is None or type(first) is not type(second) or first.regions:
        return False
    same = first.properties == second.properties and first.attributes == second.attributes
    alike = first.result_types == second.result_types and len(first.operands) == len(second.operands)
    return same and alike and is_without_effects(first)


def _rematerialize(loop: ForOp, number: int, parts: Mapping[_Pair, list[_Pair]], numbers: Mapping[_Pair, int]) -> bool:
    """Make a carried tile of its parts at the start of an iteration, and behind the loop what it leaves."""
    for values, anchor in (loop.carried, loop.body.block.first_op), (loop.results, loop.next_op):
        assert anchor is not None
        if parts and values[number].first_use is not None:
            values[number].replace_all_uses_with(_made(parts, numbers, values, anchor))
    return bool(parts)


def _made(
    parts: Mapping[_Pair, list[_Pair]], numbers: Mapping[_Pair, int], values: Sequence[SSAValue], anchor: Operation
) -> SSAValue:
    """What is made of parts, the last of them, if the numbers of a loop are `values`."""
    made: dict[_Pair, SSAValue] = {}
    for pair, operands in parts.items():
        op = defining_op(pair[0])
        made[pair] = values[numbers[pair]] if pair in numbers else pair[0]
        if operands and op is not None:
            known = {old: made[part] for old, part in zip(op.operands, operands, strict=True)}
            made[pair] = Builder(anchor).copy(op, known).results[result_number(pair[0])]
    return made[[*parts][-1]]
