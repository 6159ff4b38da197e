"""What kernels call as `hl.name(...)`: loops over tiles, and functions on tiles that PyTorch does not have."""

from __future__ import annotations

from tilewright.hl.language.creation import arange, full, zeros
from tilewright.hl.language.loops import grid, jagged_tile, static_range, tile
from tilewright.hl.language.memory import load, store
from tilewright.hl.language.tiles import tile_begin, tile_block_size, tile_end, tile_id, tile_index
from tilewright.hl.trace.tiles import Tile

__all__ = [
    "Tile",
    "arange",
    "full",
    "grid",
    "jagged_tile",
    "load",
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
