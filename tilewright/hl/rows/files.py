"""The filled table: importing this file imports every file that has rows or recipes."""

from __future__ import annotations

from tilewright.hl.rows import (
    creation,
    functions,
    gather,
    inline,
    pairs,
    pointwise,
    products,
    random,
    recipes,
    recipes_math,
    recipes_nn,
    recipes_reduce,
    recipes_shapes,
    reductions,
    shapes,
)
from tilewright.hl.rows.table import RECIPES, ROWS

FILES = (
    creation,
    functions,
    gather,
    inline,
    pairs,
    pointwise,
    products,
    random,
    recipes,
    recipes_math,
    recipes_nn,
    recipes_reduce,
    recipes_shapes,
    reductions,
    shapes,
)

__all__ = ["FILES", "RECIPES", "ROWS"]
