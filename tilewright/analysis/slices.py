"""What the slices of a tile along one dim flow into: row `r` of a tile into row `r` of others, and where rows meet.

Rows of an operand of a product are rows of the result; element-wise operations, changes of shape, loads at addresses of
a row and loops keep rows apart; a reduction along the dim, a reshape or a store at addresses that say nothing mix them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.ir.types import shape_of
from tilewright.ir.values import property_int
from tilewright.ops.atomic import AtomicRMWOp
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.shape import TransOp
from tilewright.ops.spec import REGISTRY

Part = tuple[SSAValue, int]


@dataclass(slots=True)
class Slices:
    """Everything that depends on a value row by row.

    Args:
        loads: with the dim of the rows.
        stores: and atomics whose old values nobody reads, with the dim of the rows in what is stored, or where.
        mixed: an operation in which rows meet; the rest is not complete then.
    """

    loads: dict[LoadOp, int] = field(default_factory=dict)
    stores: dict[StoreOp | AtomicRMWOp, int] = field(default_factory=dict)
    mixed: Operation | None = None


def slices_of(value: SSAValue, dim: int, apart: Collection[Operation] = ()) -> Slices:
    """Follow the slices of `value` along `dim` to all memory accesses, but not through the operations `apart`."""
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
            if op in apart:
                continue
            if isinstance(op, StoreOp) or (isinstance(op, AtomicRMWOp) and not op.results[0].uses):
                if found.stores.setdefault(op, part[1]) == part[1]:
                    continue
                following = None
            else:
                following = _through(op, use.index, part)
            if following is None:
                found.mixed = op
                return found
            if isinstance(op, LoadOp):
                found.loads[op] = part[1]
            todo += following
    return found


def _through(op: Operation, number: int, part: Part) -> list[Part] | None:
    """The slices of results, and of what regions get, that an operand's slices make; None where they are mixed."""
    value, dim = part
    spec = REGISTRY.get(op.name)
    if isinstance(op, LoadOp):
        return None if "isVolatile" in op.properties else [(op.results[0], dim)]
    if isinstance(op, (AddPtrOp, BroadcastOp)) or (spec is not None and spec.elementwise):
        (result,) = op.results
        return [(result, dim)] if shape_of(result.type)[dim : dim + 1] == shape_of(value.type)[dim : dim + 1] else None
    if isinstance(op, ExpandDimsOp):
        return [(op.results[0], dim + (property_int(op, "axis") <= dim))]
    if isinstance(op, TransOp):
        order = [int(n) for n in op.properties["order"].get_values()]  # type: ignore[attr-defined]
        return [(op.results[0], order.index(dim))]
    if isinstance(op, DotOp):
        return _of_product(op, number, part)
    if isinstance(op, ReduceOp):
        axis = property_int(op, "axis")
        return None if axis == dim else [(result, dim - (axis < dim)) for result in op.results]
    if isinstance(op, ScanOp):
        return None if property_int(op, "axis") == dim else [(result, dim) for result in op.results]
    return _of_control(op, number, dim)


def _of_product(op: DotOp, number: int, part: Part) -> list[Part] | None:
    """Rows of A and columns of B are those of the result; the summed dim is not."""
    value, dim = part
    rank = len(shape_of(value.type))
    summed = {0: rank - 1, 1: rank - 2}.get(number)
    return None if dim == summed else [(op.d, dim)]


def _of_control(op: Operation, number: int, dim: int) -> list[Part] | None:
    """What loops and branches hand on."""
    if isinstance(op, ForOp) and number >= 3:
        return [(op.carried[number - 3], dim), (op.results[number - 3], dim)]
    around = op.parent_op()
    if isinstance(op, YieldOp) and isinstance(around, ForOp):
        return [(around.carried[number], dim), (around.results[number], dim)]
    if isinstance(op, YieldOp) and isinstance(around, IfOp):
        return [(around.results[number], dim)]
    return None
