"""Reductions moved out of loops: what a loop gathers by them is gathered as a tile, and reduced once.

    for ..: iter_args(%s = %first) {              for ..: iter_args(%t = neutral elements) {
      %r = tt.reduce (arith.addf) %x                yield arith.addf %t, %x
      yield arith.addf %s, %r             ->      }
    }                                             %s = arith.addf %first, (tt.reduce (arith.addf) %t)

Threads wait for each other in every reduction. Elements are joined in another order, as by every reduction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.plan.subjects import REDUCED_AFTER
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.ir.walk import contains, every
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, MulFOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.spec import spec_of
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import erase, retype


@dataclass(frozen=True, slots=True)
class _Gathering:
    """A carried value to which every iteration joins a reduction.

    Args:
        number: of the carried value.
        join: the operation that joins.
        reduction: what is joined.
    """

    number: int
    join: Operation
    reduction: ReduceOp


def move_reductions_out_of_loops(module: ModuleOp, warps: int, decisions: Decisions) -> bool:
    """Rewrite such loops of a module, in place; says whether there was one.

    Args:
        module: tile IR.
        warps: of a block.
        decisions: of the compilation.
    """
    changed = False
    for loop in every(module, ForOp):
        if not contains(loop, DotOp):  # they need the registers
            while (found := _gathering(loop, warps, decisions)) is not None:
                _move(loop, found)
                changed = True
    return changed


def _gathering(loop: ForOp, warps: int, decisions: Decisions) -> _Gathering | None:
    """The first of them in a loop whose tile is small enough to be carried."""
    end = loop.body.block.last_op
    assert end is not None
    for number, (carried, following) in enumerate(zip(loop.carried, end.operands, strict=True)):
        join = following.owner
        if not isinstance(join, Operation) or len(join.operands) != 2 or carried not in join.operands:
            continue
        other = join.operands[1] if join.operands[0] is carried else join.operands[0]
        reduction = other.owner
        if not isinstance(reduction, ReduceOp) or not _is_gathered(carried, join, reduction):
            continue
        if decisions.note(REDUCED_AFTER, reduction, _carried(reduction, warps)) is not None:
            return _Gathering(number, join, reduction)
    return None


def _carried(reduction: ReduceOp, warps: int) -> Answer[ReduceOp]:
    """The reduction, if a loop can carry the tile that it reduces."""
    words = _words(reduction.operands[0], warps)
    if words > tuning.CARRIED_WORDS:
        return No(f"the tile that is reduced takes {words} registers of a thread", instead="smaller blocks")
    return Yes(reduction, "once for all iterations")


def _is_gathered(carried: SSAValue, join: Operation, reduction: ReduceOp) -> bool:
    """Whether an iteration does nothing with a carried value but to join a reduction by the operation of that."""
    body = single_operation(reduction.regions[0].block) if len(reduction.operands) == 1 else None
    if type(body) is not type(join) or not all(value.has_one_use() for value in (carried, *join.results)):
        return False
    monoid = spec_of(join).monoid
    if not reduction.results[0].has_one_use() or reduction.parent_block() is not join.parent_block():
        return False
    rounds = isinstance(join, AddFOp | MulFOp) and bit_width(element_type(join.results[0].type)) < 32
    return monoid is not None and monoid.commutes and not rounds


def _words(tile: SSAValue, warps: int) -> int:
    bits = bit_width(element_type(tile.type))
    return max(1, math.prod(shape_of(tile.type)) * bits // (32 * WARP * warps))


def _move(loop: ForOp, found: _Gathering) -> None:
    tile, first = found.reduction.operands[0], loop.iter_args[found.number]
    carried, end = loop.carried[found.number], loop.body.block.last_op
    assert end is not None
    monoid = spec_of(found.join).monoid
    assert monoid is not None
    neutral = Builder(loop).number(monoid.identity(bit_width(element_type(tile.type))), tile.type)
    loop.operands[3 + found.number] = neutral
    result = loop.results[found.number]
    for value in (carried, result):
        retype(value, tile.type)
    join, reduction = found.join, found.reduction
    made = Builder(join).op(type(join), carried, tile)
    join.results[0].replace_all_uses_with(made)
    erase(join)
    following = loop.next_op
    assert following is not None
    uses = list(result.uses)
    behind = ReduceOp.create(
        operands=[result], result_types=[first.type], properties=reduction.properties.copy(),
        regions=[reduction.detach_region(0)],
    )  # fmt: skip
    b = Builder(following)
    whole = b.op(type(join), first, b.put(behind))
    for use in uses:
        use.operation.operands[use.index] = whole
    erase(reduction)


__all__ = ["move_reductions_out_of_loops"]
