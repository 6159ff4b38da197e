"""`tt.gather` and `tt.histogram`: element selection by index, and counting.

A gather reads `src` at a computed position along one dimension, as `torch.gather` does. A histogram
counts how often each value 0 to n-1 occurs; values outside are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import UnitAttr, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ir.asm import (
    FlatOp,
    make,
    parse_operand_list,
    parse_signature,
    print_attrs,
    print_operands,
    print_signature,
    resolve,
)
from tilewright.ir.attrs import I32, UNIT
from tilewright.ir.traits import Collective
from tilewright.ir.types import element_type, i1, i32, i64, is_integer, shape_of, tile_type, with_element
from tilewright.ops import vjps
from tilewright.ops.broadcast import broadcast_to_shape
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.memory import expect, padded
from tilewright.ops.reduce import checked_axis
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register
from tilewright.ops.values import Operand, Size, tensor, unwrap


@irdl_op_definition
class GatherOp(FlatOp):
    """result[.., i, ..] = src[.., indices[.., i, ..], ..] along `axis`."""

    name = "tt.gather"
    ATTRS: ClassVar = {"axis": I32, "efficient_layout": UNIT}
    src = operand_def()
    indices = operand_def()
    result = result_def()
    axis = prop_def()
    efficient_layout = opt_prop_def(UnitAttr)
    traits = traits_def(Pure(), Collective(computes=False))

    @classmethod
    def parse(cls, parser: Parser) -> GatherOp:
        src = parser.parse_unresolved_operand()
        with parser.in_square_brackets():
            indices = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        inputs, outputs = parse_signature(parser)
        return make(cls, resolve(parser, [src, indices], inputs), outputs, attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.src)
        with printer.in_square_brackets():
            printer.print_operand(self.indices)
        print_attrs(printer, self)
        printer.print_string(" : ")
        print_signature(printer, self.operand_types, self.result_types)


@irdl_op_definition
class HistogramOp(FlatOp):
    """How often each value from 0 to the number of bins occurs, where the optional mask holds."""

    name = "tt.histogram"
    src = operand_def()
    masked = var_operand_def()
    result = result_def()
    traits = traits_def(Pure(), Collective())

    @property
    def mask(self) -> SSAValue | None:
        return self.operands[1] if len(self.operands) > 1 else None

    @classmethod
    def parse(cls, parser: Parser) -> HistogramOp:
        operands = parse_operand_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        types = [source, with_element(source, i1)][: len(operands)]
        return make(cls, resolve(parser, operands, types), [result], attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_operands(printer, self.operands)
        print_attrs(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.src.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


def _infer_gather(call: Call) -> Sequence[Attribute]:
    src, indices = call.operand_types
    assert src is not None and indices is not None
    axis, wanted, have = call.attrs["axis"], shape_of(src), shape_of(indices)
    if not is_integer(element_type(indices)) or element_type(indices) == i1:
        raise DTypeError(f"indices of gather must be integers, not {element_type(indices)}")
    if len(wanted) != len(have) or not 0 <= axis < len(wanted):
        raise ShapeError(
            f"gather along axis {axis} of {list(wanted)} by indices of shape {list(have)}: ranks must agree"
        )
    for dim, (s, i) in enumerate(zip(wanted, have, strict=True)):
        if dim != axis and s != i:
            raise ShapeError(
                f"index dim {dim} must match the corresponding source dim: {list(have)} and {list(wanted)}"
            )
    return (tile_type(have, element_type(src)),)


def _infer_histogram(call: Call) -> Sequence[Attribute]:
    src, mask = padded(call.operand_types, 2)
    assert src is not None
    if len(shape_of(src)) != 1:
        raise ShapeError(f"histogram only supports 1D input, got {list(shape_of(src))}")
    if element_type(src) not in (i32, i64):
        raise DTypeError(f"histogram counts integers of 32 or 64 bits, not {element_type(src)}")
    expect("mask of tt.histogram", mask, with_element(src, i1))
    (result,) = call.result_types
    if len(shape_of(result)) != 1 or not is_integer(element_type(result)):
        raise ShapeError(f"histogram gives a 1D tile of integers, not {result}")
    return call.result_types


def _reference_gather(call: Call, src: Array, indices: Array) -> Array:
    axis = call.attrs["axis"]
    inside = np.clip(indices, 0, src.shape[axis] - 1)
    return np.take_along_axis(src, inside.astype(np.int64), axis=axis)


def _reference_histogram(call: Call, src: Array, mask: Array | None = None) -> Array:
    (bins,) = shape_of(call.result_types[0])
    counted = (src >= 0) & (src < bins)
    if mask is not None:
        counted &= mask
    return np.bincount(src[counted], minlength=bins).astype(np.int32)


def _samples_gather(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, out, axis in (((16,), (16,), 0), ((4, 8), (4, 16), 1), ((8, 4), (2, 4), 0), ((2, 4, 8), (2, 2, 8), 1)):
        values = rng.standard_normal(shape).astype(np.float32)
        indices = rng.integers(0, shape[axis], out).astype(np.int32)
        yield Sample((values, indices), (tile_type(shape, f32), tile_type(out, i32)), {"axis": axis})
    zeros = np.zeros((4, 8), np.float32)
    other = np.zeros((2, 8), np.int32)
    yield Sample((zeros, other), (tile_type((4, 8), f32), tile_type((2, 8), i32)), {"axis": 1}, error="must match")
    yield Sample((zeros, zeros), (tile_type((4, 8), f32), tile_type((4, 8), f32)), {"axis": 1}, error="integers")


def _samples_histogram(rng: np.random.Generator) -> Iterable[Sample]:
    for size, bins in ((64, 16), (32, 2), (256, 32)):
        values = rng.integers(-3, bins + 3, size).astype(np.int32)
        result = (tile_type((bins,), i32),)
        yield Sample((values,), (tile_type((size,), i32),), result_types=result)
        mask = rng.integers(0, 2, size).astype(bool)
        types = (tile_type((size,), i32), tile_type((size,), i1))
        yield Sample((values, mask), types, result_types=result)
    zeros = np.zeros((4, 8), np.int32)
    yield Sample((zeros,), (tile_type((4, 8), i32),), result_types=(tile_type((4,), i32),), error="1D input")


register(
    OpSpec(
        GatherOp,
        _infer_gather,
        _reference_gather,
        _samples_gather,
        summary="select elements by index",
        vjp=vjps.gather,
    )
)
register(
    OpSpec(
        HistogramOp,
        _infer_histogram,
        _reference_histogram,
        _samples_histogram,
        summary="count how often each value occurs",
    )
)


# --- user functions -------------------------------------------------------------------------------------------------


@builtin(method=True)
def gather(b: Emitter, src: Operand, index: Operand, axis: Size) -> tensor:
    """Elements of `src` at positions `index` along `axis`.

    Args:
        src: a tile.
        index: integer tile of the same rank; its other dimensions are those of `src`. Values must be in range.
        axis: the dimension that `index` selects in.

    Returns:
        A tile of the shape of `index` with the data type of `src`.

    Example:
        >>> tl.gather(tl.arange(10, 14), 3 - tl.arange(0, 4), 0)
        [13 12 11 10]
    """
    src, index = to_tensor(b, src), to_tensor(b, index)
    if not isinstance(src.dtype, dtypes.dtype) or not isinstance(index.dtype, dtypes.dtype) or not index.dtype.is_int():
        raise LanguageTypeError(f"index must be an integer tensor, got {index.type}")
    if len(src.block_shape) != len(index.block_shape) or not src.block_shape:
        raise ShapeError(f"source and index tensors must have the same rank, got {src.type} and {index.type}")
    number = checked_axis(axis, len(src.block_shape), "gather")
    return b.emit(GatherOp, BlockType(src.dtype, index.block_shape), src, index, axis=number)


@builtin(method=True)
def histogram(b: Emitter, input: Operand, num_bins: Size, mask: Operand | None = None) -> tensor:
    """How often each value 0 to `num_bins` - 1 occurs in `input`.

    Args:
        input: tile of one dimension, of 32-bit or 64-bit integers.
        num_bins: number of bins, a compile-time integer.
        mask: count only the elements where it holds.

    Returns:
        A tile int32[num_bins].

    Example:
        >>> tl.histogram(tl.arange(0, 8) // 2, 4, mask=tl.arange(0, 8) < 7)
        [2 2 2 1]
    """
    input, bins = to_tensor(b, input), unwrap(num_bins)
    if len(input.block_shape) != 1:
        raise ShapeError(f"histogram only supports 1D input, got {input.type}", hint="flatten it with tl.ravel")
    if not input.dtype.is_int():
        raise DTypeError(f"histogram only supports integer input, got {input.type}", hint="cast it with .to(tl.int32)")
    if not isinstance(bins, int) or bins < 1:
        raise LanguageValueError(f"num_bins must be a positive compile-time integer, got {bins}")
    if unwrap(mask) is not None:
        mask = broadcast_to_shape(b, to_tensor(b, mask), input.block_shape)
        if mask.dtype != dtypes.int1:
            raise LanguageTypeError("Mask must have boolean scalar type")
    else:
        mask = None
    return b.emit(HistogramOp, BlockType(dtypes.int32, (bins,)), input, mask)
