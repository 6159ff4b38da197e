"""Shared-memory layouts: maps from (offset, block) to tile coordinates, offsets counted in elements.

Row-major, XOR-swizzled with (vec, per_phase, max_phase), and the 128/64/32-byte swizzles that the copy engine writes
and wgmma reads (PTX ISA, "Tensor Swizzling Modes" and "Shared Memory Matrix Layout"); all of them are invertible, so
``layout.invert_and_compose(shared)`` gives the offset of every register of every thread. Padding is not linear: it is
a row-major map and a rule for addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.layouts.distributed import dim_names, grid, row_major_order
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import IntArray, LinearLayout, log2
from tilewright.layouts.padding import padded_shape

# Width in bytes -> alignment that the base of a buffer needs, since the pattern is one of address bits.
SWIZZLE_ALIGNMENT = {128: 1024, 64: 512, 32: 256, 16: 128}
_CHUNK = 16  # bytes that every hardware swizzle keeps together
_LINE = 128  # bytes of all banks: the swizzles take their row number from the address bits above


def row_major(shape: Sequence[int], order: Sequence[int] | None = None) -> LinearLayout:
    """Elements in `order` (dims, the fastest first; the last dim is the fastest if not given)."""
    shape = padded_shape(shape)
    layout = grid("offset", shape, row_major_order(len(shape)) if order is None else order)
    return layout * LinearLayout.zeros(1, "block", "dim0")


def swizzled(
    shape: Sequence[int], vec: int, per_phase: int, max_phase: int, order: Sequence[int] | None = None
) -> LinearLayout:
    """Rows whose vectors are permuted: the vector at column c of row r is stored at column ``c ^ phase(r)``.

    Args:
        shape: the tile, of two dims or more.
        vec: elements of a vector, which stay together.
        per_phase: neighbouring rows that share a phase.
        max_phase: number of phases; phase(r) is ``r / per_phase % max_phase`` (modulo the vectors of a row).
        order: dims, the fastest (the columns) first, the rows second.
    """
    shape = padded_shape(shape)
    order = row_major_order(len(shape)) if order is None else order
    rows, columns = log2(shape[order[1]]), log2(shape[order[0]])
    first, vec_bits = log2(per_phase), log2(vec)
    flips = [0] * columns
    for row in range(rows):
        bit = row - first + vec_bits
        flips.append(1 << bit if 0 <= row - first < log2(max_phase) and bit < columns else 0)
    return _flipped(flips, shape, order)


def hardware_swizzled(
    shape: Sequence[int], element_bits: int, swizzle_bytes: int, order: Sequence[int] | None = None
) -> LinearLayout:
    """The layout that a tensor copy with a swizzle mode leaves behind and that wgmma reads.

    The tile is cut into panels `swizzle_bytes` wide along the fast dim, each stored whole, row after row, one panel
    after another. Within a panel bits 4 to 6 of the byte address are exclusive-ored with bits 7 to 9 (64 bytes: bits
    4, 5 with 7, 8; 32 bytes: bit 4 with 7). Width 16 is the mode without swizzle: core matrices of 8 rows by 16 bytes
    in one piece. The buffer must be aligned to ``SWIZZLE_ALIGNMENT[swizzle_bytes]``.

    Args:
        shape: the tile; all dims but the fast one count as rows.
        element_bits: 8, 16, 32 or 64.
        swizzle_bytes: 128, 64, 32 or 16.
        order: dims, the fastest first.
    """
    if swizzle_bytes not in SWIZZLE_ALIGNMENT or element_bits not in (8, 16, 32, 64):
        raise LayoutError(f"no swizzle of {swizzle_bytes} bytes for elements of {element_bits} bits")
    shape = padded_shape(shape)
    order = row_major_order(len(shape)) if order is None else order
    scale = log2(element_bits // 8)
    width = log2(swizzle_bytes) - scale
    fast = log2(shape[order[0]])
    if fast < width:
        raise LayoutError(
            f"rows of {shape[order[0]]} elements of {element_bits} bits are narrower than {swizzle_bytes} bytes"
        )
    chunk, line = log2(_CHUNK) - scale, log2(_LINE) - scale
    count = sum(log2(size) for size in shape)
    phases = log2(swizzle_bytes // _CHUNK)
    flips = [1 << i - line + chunk if 0 <= i - line < phases else 0 for i in range(count)]
    # Flat bits from the order (panel column, rows, panel number) to (column, rows).
    rows = count - fast
    plain = [1 << i for i in range(width)] + [1 << fast + i for i in range(rows)] + [1 << i for i in range(width, fast)]
    swizzle = LinearLayout((("offset", count),), (("offset", count),), tuple(1 << i ^ f for i, f in enumerate(flips)))
    panels = LinearLayout((("offset", count),), (("offset", count),), tuple(plain))
    return _with_block(swizzle.compose(panels).compose(_flat(shape, order)))


def widest_swizzle(shape: Sequence[int], element_bits: int, order: Sequence[int] | None = None) -> int:
    """The widest hardware swizzle, in bytes, whose panels a row of the tile fills.

    Raises:
        LayoutError: a row is narrower than 16 bytes.
    """
    shape = padded_shape(shape)
    row = shape[len(shape) - 1 if order is None else order[0]] * element_bits // 8
    if row < min(SWIZZLE_ALIGNMENT):
        raise LayoutError(f"rows of {row} bytes are narrower than the 16 bytes that every swizzle keeps together")
    return max(width for width in SWIZZLE_ALIGNMENT if width <= row)


@dataclass(frozen=True, slots=True)
class PaddedShared:
    """A row-major layout with a gap after every `interval` elements.

    Args:
        layout: offset -> coordinates, without the gaps.
        interval: elements between gaps, a power of two.
        padding: elements of a gap.
    """

    layout: LinearLayout
    interval: int
    padding: int

    @property
    def size(self) -> int:
        """Elements to allocate."""
        last = self.layout.in_sizes["offset"] - 1
        return last + last // self.interval * self.padding + 1

    def position(self, offset: NDArray[np.integer]) -> IntArray:
        """Where the element of a linear offset lies; a vector within one interval stays in one piece."""
        offset = np.asarray(offset, np.int64)
        return offset + (offset >> log2(self.interval)) * self.padding


def padded(
    shape: Sequence[int], padding: int, interval: int | None = None, order: Sequence[int] | None = None
) -> PaddedShared:
    """Row-major with `padding` elements after every `interval` (a row, if not given)."""
    layout = row_major(shape, order)
    fast = len(shape) - 1 if order is None else order[0]
    return PaddedShared(layout, interval or padded_shape(shape)[fast], padding)


def _flipped(flips: Sequence[int], shape: Sequence[int], order: Sequence[int]) -> LinearLayout:
    """Offset bit i also flips the low bits ``flips[i]`` (an involution, as those flip nothing)."""
    count = sum(log2(size) for size in shape)
    columns = tuple(1 << i ^ (flips[i] if i < len(flips) else 0) for i in range(count))
    flip = LinearLayout((("offset", count),), (("offset", count),), columns)
    return _with_block(flip.compose(_flat(shape, order)))


def _flat(shape: Sequence[int], order: Sequence[int]) -> LinearLayout:
    return grid("offset", shape, order).transpose(outs=dim_names(len(shape)))


def _with_block(layout: LinearLayout) -> LinearLayout:
    return layout * LinearLayout.zeros(1, "block", "dim0")
