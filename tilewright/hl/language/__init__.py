"""What kernels call as `hl.name(...)`: loops over tiles, and functions on tiles that PyTorch does not have."""

from __future__ import annotations

from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.language.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
)
from tilewright.hl.language.creation import arange, full, zeros
from tilewright.hl.language.loops import grid, jagged_tile, static_range, tile
from tilewright.hl.language.memory import load, store
from tilewright.hl.language.products import dot
from tilewright.hl.language.tiles import tile_begin, tile_block_size, tile_end, tile_id, tile_index
from tilewright.hl.language.tunables import barrier, register_block_size, specialize
from tilewright.hl.trace.tiles import Tile

constexpr = ConstExpr

__all__ = [
    "ConstExpr",
    "Tile",
    "arange",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "barrier",
    "constexpr",
    "dot",
    "full",
    "grid",
    "jagged_tile",
    "load",
    "register_block_size",
    "specialize",
    "static_range",
    "store",
    "tile",
    "tile_begin",
    "tile_block_size",
    "tile_end",
    "tile_id",
    "tile_index",
    "zeros",
]
