"""All families of operations: importing this file fills the registry and defines every user function."""

from __future__ import annotations

from xdsl.ir import Attribute

from tilewright.ops import (
    atomic,
    broadcast,
    casts,
    check,
    constant,
    control,
    creation,
    debug,
    descriptor,
    dot,
    elementwise,
    elementwise_pointer,
    function,
    gather,
    math,
    math_extern,
    memory,
    program,
    promise,
    reduce,
    scan,
    shape,
)
from tilewright.ops.functions import atomic as atomic_functions
from tilewright.ops.functions import block_pointer, dot_scaled, operators, subscript, tensor_descriptor
from tilewright.ops.functions import debug as debug_functions
from tilewright.ops.functions import memory as memory_functions
from tilewright.ops.functions import shape as shape_functions

FAMILIES = (
    atomic, atomic_functions, block_pointer, broadcast, casts, check, constant, control, creation, debug,
    debug_functions, descriptor, dot, dot_scaled, elementwise, elementwise_pointer, function, gather, math, math_extern,
    memory, memory_functions, operators, program, promise, reduce, scan, shape, shape_functions, subscript,
    tensor_descriptor,
)  # fmt: skip

# Types and attributes with a text form of their own, beside the pointer type.
ATTRIBUTES: tuple[type[Attribute], ...] = (memory.CachePolicyAttr, descriptor.TensorDescType)
