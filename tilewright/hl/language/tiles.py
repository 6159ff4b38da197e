"""The attributes of tiles as functions."""

from __future__ import annotations

from typing import Any

from tilewright.hl import exc
from tilewright.hl.trace.tiles import Tile


def _tile(tile: Any) -> Tile:
    if not isinstance(tile, Tile):
        raise exc.IncorrectTileUsage(f"{tile!r} is no tile")
    return tile


def tile_index(tile: Tile) -> Any:
    """The indices of a tile: `tile.index`."""
    return _tile(tile).index


def tile_begin(tile: Tile) -> Any:
    """The first index of a tile: `tile.begin`."""
    return _tile(tile).begin


def tile_end(tile: Tile) -> Any:
    """The index behind the last of a tile: `tile.end`."""
    return _tile(tile).end


def tile_block_size(tile: Tile) -> Any:
    """The size of a tile: `tile.block_size`."""
    return _tile(tile).block_size


def tile_id(tile: Tile) -> Any:
    """The number of a tile in its range: `tile.id`."""
    return _tile(tile).id


def tile_count(tile: Tile) -> Any:
    """How many tiles its range has: `tile.count`."""
    return _tile(tile).count
