"""Rematerialization: tiles that a loop makes for its next iteration are made in the one that uses them.

    %x = A(%t)                                            for ..: iter_args(%u = %t) {
    for ..: iter_args(%u = %t, %y = %x) {          ->       use A(%u)
      use %y                                                yield %u + 1
      yield %u + 1, A(%u + 1)                             }
    }

What an iteration begins with and what it hands on must be made alike, by arithmetic alone. Then nothing needs to be
kept from iteration to iteration, and a planner sees what addresses are made of.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.base.order import operands_first
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.values import defining_op, is_inside, is_tile, result_number
from tilewright.ir.walk import every
from tilewright.ops.control import ForOp, FuncOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before

_Pair = tuple[SSAValue, SSAValue]


def rematerialize_carried(function: FuncOp) -> bool:
    """Rewrite all such tiles that the `scf.for` loops of a function carry; says whether there were any."""
    changed = False
    for loop in every(function, ForOp):
        pairs = list(zip(loop.iter_args, loop.yielded, strict=True))
        scalars = {pair: number for number, pair in enumerate(pairs) if not is_tile(pair[0])}
        for number, pair in enumerate(pairs):
            if is_tile(pair[0]) and pair[1] is not loop.carried[number] and _alike(loop, pair, scalars):
                _derive(loop, number, scalars)
                changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _alike(loop: ForOp, pair: _Pair, scalars: dict[_Pair, int]) -> bool:
    """Whether a value from before a loop, and one of its iteration, are made alike, and of what the loop carries."""
    known: dict[_Pair, bool] = {}

    def parts(pair: _Pair) -> list[_Pair]:
        first, second = (defining_op(value) for value in pair)
        if pair in scalars or pair[0] is pair[1] or first is None or second is None:
            return []
        return list(zip(first.operands, second.operands, strict=False))

    for each in operands_first(pair, parts, known):
        first, second = (defining_op(value) for value in each)
        number = constant_of(each[0])
        if each in scalars or (number is not None and each[0].type == each[1].type):
            known[each] = each in scalars or repr(number) == repr(constant_of(each[1]))
        elif each[0] is each[1]:
            known[each] = True
        elif first is None or second is None or not is_inside(second, loop) or not _is_one_kind(first, second):
            known[each] = False
        else:
            known[each] = all(known.get(part, False) for part in parts(each))
    return known[pair] and any(part in scalars for part in known)


def _is_one_kind(first: Operation, second: Operation) -> bool:
    """Whether two operations of equal operands would give equal results."""
    if type(first) is not type(second) or first.regions or not is_without_effects(first):
        return False
    same = first.properties == second.properties and first.attributes == second.attributes
    return same and first.result_types == second.result_types and len(first.operands) == len(second.operands)


def _derive(loop: ForOp, number: int, scalars: dict[_Pair, int]) -> None:
    """Make a carried tile at the start of an iteration, and after the loop what it leaves."""
    start, behind, first = loop.body.block.first_op, loop.next_op, loop.iter_args[number]
    assert start is not None and behind is not None
    pair = (first, loop.yielded[number])
    loop.carried[number].replace_all_uses_with(_made(pair, scalars, list(loop.carried), start))
    if loop.results[number].first_use is not None:
        loop.results[number].replace_all_uses_with(_made(pair, scalars, list(loop.results), behind))


def _made(pair: _Pair, scalars: dict[_Pair, int], values: list[SSAValue], anchor: Operation) -> SSAValue:
    """What is made of the first of a pair if the loop's numbers are others."""
    made: dict[_Pair, SSAValue] = {}

    def parts(pair: _Pair) -> list[_Pair]:
        first, second = (defining_op(value) for value in pair)
        if pair in scalars or pair[0] is pair[1] or first is None or second is None or constant_of(pair[0]) is not None:
            return []
        return list(zip(first.operands, second.operands, strict=True))

    for each in operands_first(pair, parts, made):
        op = defining_op(each[0])
        if each in scalars:
            made[each] = values[scalars[each]]
        elif not parts(each) or op is None:
            made[each] = each[0]
        else:
            mapped = {old: made[part] for old, part in zip(op.operands, parts(each), strict=True)}
            copy = op.clone(mapped)
            insert_before(copy, anchor)
            copy.location = op.location
            made[each] = copy.results[result_number(each[0])]
    return made[pair]
