"""`tt.gather` and `tt.histogram`: elements at computed places, and counting.

    gather:     store the source; barrier; load from the index
    histogram:  zero the bins; barrier; add one for each element; barrier; load the bins

A gather needs no shared memory where a warp holds what it reads: where the index is the element's own position with
some bits flipped (what sorting networks and `flip` do), one shuffle with a known mask moves a register; where the axis
lies within registers and lanes, a shuffle from a computed lane for each of a few registers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.llvm.types import I1, I32, const
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.scratch import (
    POSITION,
    Place,
    Room,
    axis_bits,
    positions,
    row_major,
    starts,
    weighted,
)
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.errors import InternalError
from tilewright.ir.op import TileOp
from tilewright.ir.types import i32, shape_of
from tilewright.layouts import f2
from tilewright.layouts.linear import LinearLayout, log2
from tilewright.layouts.padding import padded_shape
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.casts import ExtSIOp, ExtUIOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import SubIOp, XOrIOp
from tilewright.ops.gather import GatherOp, HistogramOp

# --- gather -------------------------------------------------------------------------------------------


@scratch(GatherOp)
def gather_scratch(op: GatherOp) -> int:
    """Bytes of the source, unless no thread reads what another warp holds."""
    if _flip_of(op) is not None or _within_warp_of(op) is not None:
        return 0
    return starts([op.src.type], prod(padded_shape(shape_of(op.src.type))))[-1]


@emits(GatherOp)
def emit_gather(k: Kernel, op: GatherOp) -> None:
    """A gather; an index outside of the source takes its first or last element."""
    if layout_of(op.indices) != layout_of(op.result):
        raise InternalError("a gather gives its result in the layout of its index")
    difference, plan = _flip_of(op), _within_warp_of(op)
    if difference is not None:
        made = _flipped(k, op, *difference)
    elif plan is not None:
        made = _within_warp(k, op, plan)
    else:
        made = _through_scratch(k, op)
    k.set(op.result, made)


def _axis(op: TileOp) -> int:
    return int(op.attr_values()["axis"])


def _indices(k: Kernel, op: GatherOp) -> Tile:
    """The index clipped to the source (i32)."""
    size = shape_of(op.src.type)[_axis(op)]
    made = []
    for index in k.tile(op.indices):
        index = k.f.intrinsic("smax", index, const(index.type, 0))
        if size <= 1 << index.type.bits - 1:
            index = k.f.intrinsic("smin", index, const(index.type, size - 1))
        made.append(k.f.cast("trunc" if index.type.bits > 32 else "zext", index, I32))
    return made


def _through_scratch(k: Kernel, op: GatherOp) -> Tile:
    source, axis = layout_of(op.src), _axis(op)
    room = Room(k, k.scratch(op), op.src.type)
    strides = row_major(padded_shape(shape_of(op.src.type)))
    held, registers = k.tile(op.src), k.owned_registers(source)
    for place, register in zip(positions(k, weighted(source, strides), registers), registers, strict=True):
        room.put(place, held[register])
    k.f.barrier()
    shift = log2(strides.pop(axis))
    indices = _indices(k, op)
    rests = positions(k, weighted(layout_of(op.indices), strides), range(len(indices)))
    made = []
    for rest, index in zip(rests, indices, strict=True):
        part = k.f.add(rest.part, k.f.shl(index, shift), "nuw nsw")
        made.append(room.get(Place(part, rest.constant)))
    return made


# --- gather of positions with flipped bits ------------------------------------------------------------


def _flip_of(op: GatherOp) -> tuple[int, int] | None:
    """(registers, lanes) to flip if that is all the gather does."""
    layout, axis, shape = layout_of(op.src), _axis(op), shape_of(op.src.type)
    size = shape[axis]
    if layout != layout_of(op.result) or shape != shape_of(op.result.type) or size & (size - 1):
        return None
    mask = flipped_position(op.indices, axis)
    return None if mask is None or not 0 <= mask < size else _difference(layout, axis, mask)


@functools.lru_cache(maxsize=1024)
def _difference(layout: LinearLayout, axis: int, mask: int) -> tuple[int, int] | None:
    """Difference (registers, lanes) of positions whose elements differ by `mask` along `axis`; None across warps."""
    below = sum(width for _, width in layout.outs[:axis])
    within = layout.sublayout(["register", "lane"], list(layout.out_sizes))
    found = f2.solve(within.columns, mask << below)
    if found is None:
        return None
    bits = len(layout.columns_of("register"))
    return found & (1 << bits) - 1, found >> bits


def flipped_position(value: SSAValue, axis: int) -> int | None:
    """The m for which every element of an integer tile is ``position along axis ^ m``, if there is one.

    Args:
        value: the tile.
        axis: a dim of it.
    """
    op = value.owner
    if not isinstance(op, TileOp) or not op.operands:
        attrs = op.attr_values() if isinstance(op, MakeRangeOp) else None
        return 0 if attrs is not None and attrs["start"] == 0 else None
    if isinstance(op, ExpandDimsOp):
        inserted = _axis(op)
        return None if inserted == axis else flipped_position(op.operands[0], axis - (inserted < axis))
    size = shape_of(value.type)[axis]
    if isinstance(op, (BroadcastOp, ConvertLayoutOp, ExtSIOp, ExtUIOp)):
        same = shape_of(op.operands[0].type)[axis] == size
        return flipped_position(op.operands[0], axis) if same else None
    if isinstance(op, XOrIOp):
        known = [(_number(operand), other) for operand, other in (op.operands, reversed(op.operands))]
        number, other = next(((n, o) for n, o in known if n is not None), (None, value))
        mask = flipped_position(other, axis) if number is not None else None
        return None if mask is None or number is None else mask ^ number
    if isinstance(op, SubIOp) and _number(op.operands[0]) == size - 1 and not size & (size - 1):
        mask = flipped_position(op.operands[1], axis)
        return None if mask is None else mask ^ (size - 1)
    return None


def _number(value: SSAValue) -> int | None:
    """The integer that every element is, if that is known."""
    number = constant_of(value)
    return number if isinstance(number, int) else None


def _flipped(k: Kernel, op: GatherOp, register: int, lane: int) -> Tile:
    held = k.tile(op.src)
    moved = [held[r ^ register] for r in range(len(held))]
    return [k.f.shuffle_xor(value, lane) for value in moved] if lane else moved


# --- gather inside a warp -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WithinWarp:
    """A gather along an axis that lies in registers and lanes.

    Args:
        axis_bits: (dim, mask) of each bit of the index: which register or lane bit it selects.
        starts: for each register of the result the register of the source at index 0.
    """

    axis_bits: tuple[tuple[str, int], ...]
    starts: tuple[int, ...]

    def mask(self, dim: str) -> int:
        """The bits of `dim` that the index selects."""
        return sum(mask for name, mask in self.axis_bits if name == dim)


def _within_warp_of(op: GatherOp) -> WithinWarp | None:
    return plan_within_warp(layout_of(op.src), layout_of(op.indices), _axis(op))


@functools.lru_cache(maxsize=1024)
def plan_within_warp(source: LinearLayout, index: LinearLayout, axis: int) -> WithinWarp | None:
    """The plan, or None if another warp's elements or too many registers may be wanted."""
    bits = axis_bits(source, axis)
    if bits is None or any(dim == "warp" for dim, _ in bits):
        return None
    if 1 << sum(dim == "register" for dim, _ in bits) > tuning.GATHER_SHUFFLES:
        return None
    own, need = _without(source, axis), _without(index, axis)
    if any(own.columns_of(dim) != need.columns_of(dim) for dim in ("lane", "warp")):
        return None
    taken = f2.Span(own.columns_of("register"))
    first = []
    for register in range(index.in_sizes["register"]):
        residue, members = taken.reduce(f2.multiply(need.columns_of("register"), register))
        if residue:
            return None
        first.append(members)
    return WithinWarp(bits, tuple(first))


