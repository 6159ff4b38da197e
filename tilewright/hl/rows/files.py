"""The filled table: importing this file imports every file that has rows or recipes."""

from __future__ import annotations

from tilewright.hl.rows import creation, pointwise, products, recipes, recipes_math, reductions, shapes
from tilewright.hl.rows.table import RECIPES, ROWS

FILES = (creation, pointwise, products, recipes, recipes_math, reductions, shapes)

__all__ = ["FILES", "RECIPES", "ROWS"]
