"""What a loop takes of a multiprocessor's units: cycles of tensor cores, and of the units of special functions."""

from __future__ import annotations

import math

from xdsl.ir import Operation

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.tgir.ops import WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import MemDescType, memdesc_shape, memory_bits
from tilewright.ir.types import element_type, shape_of
from tilewright.ir.walk import every, walk
from tilewright.ops.math import OPS

_CYCLE_BYTES = 4096  # of products of one row and one column that the tensor cores of a multiprocessor make in a cycle
# CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions": results of a multiprocessor in a cycle.
_FUNCTIONS = 16
_SPECIAL = tuple(OPS[name] for name in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt"))


def product_cycles(dot: WarpGroupDotOp) -> int:
    """What the tensor cores of a multiprocessor take for a product."""
    assert isinstance(dot.b.type, MemDescType)
    depth, columns = memdesc_shape(dot.b.type)
    return shape_of(dot.d.type)[0] * columns * depth * memory_bits(element_type(dot.b.type.tile)) // 8 // _CYCLE_BYTES


def function_cycles(loop: Operation) -> float:
    """What the units of special functions of a multiprocessor take for an iteration of a loop."""
    return sum(math.prod(shape_of(op.results[0].type)) for op in walk(loop) if isinstance(op, _SPECIAL)) / _FUNCTIONS


def products_of_a_function(loop: Operation) -> float:
    """How many times as long as on exponentials and the like a loop works on its products."""
    functions = function_cycles(loop)
    return sum(map(product_cycles, every(loop, WarpGroupDotOp))) / functions if functions else math.inf


def cycles_apart(loop: Operation, groups: int) -> int:
    """By how many cycles groups of warps that run a loop side by side should start after each other; 0 if together.

    Two that start together come to their exponentials together, while the tensor cores wait, and to their products.
    """
    if groups != 2 or products_of_a_function(loop) > tuning.STAGGERED_PRODUCTS:
        return 0
    return round(function_cycles(loop) * tuning.STAGGER)


__all__ = ["cycles_apart", "product_cycles", "products_of_a_function"]
