"""Spellings for tiles of which only a part exists: a row of a tile of rows, a part of a row."""

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

SHORT: list[Spelling] = []
_SHORT = "*fp32:16, *fp32:16, i32, i32, 32, 1024"


@spelled(SHORT, _SHORT)
def tile_of_rows(x_ptr, y_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (i[:, None] < rows) & (j[None, :] < n)
    x = tl.load(x_ptr + i[:, None] * n + j[None, :], inside, -float("inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(y_ptr + i[:, None] * n + j[None, :], e / tl.sum(e, 1)[:, None], inside)


@spelled(SHORT, _SHORT)
def chosen_rows(x_ptr, y_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Bounds the other way around, chosen instead of masked."""
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    missing = (i >= rows) | (n <= j)
    x = tl.where(missing, -float("inf"), tl.load(x_ptr + i * n + j, ~missing))
    e = tl.exp(x - tl.max(x, 1, keep_dims=True))
    tl.store(y_ptr + i * n + j, e / tl.sum(e, 1, keep_dims=True), mask=~missing)


@spelled(SHORT, _SHORT)
def activation_of_rows(x_ptr, y_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Nothing but loads and stores."""
    i, j = (
        tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None],
        tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :],
    )
    x = tl.load(x_ptr + i * n + j, (i < rows) & (j < n))
    tl.store(y_ptr + i * n + j, x * tl.sigmoid(x), (i < rows) & (j < n))
