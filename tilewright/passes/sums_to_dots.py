"""Sums raised to dots: products that are summed along a dim of their own are products of matrices.

    %p = arith.mulf (broadcast %x[m, k, 1]), (broadcast %y[1, k, n])        %s = tt.dot %x[m, k], %y[k, n], 0
    %s = tt.reduce (axis = 1, arith.addf) %p                          ->

The tile of all products would be the largest of the kernel by far. As a product it is never made.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32, f64
from xdsl.ir import Operation, SSAValue

from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, MulFOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import ReshapeOp, TransOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace


def raise_sums_to_dots(root: Operation, least: int = 1, precision: str = "ieee") -> bool:
    """Rewrite every such sum below `root`, in place; says whether there was one.

    Args:
        root: where to look.
        least: size of each dim of the products; sums of smaller ones stay.
        precision: of products of f32, as exact as sums.
    """
    changed = False
    for op in list(walk(root)):
        if isinstance(op, ReduceOp) and (factors := _factors(op, least)) is not None:
            _multiply(op, *factors, precision)
            changed = True
    return changed


def _factors(op: ReduceOp, least: int) -> tuple[tuple[SSAValue, int], tuple[SSAValue, int]] | None:
    """What is multiplied, each with the dim along which it is repeated."""
    product = op.operands[0]
    if not isinstance(product.owner, MulFOp) or not product.has_one_use():
        return None
    if len(shape_of(product.type)) != 3 or min(shape_of(product.type)) < least:
        return None
    if element_type(product.type) not in (f32, f64) or not isinstance(single_operation(op.regions[0].block), AddFOp):
        return None
    x, y = (repeated(value) for value in product.owner.operands)
    if x is None or y is None or len({int(op.attr_values()["axis"]), x[1], y[1]}) != 3:
        return None
    return x, y


def repeated(value: SSAValue) -> tuple[SSAValue, int] | None:
    """What a tile repeats along one dim, and that dim."""
    if not isinstance(value.owner, BroadcastOp):
        return None
    source = value.owner.operands[0]
    sizes = zip(shape_of(source.type), shape_of(value.type), strict=True)
    dims = [dim for dim, (before, after) in enumerate(sizes) if before != after]
    return (source, dims[0]) if len(dims) == 1 else None


def _multiply(op: ReduceOp, first: tuple[SSAValue, int], second: tuple[SSAValue, int], precision: str) -> None:
    """A product in the place of a sum; the factor that has the first dim of the result is the left one."""
    summed, shape = int(op.attr_values()["axis"]), shape_of(op.operands[0].type)
    kind = element_type(op.operands[0].type)
    left, right = (first, second) if first[1] > second[1] else (second, first)
    rows, columns = right[1], left[1]
    x = _matrix(left[0], (rows, summed), shape, op)
    y = _matrix(right[0], (summed, columns), shape, op)
    made, b = tile_type((shape[rows], shape[columns]), kind), Builder(op)
    replace(op, [b.make(DotOp, made, x, y, b.number(0.0, made), inputPrecision=precision)])


def _matrix(value: SSAValue, dims: tuple[int, int], shape: Sequence[int], anchor: Operation) -> SSAValue:
    """A factor as a matrix of these dims of the product."""
    b, kind, kept = Builder(anchor), element_type(value.type), sorted(dims)
    flat = tile_type(tuple(shape[dim] for dim in kept), kind)
    if isinstance(value.owner, ExpandDimsOp) and value.owner.operands[0].type == flat:
        matrix = value.owner.operands[0]
    else:
        matrix = b.make(ReshapeOp, flat, value)
    if list(dims) == kept:
        return matrix
    return b.make(TransOp, tile_type(tuple(shape[dim] for dim in dims), kind), matrix, order=[1, 0])
