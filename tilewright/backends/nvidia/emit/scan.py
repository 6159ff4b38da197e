"""`tt.scan`: running combinations along a dim, from the fastest bits of its index to the slowest.

Each bit of the index along the axis selects a register, a lane or a warp. Bits of one kind that follow each other are
a level; a level takes the total of every block below it and gives each block what comes before it, and the total of
all of them:

    registers:  a running total, one block after the other
    lanes:      running totals by shuffles (Sklansky's network), then one shuffle from the lane before
    warps:      totals through scratch; barrier; every warp joins those before it

An element is then what comes before its block on all levels, joined once, and its run inside the first level. A scan
from the end counts blocks backwards. A layout whose bits are mixed is converted to a blocked one first.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.backends.llvm.types import I1, V, const
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.convert import conversion_bytes, convert_registers
from tilewright.backends.nvidia.emit.partial import (
    Combiner,
    Partial,
    Shelf,
    common_layout,
    elements,
    moved,
    ragged_bounds,
    shelf_bytes,
)
from tilewright.backends.nvidia.emit.scratch import POSITION, Columns, axis_bits, positions
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.ir.types import shape_of
from tilewright.layouts.distributed import default_blocked
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.ops.scan import ScanOp

Blocks = dict[int, Partial]  # by their first register

# --- the plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Level:
    """Neighbouring bits of the index along the axis that select the same kind of thing.

    Args:
        kind: "register", "lane" or "warp".
        bits: masks of that index, the fastest first.
        below: bits of the axis' index that are faster.
    """

    kind: str
    bits: tuple[int, ...]
    below: int

    @property
    def mask(self) -> int:
        """All of them."""
        return sum(self.bits)

    def spread(self, number: int) -> int:
        """The index of block `number`."""
        return sum(bit for i, bit in enumerate(self.bits) if number >> i & 1)


@functools.lru_cache(maxsize=1024)
def plan_scan(layout: LinearLayout, axis: int) -> tuple[Level, ...] | None:
    """The levels, the first of them in registers (maybe of no bits); None if the bits of the axis are mixed.

    Args:
        layout: of the tile.
        axis: the dim.
    """
    bits = axis_bits(layout, axis)
    if bits is None:
        return None
    levels = [Level("register", (), 0)]
    for number, (kind, mask) in enumerate(bits):
        if levels[-1].kind == kind:
            levels[-1] = Level(kind, (*levels[-1].bits, mask), levels[-1].below)
        else:
            levels.append(Level(kind, (mask,), number))
    return tuple(levels)


def _canonical(layout: LinearLayout, axis: int) -> LinearLayout:
    """A blocked layout of the same tile, neighbours along the axis in one thread."""
    shape = tuple(layout.out_sizes.values())
    order = (axis, *(dim for dim in reversed(range(len(shape))) if dim != axis))
    return default_blocked(shape, layout.in_sizes["warp"], order, 4)


# --- emission -----------------------------------------------------------------------------------------


@scratch(ScanOp)
def scan_scratch(op: ScanOp) -> int:
    """Bytes of the totals of all warps, or of a conversion, which comes before or after."""
    layout, working, levels = _plan_of(op)
    types = [operand.type for operand in op.operands]
    totals = sum(_totals_bytes(op, level) for level in levels if level.kind == "warp")
    pairs = [(layout, working), (working, layout)] if layout != working else []
    return max(totals, *(conversion_bytes(*pair, t) for pair in pairs for t in types), 0)


@emits(ScanOp)
def emit_scan(k: Kernel, op: ScanOp) -> None:
    """An inclusive scan of any number of tiles by any body."""
    layout, working, levels = _plan_of(op)
    made = [k.tile(operand) for operand in op.operands]
    if working != layout:
        made = _converted(k, op, made, layout, working)
    made = _Scan(k, op, working, levels).run(made)
    if working != layout:
        made = _converted(k, op, made, working, layout)
    for result, registers in zip(op.results, made, strict=True):
        k.set(result, registers)


def _plan_of(op: ScanOp) -> tuple[LinearLayout, LinearLayout, tuple[Level, ...]]:
    """The layout of operands and results, the one in which to scan, and the levels of that."""
    axis, layout = int(op.attr_values()["axis"]), common_layout(op)
    levels = plan_scan(layout, axis)
    if levels is not None:
        return layout, layout, levels
    working = _canonical(layout, axis)
    levels = plan_scan(working, axis)
    assert levels is not None
    return layout, working, levels


def _converted(
    k: Kernel, op: ScanOp, tiles: Sequence[Tile], source: LinearLayout, destination: LinearLayout
) -> list[Tile]:
    """Tiles in another layout, through the operation's scratch one after the other."""
    room, made = k.scratch(op) if op in k.scratch_offsets else None, []
    for registers, operand in zip(tiles, op.operands, strict=True):
        k.f.barrier()
        made.append(convert_registers(k, registers, source, destination, k.element(operand), room))
    k.f.barrier()
    return made


