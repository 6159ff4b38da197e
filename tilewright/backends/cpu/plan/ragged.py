"""Tiles whose extents are not powers of two: `tt.cat` becomes operations that have an index for their operands.

    %c = cat %a, %b : 3x4 -> 6x4       ->      %j = join %a, %b        3x4x2
                                               %t = trans %j           2x3x4
                                               %c = reshape %t         6x4

Between powers of two the top bit of the first coordinate tells the sides of a `tt.cat` apart (`lazy.side_bit`).
"""

from __future__ import annotations

from tilewright.analysis.index import is_power_of_two
from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.walk import every
from tilewright.ops.function import FuncOp
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, TransOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace


def rewrite_ragged_cats(function: FuncOp) -> bool:
    """Rewrite the `tt.cat` operations of a function on tiles whose first extent is not a power of two, in place; says
    whether there was one."""
    ragged = [op for op in every(function, CatOp) if not is_power_of_two(shape_of(op.lhs.type)[0])]
    for op in ragged:
        _rewrite(op)
    return bool(ragged)


def _rewrite(op: CatOp) -> None:
    shape, element = shape_of(op.lhs.type), element_type(op.lhs.type)
    rank = len(shape)
    order, b = (rank, *range(rank)), Builder(op)
    joined = b.make(JoinOp, tile_type((*shape, 2), element), op.lhs, op.rhs)
    turned = b.make(TransOp, tile_type((2, *shape), element), joined, order=order)
    replace(op, [b.make(ReshapeOp, op.result.type, turned)])
