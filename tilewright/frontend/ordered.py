"""Reductions and scans whose function prints, asserts or, on a CPU, loops: they run element by element.

    for j in rows:                           the other dimensions, taken together
        acc = x[j, 0]
        for i in 1 .. N:   acc = f(acc, x[j, i]);   a scan: out[j, i] = acc
        a reduction: out[j] = acc

So each effect happens. Elsewhere the elements are combined in tiles, in an order of the back end's choosing: a GPU has
an element in each thread, which may loop; a CPU has one in each lane, so that branches become selections
(`passes/selections.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import Operation, Region
from xdsl.traits import RecursivelySpeculatable

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType
from tilewright.base.target import Target
from tilewright.ir.effect_traits import effects
from tilewright.ir.types import dtype_of, element_type, shape_of
from tilewright.ir.walk import contains
from tilewright.ops.broadcast import splat_to
from tilewright.ops.builtin import Emitter
from tilewright.ops.control import ForOp, YieldOp
from tilewright.ops.creation import arange
from tilewright.ops.debug import AssertOp, PrintOp
from tilewright.ops.functions.operators import add, equal, mul, where
from tilewright.ops.functions.shape import permute, reshape_to
from tilewright.ops.functions.target import is_cuda
from tilewright.ops.gather import gather
from tilewright.ops.values import tensor

Tensors = Sequence[tensor]


def runs_in_order(body: Region, target: Target) -> bool:
    """Whether the function of a reduction or scan can only run on one element at a time."""
    return contains(body, PrintOp, AssertOp) or (not is_cuda(target) and not all(map(may_run_unasked, body.block.ops)))


def may_run_unasked(op: Operation) -> bool:
    """Whether an operation of such a function, branches with their sides, may run where nobody wants its result."""
    if op.regions:
        inner = (each for region in op.regions for block in region.blocks for each in block.ops)
        return op.has_trait(RecursivelySpeculatable) and all(map(may_run_unasked, inner))
    done = effects(op)
    return done is not None and not done


def combine_in_order(b: Any, operands: Sequence[Any], attrs: Any, body: Region, *, scan: bool) -> tuple[Any, ...]:
    """The results of a reduction or scan, made by loops over its elements.

    Args:
        b: emitter that builds IR.
        operands: handles of the tiles, of one shape.
        attrs: of the operation: `axis`, and `reverse` of a scan.
        body: the function, on scalars.
        scan: whether it is a scan.
    """
    shape, axis = shape_of(operands[0].type), attrs["axis"]
    order = (axis, *(n for n in range(len(shape)) if n != axis))
    rest = tuple(shape[n] for n in order[1:])
    length, rows = shape[axis], math.prod(rest)
    typed = [tensor(handle, BlockType(dtype_of(element_type(handle.type)), shape)) for handle in operands]
    flat = [reshape_to(b, permute.fn(b, tile, order), (length * rows,)) for tile in typed]
    size = length * rows if scan else rows
    places = arange.fn(b, 0, size)
    back = bool(attrs.get("reverse"))

    def position(i: Any, j: tensor) -> tensor:
        along = add.fn(b, length - 1, mul.fn(b, i, -1)) if back else i
        place: tensor = add.fn(b, mul.fn(b, along, rows), j)
        return place

    def row(j: tensor, *outs: tensor) -> Tensors:
        first = position(_number(b, 0), j)
        accs = [_picked(b, tile, first) for tile in flat]

        def step(i: tensor, *carried: tensor) -> Tensors:
            at = position(i, j)
            made = _applied(b, body, [*carried[: len(flat)], *(_picked(b, tile, at) for tile in flat)])
            return [*made, *(_put(b, carried[len(flat) :], places, at, made) if scan else ())]

        started = _put(b, outs, places, first, accs) if scan else []
        ended = _counted(b, 1, length, [*accs, *started], step)
        return ended[len(flat) :] if scan else _put(b, outs, places, j, ended)

    empty = [b.constant(0 if tile.dtype.is_int() else 0.0, BlockType(tile.dtype, (size,))) for tile in flat]
    outs = _counted(b, 0, rows, empty, row)
    if not scan:
        return tuple(reshape_to(b, out, rest).handle for out in outs)
    undo = tuple(order.index(n) for n in range(len(shape)))
    return tuple(permute.fn(b, reshape_to(b, out, (length, *rest)), undo).handle for out in outs)


def _number(b: Emitter, value: int) -> tensor:
    return b.constant(value, dtypes.int32)


def _picked(b: Emitter, tile: tensor, at: tensor) -> tensor:
    """One element of a flat tile."""
    return reshape_to(b, gather.fn(b, tile, splat_to(b, at, (1,)), 0), ())


def _put(b: Emitter, tiles: Tensors, places: tensor, at: tensor, values: Tensors) -> list[tensor]:
    """Flat tiles with one element of each replaced."""
    here = equal.fn(b, places, at)
    return [where.fn(b, here, value, tile) for tile, value in zip(tiles, values, strict=True)]


def _counted(b: Emitter, start: int, end: int, carried: Tensors, body: Any) -> list[tensor]:
    """A loop at run time; `body` takes the counter and the carried values and gives their next ones."""
    types = [value.type for value in carried]
    region = b.region([dtypes.int32, *types], body, YieldOp)
    bounds = [_number(b, n).handle for n in (start, end, 1)]
    inits = [value.handle for value in carried]
    handles = b.op(ForOp, *bounds, inits, result_types=[handle.type for handle in inits], regions=[region])
    return [tensor(handle, type_) for handle, type_ in zip(handles, types, strict=True)]


def _applied(b: Any, body: Region, args: Tensors) -> list[tensor]:
    """The results of the function, its operations put where the emitter stands."""
    known: Any = dict(zip(body.block.args, (arg.handle for arg in args), strict=True))
    *operations, end = body.block.ops
    for op in operations:
        b.position.block.add_op(op.clone(known))
    types = [arg.type for arg in args[: len(end.operands)]]
    return [tensor(known.get(value, value), type_) for value, type_ in zip(end.operands, types, strict=True)]
