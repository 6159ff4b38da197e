"""Contraction: where `x * y + z` is rounded once. One rule, for the pass and for the interpreter.

A sum or difference of floats takes in a product that is one of its operands as it stands, however often the
product is used elsewhere, unless a branch or loop of run time began or ended between the two. Of two products it takes
the later one.

    x * y + z, z + x * y     fma(x, y, z)
    x * y - z                fma(x, y, -z)
    z - x * y                fma(-x, y, z)

f16 and bf16 too: a GPU has their multiply-add, and a CPU makes it exactly of f32 (`backends/llvm/elementwise.py`).
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute

from tilewright.ir.types import element_type, scalar_type
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.elementwise import AddFOp, MulFOp, SubFOp

_FUSED = tuple(scalar_type(name) for name in ("f16", "bf16", "f32", "f64"))
BOUNDARIES = (ForOp, IfOp, WhileOp)
"""Operations at which products are rounded: what is computed before them, inside, and behind them stays apart."""


def is_product(kind: type[Any], result: Attribute) -> bool:
    """Whether an operation of this class and result makes what a sum may take in."""
    return kind is MulFOp and element_type(result) in _FUSED


def is_sum(kind: type[Any], result: Attribute) -> bool:
    """Whether an operation of this class and result may take a product in."""
    return kind in (AddFOp, SubFOp) and element_type(result) in _FUSED


def taken(left: int | None, right: int | None) -> int | None:
    """Number of the operand that a sum takes in.

    Args:
        left, right: when each operand was made, if it is a product that may be taken.
    """
    if left is None or right is None:
        return 0 if left is not None else 1 if right is not None else None
    return 0 if left > right else 1


def signs(kind: type[Any], number: int) -> tuple[bool, bool]:
    """Whether the product, and what it is added to, change their signs where a sum takes operand `number`."""
    return (kind is SubFOp and number == 1, kind is SubFOp and number == 0)
