"""What the slices of a tile along one dim flow into: row `r` of a tile into row `r` of others, and where rows meet.

Rows of an operand of a product are rows of the result; element-wise operations, changes of shape, loads at addresses of
a row and loops keep rows apart; a reduction along the dim, a reshape or a store at addresses that say nothing mix them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.ir import BlockArgument, Operation, SSAValue, Use

from tilewright.analysis.flow import targets_of
from tilewright.ir.effect_traits import is_atomic, may_write
from tilewright.ops.atomic import AtomicRMWOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.spec import dims_of

Part = tuple[SSAValue, int]


@dataclass(slots=True)
class Slices:
    """Everything that depends on a value row by row.

    Args:
        loads: with the dim of the rows.
        stores: and atomics whose old values nobody reads, with the dim of the rows in what is stored, or where.
        mixed: an operation in which rows meet; the rest is not complete then.
        carriers: loops of which another iteration may get some.
    """

    loads: dict[LoadOp, int] = field(default_factory=dict)
    stores: dict[StoreOp | AtomicRMWOp, int] = field(default_factory=dict)
    mixed: Operation | None = None
    carriers: set[Operation] = field(default_factory=set)


def slices_of(value: SSAValue, dim: int, apart: Callable[[Use, int], bool] = lambda use, dim: False) -> Slices:
    """Follow the slices of `value` along `dim` to all memory accesses, but not through uses, along a dim, `apart`."""
    found = Slices()
    seen: set[Part] = set()
    todo: list[Part] = [(value, dim)]
    while todo:
        part = todo.pop()
        if part in seen:
            continue
        seen.add(part)
        for use in part[0].uses:
            op = use.operation
            if apart(use, part[1]):
                continue
            if isinstance(op, StoreOp) or (isinstance(op, AtomicRMWOp) and not op.results[0].uses):
                if found.stores.setdefault(op, part[1]) == part[1]:
                    continue
                following = None
            else:
                following = goes_into(op, use.index, part[1])
            if following is None:
                found.mixed = op
                return found
            if isinstance(op, LoadOp):
                found.loads[op] = part[1]
            found.carriers |= {loop for target, _ in following if (loop := _entered(target)) is not None}
            todo += following
    return found


def goes_into(op: Operation, number: int, dim: int) -> list[Part] | None:
    """What an operation makes of the rows along a dim of an operand, each of one row; None where it mixes them."""
    dims = dims_of(op)
    if dims is None:
        targets = targets_of(op, number)
        return None if targets is None else [(target, dim) for target in targets]
    name = dims.operands[number][dim]
    if may_write(op) or is_atomic(op) or name in dims.met or not all(name in names for names in dims.results):
        return None
    return [(result, names.index(name)) for result, names in zip(op.results, dims.results, strict=True)]


def _entered(value: SSAValue) -> Operation | None:
    """The loop to whose iterations a value is handed."""
    return value.block.parent_op() if isinstance(value, BlockArgument) else None