def _without(layout: LinearLayout, axis: int) -> LinearLayout:
    """The other coordinates."""
    return layout.sublayout(POSITION, [name for dim, name in enumerate(layout.out_sizes) if dim != axis])


def _within_warp(k: Kernel, op: GatherOp, plan: WithinWarp) -> Tile:
    f, held = k.f, k.tile(op.src)
    lanes, registers = plan.mask("lane"), [(i, m) for i, (dim, m) in enumerate(plan.axis_bits) if dim == "register"]
    made = []
    for start, index in zip(plan.starts, _indices(k, op), strict=True):
        lane = f.and_(k.lane, ~lanes)
        for i, (dim, mask) in enumerate(plan.axis_bits):
            if dim == "lane":
                lane = f.or_(lane, f.shl(f.and_(f.lshr(index, i), 1), log2(mask)))
        candidates = [start]
        for _, mask in registers:
            candidates += [register | mask for register in candidates]
        values = [f.shuffle_index(held[r], lane) if lanes else held[r] for r in candidates]
        for i, _ in reversed(registers):
            flag = f.icmp("ne", f.and_(index, 1 << i), 0)
            half = len(values) // 2
            values = [f.select(flag, high, low) for low, high in zip(values[:half], values[half:], strict=True)]
        made.append(values[0])
    return made


# --- histogram ----------------------------------------------------------------------------------------


@scratch(HistogramOp)
def histogram_scratch(op: Operation) -> int:
    """Bytes of the bins."""
    return starts([i32], padded_shape(shape_of(op.results[0].type))[0])[-1]


@emits(HistogramOp)
def emit_histogram(k: Kernel, op: HistogramOp) -> None:
    """Counts in shared memory; values outside of the bins are not counted."""
    f, layout, (bins,) = k.f, layout_of(op.src), shape_of(op.result.type)
    room = Room(k, k.scratch(op), i32)
    _zero(k, room, padded_shape((bins,))[0])
    f.barrier()
    values, inside = k.tile(op.src), k.inside(op.src.type)
    masks = k.tile(op.mask) if op.mask is not None else [const(I1, 1)] * len(values)
    owns = k.owns(layout)
    for register in k.owned_registers(layout):
        value = values[register]
        counted = f.and_(f.and_(owns, f.and_(inside[register], masks[register])), f.icmp("ult", value, bins))
        place = room.address(Place(f.cast("trunc", value, I32)))
        f.ptx("@$2 red.shared.add.u32 [$0], $1;", "l,r,b", [place, const(I32, 1), counted])
    f.barrier()
    result = layout_of(op.result)
    t = k.element(op.result)
    columns = {dim: result.columns_of(dim) for dim in POSITION}
    counts = [room.get(place) for place in positions(k, columns, range(result.in_sizes["register"]))]
    k.set(op.result, [f.cast("trunc" if t.bits < 32 else "zext", count, t) for count in counts])


def _zero(k: Kernel, room: Room, count: int) -> None:
    """Zero in the first `count` places, each thread some of them."""
    f, threads = k.f, WARP * k.num_warps
    for start in range(0, count, threads):
        with f.if_(f.icmp("ult", k.thread, count - start) if count - start < threads else const(I1, 1)):
            room.put(Place(k.thread, start), const(I32, 0))


__all__ = ["emit_gather", "emit_histogram", "flipped_position", "plan_within_warp"]
