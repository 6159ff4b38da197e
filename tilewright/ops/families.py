"""All families of operations: importing this file fills the registry and defines every user function."""

from __future__ import annotations

from xdsl.ir import Attribute

from tilewright.ops import (
    atomic,
    atomic_functions,
    block_pointer,
    broadcast,
    casts,
    constant,
    control,
    creation,
    debug,
    debug_functions,
    descriptor,
    dot,
    dot_scaled,
    elementwise,
    elementwise_pointer,
    function,
    gather,
    math,
    math_extern,
    memory,
    memory_functions,
    operators,
    program,
    reduce,
    scan,
    shape,
    shape_functions,
    subscript,
    tensor_descriptor,
)

FAMILIES = (
    atomic, atomic_functions, block_pointer, broadcast, casts, constant, control, creation, debug, debug_functions,
    descriptor, dot, dot_scaled, elementwise, elementwise_pointer, function, gather, math, math_extern, memory,
    memory_functions, operators, program, reduce, scan, shape, shape_functions, subscript, tensor_descriptor,
)  # fmt: skip

# Types and attributes with a text form of their own, beside the pointer type.
ATTRIBUTES: tuple[type[Attribute], ...] = (memory.CachePolicyAttr, descriptor.TensorDescType)
