"""Loads of two-dimensional tiles made anew at another place: in another iteration of their loop, by another counter.

A load whose addresses are base + i * stride + j * stride, with a mask of upper bounds, is known by these polynomials
(`matrices.MemoryOperand`). The same load elsewhere has others in the same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly, expanded
from tilewright.analysis.matrices import MemoryOperand, memory_operand
from tilewright.base import dtypes
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.options import Options
from tilewright.base.target import NO_TARGET
from tilewright.frontend.builder import IRBuilder, Position
from tilewright.ir.effect_traits import may_write
from tilewright.ir.types import TilePointerType, dtype_of, element_type, i64, pointee_bytes, shape_of, tile_type
from tilewright.ir.walk import walk
from tilewright.ops.builtin import BUILTINS
from tilewright.ops.function import CallOp
from tilewright.ops.functions.operators import add, less_than, logical_and, mul
from tilewright.ops.memory import LoadOp
from tilewright.ops.values import tensor
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import move_before
from tilewright.passes.trip_count import Preheader


def placed(load: LoadOp) -> Answer[MemoryOperand]:
    """The polynomials of a load, if `load_at` can make it elsewhere."""
    answer = memory_operand(load.results[0], (), AffineAnalysis())
    if isinstance(answer, No):
        return answer
    found = answer.plan
    base, element = found.base.type, element_type(load.results[0].type)
    cast = not isinstance(base, TilePointerType) or base.pointee != element
    if cast or found.conditions:
        return No("a scalar condition is a part of its mask, or its addresses are cast", load)
    size = pointee_bytes(found.base.type)
    polys = [found.offset, *found.strides, *(bound for bounds in found.bounds for bound in bounds)]
    if any(atom.unsigned for poly in polys for monomial in poly.terms for atom in monomial):
        return No("its addresses are made of unsigned numbers", load)
    if any(number % size for poly in (found.offset, *found.strides) for number in poly.terms.values()):
        return No("its addresses are no multiples of its elements", load)
    return Yes(found)


def load_at(
    found: MemoryOperand,
    offset: Poly,
    bounds: Sequence[Sequence[Poly]],
    anchor: Operation,
    shape: tuple[int, ...] | None = None,
    other: float = 0,
) -> SSAValue:
    """The load of a tile with another offset, in bytes, and other bounds, or of another shape, in front of `anchor`."""
    size, preheader = pointee_bytes(found.base.type), Preheader(anchor, i64)
    shape = shape or shape_of(found.load.results[0].type)

    def number(poly: Poly) -> tensor:
        return tensor(preheader.sum(poly), dtypes.int64)

    start = number(offset.over(size))
    steps = [expanded(stride) for stride in found.strides]  # what they are made of is outside of the load's loop
    strides = [None if step == Poly.of(size) else number(step.over(size)) for step in steps]
    limits = [[tensor(preheader.bound(bound), dtypes.int64) for bound in of_dim] for of_dim in bounds]
    b = IRBuilder(NO_TARGET, Options())
    b.position, b.location = Position(Block()), found.load.location or b.location
    assert isinstance(found.base.type, TilePointerType)
    pointers = add.fn(b, tensor(found.base, dtypes.PointerType(dtype_of(found.base.type.pointee))), start)
    mask: Any = None
    for dim, extent in enumerate(shape):
        place = BUILTINS["cast"].fn(b, BUILTINS["arange"].fn(b, 0, extent), dtypes.int64)
        place = BUILTINS["expand_dims"].fn(b, place, 1 - dim)
        stride = strides[dim]
        pointers = add.fn(b, pointers, place if stride is None else mul.fn(b, place, stride))
        for limit in limits[dim]:
            inside = less_than.fn(b, place, limit)
            mask = inside if mask is None else logical_and.fn(b, mask, inside)
    loaded = BUILTINS["load"].fn(b, pointers, mask, None if mask is None else _other(found, anchor, shape, other))
    for op in list(b.position.block.ops):
        move_before(op, anchor)
    return loaded.handle  # type: ignore[no-any-return]


def _other(found: MemoryOperand, anchor: Operation, shape: tuple[int, ...], other: float) -> tensor:
    """What a mask leaves out."""
    element = element_type(found.load.results[0].type)
    kind = dtype_of(element)
    number = float(other) if kind.is_floating() else int(other)
    return tensor(Builder(anchor).number(number, tile_type(shape, element)), dtypes.BlockType(kind, shape))


def first_write(first: Operation, last: Operation) -> Operation | None:
    """What may write memory from one operation to a later one of the same block, both with all that they hold."""
    op: Operation | None = first
    while op is not None:
        for inner in walk(op):
            if isinstance(inner, CallOp) or may_write(inner):
                return inner
        op = None if op is last else op.next_op
    return None
