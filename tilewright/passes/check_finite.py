"""Checks behind operations on floats: none makes a NaN of numbers, or an infinity of what is finite.

A NaN that an operand brings, and the infinities with which masks fill, are no fault of the operation. Of a product of
matrices, a reduction or a scan all elements of the operands are asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from xdsl.ir import Operation, SSAValue

from tilewright.ir.traits import collective_of
from tilewright.ir.types import (
    bit_width,
    element_type,
    i32,
    i64,
    is_float,
    scalar_type,
    shape_of,
    tile_type,
    with_element,
)
from tilewright.ir.values import is_tile
from tilewright.ir.walk import walk
from tilewright.ops.casts import BitcastOp, ExtFOp, ExtUIOp, FpToFpOp
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.elementwise import AndIOp, OrIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.spec import REGISTRY
from tilewright.passes.check_code import Code

_EXPONENT = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000}
"""The bits of an infinity, by name of the type."""
_MOVES = ("select", "bitcast", "negf", "absf", "minnumf", "maxnumf", "minimumf", "maximumf")


def float_operations(kernel: FuncOp) -> Iterator[Operation]:
    """Operations of a kernel that may make a NaN or an infinity."""
    for op in walk(kernel):
        parent, spec = op.parent_op(), REGISTRY.get(op.name)
        computes = spec is not None and bool(spec.elementwise) and not op.name.endswith(_MOVES)
        stands = isinstance(parent, FuncOp | ForOp | IfOp | WhileOp)
        if stands and (computes or _computes_across(op)) and any(map(_is_known, op.results)) and op.operands:
            yield op


def _computes_across(op: Operation) -> bool:
    """Whether elements of the results are computed from elements at other places."""
    collective = collective_of(type(op))
    return collective is not None and collective.computes


def _is_known(value: SSAValue) -> bool:
    return str(element_type(value.type)) in _EXPONENT


def check_results(code: Code, op: Operation, new_site: Callable[[SSAValue], int]) -> None:
    """Behind an operation: each result that is no number comes from an operand that is none."""
    across = _computes_across(op)
    operands = [_widened(code, operand) for operand in op.operands if is_float(element_type(operand.type))]
    for result in filter(_is_known, op.results):
        made = [_made(code, result, operands, kind, across=across) for kind in (_is_nan, _is_infinite)]
        shown = [] if across else [_bits_of_f64(code, code.like(v, result)) for v in operands[:2]]
        code.check(new_site(result), code.negated(code.either(*made)), shown)


def _widened(code: Code, value: SSAValue) -> SSAValue:
    """A float of 8 bits as one of 32, whose infinities and NaN are told alike for all formats."""
    if _is_known(value):
        return value
    wide = with_element(value.type, scalar_type("f32"))
    return code.make(FpToFpOp, wide, value)


Kind = Callable[[Code, SSAValue], SSAValue]


def _made(code: Code, result: SSAValue, operands: Sequence[SSAValue], kind: Kind, *, across: bool) -> SSAValue:
    """Where a result is of a kind of which no operand is."""
    found = kind(code, result)
    flags = [kind(code, operand) for operand in operands]
    if not flags:
        return found
    had = reduce(code.either, [_anywhere(code, flag) for flag in flags] if across else flags)
    return code.both(found, code.negated(code.like(had, found)))


def _magnitude(code: Code, value: SSAValue) -> tuple[SSAValue, int]:
    """The bits of a float without its sign, and those of an infinity."""
    element = element_type(value.type)
    bits = with_element(value.type, scalar_type(f"i{bit_width(element)}"))
    whole = code.make(BitcastOp, bits, value)
    mask = (1 << bit_width(element) - 1) - 1
    return code.op(AndIOp, whole, code.number(mask, whole.type)), _EXPONENT[str(element)]


def _is_nan(code: Code, value: SSAValue) -> SSAValue:
    bits, infinity = _magnitude(code, value)
    return code.compare("sgt", bits, code.number(infinity, bits.type))


def _is_infinite(code: Code, value: SSAValue) -> SSAValue:
    """Or no number at all: an infinity may come from either."""
    bits, infinity = _magnitude(code, value)
    return code.compare("sge", bits, code.number(infinity, bits.type))


def _anywhere(code: Code, flags: SSAValue) -> SSAValue:
    """Whether a flag of a tile is set."""
    if not is_tile(flags):
        return flags
    line = code.viewed(code.cast(ExtUIOp, flags, i32), tile_type((math.prod(shape_of(flags.type)),), i32))
    found = code.reduced(OrIOp, line, 0)
    return code.compare("ne", found, code.number(0, i32))


def _bits_of_f64(code: Code, value: SSAValue) -> SSAValue:
    """A float as the bits of one of 64, for a record."""
    if bit_width(element_type(value.type)) < 64:
        value = code.cast(ExtFOp, value, scalar_type("f64"))
    return code.cast(BitcastOp, value, i64)