def _bounds(op: ScanOp, layout: LinearLayout) -> tuple[int, ...] | None:
    """Where elements are absent: padding comes last, where nothing depends on it, unless the scan starts from there."""
    attrs = op.attr_values()
    axis = int(attrs["axis"])
    return ragged_bounds(layout, axis, shape_of(op.operands[0].type)[axis]) if attrs["reverse"] else None


def _totals_places(op: ScanOp, level: Level) -> int:
    """Blocks of the padded tile whose totals a level of warps exchanges."""
    return prod(padded_shape(shape_of(op.operands[0].type))) >> level.below


def _totals_bytes(op: ScanOp, level: Level) -> int:
    flagged = _bounds(op, common_layout(op)) is not None
    return shelf_bytes([operand.type for operand in op.operands], _totals_places(op, level), flagged)


class _Scan:
    """One scan under emission.

    Args:
        k: the kernel.
        op: the scan.
        layout: of the tiles that `run` takes and gives.
        levels: its plan.
    """

    def __init__(self, k: Kernel, op: ScanOp, layout: LinearLayout, levels: Sequence[Level]) -> None:
        attrs = op.attr_values()
        self.k, self.op, self.layout, self.levels = k, op, layout, levels
        self.axis, self.reverse = int(attrs["axis"]), bool(attrs["reverse"])
        self.combiner = Combiner(k, op.combine.block)
        self.types = [operand.type for operand in op.operands]
        self.bounds = _bounds(op, layout)
        self.nothing = self.combiner.absent(self.types)
        self.used = 0  # bytes of scratch

    def run(self, tiles: Sequence[Tile]) -> list[Tile]:
        """The registers of the results from those of the operands."""
        first, *rest = self.levels
        parts = elements(self.k, self.layout, tiles, self.bounds)
        runs: Blocks = {}
        totals: Blocks = {}
        for block in self._blocks(first, len(parts)):
            running = self.nothing
            for register in self._members(first, block):
                runs[register] = running = self.combiner.join(running, parts[register])
            totals[block] = running
        before = self._before(rest, totals)
        made = [self.combiner.join(before[r & ~first.mask], runs[r]) for r in range(len(parts))]
        return [list(registers) for registers in zip(*(part.values for part in made), strict=True)]

    def _before(self, levels: Sequence[Level], totals: Blocks) -> Blocks:
        """What comes before each block, from the totals of the blocks below the first of some levels."""
        if not levels:
            return dict.fromkeys(totals, self.nothing)
        level, *rest = levels
        emit = {"register": self._registers, "lane": self._lanes, "warp": self._warps}[level.kind]
        inner, higher = emit(level, totals, last=not rest)
        mask = level.mask if level.kind == "register" else 0
        outer = self._before(rest, higher)
        return {block: self.combiner.join(outer[block & ~mask], part) for block, part in inner.items()}

    # -- the levels: what comes before each block, and the totals of all (unused on the last level) --------

    def _registers(self, level: Level, totals: Blocks, last: bool) -> tuple[Blocks, Blocks]:
        before: Blocks = {}
        higher: Blocks = {}
        for block in [block for block in totals if not block & level.mask]:
            running = self.nothing
            for member in self._members(level, block):
                before[member] = running
                running = self.combiner.join(running, totals[member])
            higher[block] = running
        return before, higher

    def _lanes(self, level: Level, totals: Blocks, last: bool) -> tuple[Blocks, Blocks]:
        f, lane, flip = self.k.f, self.k.lane, level.mask if self.reverse else 0
        index, below = f.xor(lane, flip), 0
        for bit in level.bits:
            source = f.xor(f.and_(f.or_(index, below), ~bit), flip)
            upper = f.icmp("ne", f.and_(index, bit), 0)
            arrived = self._from_lane(totals, source, upper)
            joined = self.combiner.join_all(list(arrived.values()), list(totals.values()))
            totals = dict(zip(totals, joined, strict=True))
            below |= bit
        previous = f.xor(f.or_(f.and_(index, ~level.mask), self._decremented(level, index)), flip)
        follows = f.icmp("ne", f.and_(index, level.mask), 0)
        before = self._from_lane(totals, previous, follows)
        if last:
            return before, totals
        end = f.xor(f.or_(index, level.mask), flip)
        return before, self._from_lane(totals, end, const(I1, 1))

    def _decremented(self, level: Level, index: V) -> V:
        """The lane bits of the block before that of `index`."""
        f = self.k.f
        if list(level.bits) == sorted(level.bits):  # a borrow passes over the bits between
            return f.and_(f.sub(f.and_(index, level.mask), 1), level.mask)
        number = const(index.type, 0)
        for i, bit in enumerate(level.bits):
            number = f.or_(number, f.shl(f.and_(f.lshr(index, bit.bit_length() - 1), 1), i))
        number, total = f.sub(number, 1), const(index.type, 0)
        for i, bit in enumerate(level.bits):
            total = f.or_(total, f.shl(f.and_(f.lshr(number, i), 1), bit.bit_length() - 1))
        return total

    def _from_lane(self, totals: Blocks, lane: V, wanted: V) -> Blocks:
        """What another lane has, absent unless `wanted` (i1)."""
        f = self.k.f
        arrived = moved(self.k, list(totals.values()), lambda value: f.shuffle_index(value, lane))
        return {
            block: Partial(part.values, f.and_(part.present, wanted))
            for block, part in zip(totals, arrived, strict=True)
        }

    def _warps(self, level: Level, totals: Blocks, last: bool) -> tuple[Blocks, Blocks]:
        k, count = self.k, _totals_places(self.op, level)
        shelf = Shelf(k, k.f.shared_at(k.scratch(self.op), self.used), self.types, count, self.bounds is not None)
        self.used += _totals_bytes(self.op, level)
        columns, rows = self._places(level), count >> len(level.bits)
        for place, total in zip(positions(k, columns, list(totals)), totals.values(), strict=True):
            shelf.put(place, total)
        k.f.barrier()
        row_mask = rows - 1
        read = {dim: [column & row_mask for column in columns[dim]] for dim in POSITION}
        own = k.f.and_(k.warp, level.mask)
        before: Blocks = {}
        higher: Blocks = {}
        for place, block in zip(positions(k, read, list(totals)), totals, strict=True):
            inner = running = self.nothing
            for number in self._numbers(level):
                here = k.f.icmp("eq", own, level.spread(number))
                inner = self.combiner.choose(here, running, inner)
                running = self.combiner.join(running, shelf.get(place.plus(number * rows)))
            before[block], higher[block] = inner, running
        return before, higher

    def _places(self, level: Level) -> Columns:
        """Where a total lies: the number of its block on this level above, the rest of its coordinates below."""
        bits, axis_bits = len(level.bits), dict(self.layout.outs)[f"dim{self.axis}"]
        above = axis_bits - level.below - bits
        names = list(self.layout.out_sizes)
        along = self.layout.sublayout(POSITION, [names[self.axis]])
        rest = self.layout.sublayout(POSITION, [name for name in names if name != names[self.axis]])
        high = above + sum(width for _, width in rest.outs)
        return {
            dim: [
                (a >> level.below & (1 << bits) - 1) << high | r << above | a >> level.below + bits
                for a, r in zip(along.columns_of(dim), rest.columns_of(dim), strict=True)
            ]
            for dim in POSITION
        }

    # -- order -----------------------------------------------------------------------------------------

    def _numbers(self, level: Level) -> list[int]:
        numbers = list(range(1 << len(level.bits)))
        return numbers[::-1] if self.reverse else numbers

    def _members(self, level: Level, block: int) -> list[int]:
        """Registers of a block's members on a level of registers, in the order of the scan."""
        return [block | level.spread(number) for number in self._numbers(level)]

    def _blocks(self, level: Level, registers: int) -> list[int]:
        return [r for r in range(registers) if not r & level.mask]


__all__ = ["Level", "emit_scan", "plan_scan", "scan_scratch"]
