"""The `tl.math` namespace: the mathematical functions, as they are in `tl` itself, and two of libdevice's."""

from __future__ import annotations

from tilewright.language.extra.libdevice import FUNCTIONS
from tilewright.ops.math import (
    abs,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)

tanh, pow = FUNCTIONS["tanh"], FUNCTIONS["pow"]

__all__ = [
    "abs", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "maximum",
    "minimum", "pow", "rsqrt", "sin", "sqrt", "sqrt_rn", "tanh", "umulhi",
]  # fmt: skip
