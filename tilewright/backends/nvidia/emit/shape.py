"""Operations that make tiles or rename coordinates: splat, range, constant, broadcast, reshape, trans, join, cat.

Renaming moves nothing: the layout of the result, written in the coordinates of the operand, names the register of the
operand that each register of the result is. That both lie in one thread is checked, never assumed. A reshape or cat
for which it is not so (padding lies between the elements) goes through shared memory:

    store each element at its row-major number; barrier; load
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.llvm.casts import load_bool
from tilewright.backends.llvm.types import I1, I8, I32, T, V, const, zero
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.scratch import Place, Room, positions, row_major, starts, weighted
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.backends.nvidia.plan.relations import is_ragged
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.errors import InternalError
from tilewright.ir.op import TileOp
from tilewright.ir.types import element_type, shape_of
from tilewright.layouts.distributed import dim_names
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.layouts.shuffle import plan_warp
from tilewright.layouts.tile import join_tiles, reshape_tile, transpose_tile
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp, float_bits
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp, UnsplatOp

# --- from nothing -------------------------------------------------------------------------------------


def _registers(op: Operation) -> int:
    """Registers of the result; one for a scalar."""
    type_ = op.results[0].type
    return layout_of(type_).in_sizes["register"] if shape_of(type_) else 1


@emits(SplatOp)
def emit_splat(k: Kernel, op: Operation) -> None:
    """One value in every register."""
    k.set(op.results[0], [k.scalar(op.operands[0])] * _registers(op))


@emits(PoisonOp)
def emit_poison(k: Kernel, op: Operation) -> None:
    """Anything: zero, which is cheap, and the same in all threads."""
    k.set_like(op.results[0], [zero(k.element(op.results[0]))] * _registers(op))


@emits(MakeRangeOp)
def emit_range(k: Kernel, op: MakeRangeOp) -> None:
    """The coordinate, and where the range starts."""
    start = op.attr_values()["start"]
    k.set(op.results[0], [k.f.add(place, start) for place in k.coordinates(layout_of(op.results[0]), 0)])


@emits(ConstantOp)
def emit_constant(k: Kernel, op: ConstantOp) -> None:
    """A number, a tile of one number, or a table in memory that each thread reads its elements of."""
    value, type_ = op.attr_values()["value"], op.results[0].type
    t, element = k.element(type_), element_type(type_)
    if not isinstance(value, np.ndarray):
        k.set_like(op.results[0], [_literal(t, value, element)] * _registers(op))
        return
    padded = padded_shape(shape_of(type_))
    whole = np.zeros(padded, value.dtype)
    whole[tuple(slice(size) for size in value.shape)] = value
    literals = [_literal(t, number, element) for number in whole.ravel().tolist()]
    columns = weighted(layout_of(type_), row_major(padded))
    places = positions(k, columns, range(_registers(op)))
    k.set(op.results[0], _from_table(k, t, literals, places))


def _literal(t: T, value: bool | int | float, element: Attribute) -> V:
    if isinstance(value, float) and not t.is_float:  # 8-bit floats are integers here
        return const(t, float_bits(value, element))
    return const(t, value)


def _from_table(k: Kernel, t: T, literals: Sequence[V], places: Sequence[Place]) -> Tile:
    """Elements of a constant array; the array is made only if one is not known at compile time."""
    if all(place.part.const == 0 for place in places):
        return [literals[place.constant] for place in places]
    digest = hashlib.sha256(" ".join(v.typed for v in literals).encode()).hexdigest()
    memory = I8 if t is I1 else t
    stored = [k.f.cast("zext", v, I8) if t is I1 else v for v in literals]
    table = k.f.module.constant(f"table.{digest[:16]}", memory, stored, 16)
    loaded = [k.f.load(memory, k.f.gep(table, k.f.add(place.part, place.constant), memory)) for place in places]
    return [load_bool(k.f, v) for v in loaded] if t is I1 else loaded


# --- renaming -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _renaming(source: LinearLayout, wanted: LinearLayout) -> tuple[int, ...] | None:
    """The register of `source` that each register of `wanted` is; None if elements would have to move."""
    plan = plan_warp(source, wanted, 32)
    return None if plan is None else plan.registers


def _renamed(k: Kernel, op: Operation, registers: Sequence[V], source: LinearLayout, wanted: LinearLayout) -> Tile:
    table = _renaming(source, wanted)
    if table is None:
        raise InternalError(f"{op.name} of {op.operands[0].type} to {op.results[0].type} would move elements")
    return [registers[register] for register in table]


def _rename(k: Kernel, op: Operation, wanted: LinearLayout) -> None:
    """Define the result, whose layout in the coordinates of the operand is `wanted`."""
    k.set(op.results[0], _renamed(k, op, k.tile(op.operands[0]), layout_of(op.operands[0]), wanted))


@emits(BroadcastOp)
def emit_broadcast(k: Kernel, op: Operation) -> None:
    """Positions along the broadcast dims hold copies."""
    _rename(k, op, _wrapped(layout_of(op.results[0]), padded_shape(shape_of(op.operands[0].type))))


@functools.lru_cache(maxsize=1024)
def _wrapped(layout: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
    """The layout with its coordinates taken modulo a smaller shape."""
    bases = {
        dim: [tuple(c % size for c, size in zip(basis, shape, strict=True)) for basis in group]
        for dim, group in layout.bases().items()
    }
    return LinearLayout.from_bases(bases, dict(zip(dim_names(len(shape)), shape, strict=True)))


@emits(ExpandDimsOp)
def emit_expand_dims(k: Kernel, op: TileOp) -> None:
    """A dim of size 1 is no part of a position."""
    _rename(k, op, _without(layout_of(op.results[0]), op.attr_values()["axis"]))


@functools.lru_cache(maxsize=1024)
def _without(layout: LinearLayout, axis: int) -> LinearLayout:
    """The layout of the other dims."""
    kept = [name for dim, name in enumerate(layout.out_sizes) if dim != axis]
    flat = layout.sublayout(list(layout.in_sizes), kept)
    return flat.rename(dict(zip(kept, dim_names(len(kept)), strict=True)))


@emits(TransOp)
def emit_trans(k: Kernel, op: TransOp) -> None:
    """Dims in another order."""
    order = op.attr_values()["order"]
    _rename(k, op, transpose_tile(layout_of(op.result), [order.index(dim) for dim in range(len(order))]))


@emits(JoinOp)
def emit_join(k: Kernel, op: JoinOp) -> None:
    """Registers of both operands in turn."""
    both = [value for pair in zip(k.tile(op.lhs), k.tile(op.rhs), strict=True) for value in pair]
    k.set(op.result, _renamed(k, op, both, join_tiles(layout_of(op.lhs)), layout_of(op.result)))


@emits(SplitOp)
def emit_split(k: Kernel, op: Operation) -> None:
    """The registers at index 0 of the last dim, and those at index 1."""
    both = _renamed(k, op, k.tile(op.operands[0]), layout_of(op.operands[0]), join_tiles(layout_of(op.results[0])))
    k.set(op.results[0], both[::2])
    k.set(op.results[1], both[1::2])


@emits(UnsplatOp)
def emit_unsplat(k: Kernel, op: Operation) -> None:
    """Every position holds a copy of the only element."""
    k.set(op.results[0], k.tile(op.operands[0])[0])


# --- reshape and cat ----------------------------------------------------------------------------------


def _places(op: Operation) -> tuple[int, ...] | None:
    """Which register (of all operands, one after the other) each one of the result is; None if elements move."""
    if is_ragged(op):
        return None
    source, result = layout_of(op.operands[0]), layout_of(op.results[0])
    if isinstance(op, ReshapeOp):
        return _renaming(source, reshape_tile(result, padded_shape(shape_of(op.src.type))))
    stacked = source * LinearLayout.identity(2, "register", "dim0")
    return _renaming(stacked.transpose(ins=tuple(source.in_sizes), outs=tuple(source.out_sizes)), result)


@scratch(ReshapeOp, CatOp)
def reshape_scratch(op: Operation) -> int:
    """Bytes of the result, if elements move."""
    type_ = op.results[0].type
    return 0 if _places(op) is not None else starts([type_], prod(shape_of(type_)))[-1]


@emits(ReshapeOp, CatOp)
def emit_reshape(k: Kernel, op: Operation) -> None:
    """The elements of the operands, one after the other, under another shape."""
    places = _places(op)
    if places is not None:
        registers = [value for operand in op.operands for value in k.tile(operand)]
        k.set(op.results[0], [registers[place] for place in places])
        return
    room, start = Room(k, k.scratch(op), op.results[0].type), 0
    for operand in op.operands:
        _store_numbered(k, room, operand, start)
        start += prod(shape_of(operand.type))
    k.f.barrier()
    result = op.results[0].type
    numbers = [k.f.select(on, place, 0) for place, on in zip(_numbers(k, result), k.inside(result), strict=True)]
    k.set(op.results[0], [room.get(Place(number)) for number in numbers])


def _store_numbered(k: Kernel, room: Room, value: SSAValue, start: int) -> None:
    """The elements of a tile by their row-major number, counted from `start`."""
    held, layout = k.tile(value), layout_of(value)
    numbers, inside, owns = _numbers(k, value.type), k.inside(value.type), k.owns(layout)
    for register in k.owned_registers(layout):
        with k.f.if_(k.f.and_(owns, inside[register])):
            room.put(Place(numbers[register], start), held[register])


def _numbers(k: Kernel, type_: Attribute) -> list[V]:
    """The row-major number of each register's element in a tile without padding (i32)."""
    layout, f = layout_of(type_), k.f
    total = [const(I32, 0)] * layout.in_sizes["register"]
    for dim, stride in row_major(shape_of(type_)).items():
        total = [f.add(sum_, f.mul(c, stride)) for sum_, c in zip(total, k.coordinates(layout, dim), strict=True)]
    return total


__all__ = [
    "emit_broadcast", "emit_constant", "emit_expand_dims", "emit_join", "emit_poison", "emit_range", "emit_reshape",
    "emit_splat", "emit_split", "emit_trans", "emit_unsplat", "reshape_scratch",
]  # fmt: skip
