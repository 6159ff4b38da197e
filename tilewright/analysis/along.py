"""Integers that depend on one coordinate only, and are known: masks that a kernel makes of `arange`.

arange(0, 2)[None, :, None]          along dim 1:   0, 1
1 - arange(0, 2)[None, :, None]                     1, 0
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.ir.values import defining_op, property_int
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import AddIOp, MulIOp, XOrIOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.spec import ring_of


def values_along(value: SSAValue, axis: int) -> Sequence[int] | None:
    """The elements of a tile by their coordinate along a dim; None if that alone does not tell them.

    Args:
        value: integers.
        axis: the dim.
    """
    shape, number, op = shape_of(value.type), constant_of(value), defining_op(value)
    if isinstance(number, int):
        return [int(number)] * shape[axis]
    if isinstance(op, MakeRangeOp):
        return range(property_int(op, "start"), property_int(op, "end"))
    if isinstance(op, BroadcastOp):
        source = op.operands[0]
        found = values_along(source, axis)
        return None if found is None else list(found) * (shape[axis] // shape_of(source.type)[axis])
    if isinstance(op, ExpandDimsOp):
        at = property_int(op, "axis")
        return None if at == axis else values_along(op.operands[0], axis - (at < axis))
    compute = operator.xor if isinstance(op, XOrIOp) else ring_of(op)
    if compute is None or op is None:
        return None
    sides = [side for operand in op.operands if (side := values_along(operand, axis)) is not None]
    if len(sides) < len(op.operands):
        return None
    made = [compute(*numbers) for numbers in zip(*sides, strict=True)]
    return made if all(abs(v) < 1 << bit_width(element_type(value.type)) - 1 for v in made) else None


def chosen_of_two(total: ReduceOp) -> tuple[SSAValue, int] | None:
    """The tile, and the number of its element, that is the sum of two of which one is multiplied by zero.

    Args:
        total: any reduction; None of one that does not add up one tile of integers.
    """
    axis, product = property_int(total, "axis"), defining_op(total.operands[0])
    if len(total.operands) != 1 or not isinstance(single_operation(total.combine.block), AddIOp):
        return None
    if not isinstance(product, MulIOp) or shape_of(total.operands[0].type)[axis] != 2:
        return None
    for tile, mask in (product.operands, product.operands[::-1]):
        values = values_along(mask, axis)
        if values is not None and sorted(values) == [0, 1]:
            return tile, list(values).index(1)
    return None
