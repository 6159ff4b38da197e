"""Tiles from nothing: `tt.make_range` and the functions arange, full, zeros, zeros_like, to_tensor.

Constants are `ops/constant.py`; a tile of one number is a constant, a tile of one run-time value a `tt.splat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base import dtypes
from tilewright.base.errors import LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ir.attrs import I32, Codec
from tilewright.ir.op import TileOp
from tilewright.ir.types import i32, tile_type
from tilewright.ops import builtin as core
from tilewright.ops import facts
from tilewright.ops.broadcast import checked_block, splat_to
from tilewright.ops.builtin import Emitter, builtin
from tilewright.ops.casts import cast_to, dtype_hint
from tilewright.ops.dims import made
from tilewright.ops.elementwise_base import finish_parse, parse_attributes, print_types
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register
from tilewright.ops.values import Element, Operand, Size, constexpr, shape_ints, tensor, unwrap

_INT32 = range(-(2**31), 2**31)


@irdl_op_definition
class MakeRangeOp(TileOp):
    """``tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>``: start, start + 1, ... below end."""

    name = "tt.make_range"
    ATTRS: ClassVar[Mapping[str, Codec]] = {"end": I32, "start": I32}
    end = prop_def()
    start = prop_def()
    result = result_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes({**self.properties, **self.attributes})
        print_types(printer, [self.results[0].type], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> MakeRangeOp:
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        return finish_parse(cls, parser, [], [], [parser.parse_type()], attributes)


def _infer(call: Call) -> tuple[Attribute]:
    start, end = call.attrs["start"], call.attrs["end"]
    if end <= start:
        raise ShapeError(f"arange's end argument must be greater than the start argument: {start} to {end}")
    return (tile_type((end - start,), i32),)


def _reference(call: Call) -> Array:
    return np.arange(call.attrs["start"], call.attrs["end"], dtype=np.int32)


def _samples(rng: np.random.Generator) -> list[Sample]:
    ranges = ((0, 8), (3, 7), (-4, 12))
    good = [Sample((), (), {"end": end, "start": start}) for start, end in ranges]
    return [*good, Sample((), (), {"end": 0, "start": 8}, error="greater than the start")]


register(
    OpSpec(
        MakeRangeOp,
        _infer,
        _reference,
        _samples,
        facts.make_range,
        summary="consecutive integers",
        dims=made,
    )
)


# --- language -------------------------------------------------------------------------------------------------


def _bound(value: Size) -> int:
    inner = unwrap(value)
    if isinstance(inner, (float, bool)):
        raise LanguageTypeError(
            f"arange's arguments must be integers, got {inner!r}",
            hint=f"pass an int: {int(inner)}" if inner == inner // 1 else "pass an int; n // 2 divides integers",
        )
    if not isinstance(inner, int) and isinstance(value, constexpr):
        raise LanguageTypeError(f"arange's arguments must be integers, got {inner!r}")
    if not isinstance(inner, int):
        raise LanguageValueError(
            "arange's arguments must be of type tl.constexpr",
            hint="make the size a parameter annotated tl.constexpr; add a run-time start to the result instead",
        )
    return inner


@builtin
def arange(b: Emitter, start: Size, end: Size) -> tensor:
    """Consecutive integers from `start` up to but not including `end`.

    Args:
        start: compile-time integer.
        end: compile-time integer.

    Returns:
        int32 tile of shape ``(end - start,)``.

    Raises:
        ValueError: a bound is not compile-time, the range is empty or too long.

    Example:
        >>> tl.arange(0, 4)
        [0 1 2 3]
    """
    first, last = _bound(start), _bound(end)
    if first not in _INT32 or last not in range(-(2**31), 2**31 + 1):
        raise LanguageValueError("arange must fit in int32")
    if last <= first:
        raise LanguageValueError(
            "arange's end argument must be greater than the start argument",
            hint="it counts upwards: write last - tl.arange(0, n) to count downwards",
        )
    return b.emit(MakeRangeOp, checked_block(dtypes.int32, (last - first,)), end=last, start=first)


def full_tile(b: Emitter, shape: tuple[int, ...], value: int | float | tensor, element: dtypes.dtype) -> tensor:
    """A tile (or, for the shape (), a scalar) with `value`, a number or scalar tensor, in every element.

    Raises:
        LanguageValueError: a fraction for an integer type, or a tensor of more than one element.
    """
    type_ = checked_block(element, shape)
    if isinstance(value, tensor):
        if value.block_shape:
            raise LanguageValueError(
                "only accepts size-1 tensor", hint=f"the value has shape {list(value.block_shape)}; use tl.broadcast_to"
            )
        return splat_to(b, cast_to(b, value, element), shape)
    if element.is_int() and isinstance(value, float) and not value.is_integer():
        raise LanguageValueError(f"cannot fill a tile of {element} with {value}", hint="use a float type or an integer")
    return b.constant(float(value) if element.is_floating() else int(value), type_)


@builtin
def full(b: Emitter, shape: Any, value: Operand, dtype: Element) -> tensor:
    """A tile with `value` in every element.

    Args:
        shape: compile-time integers; () gives a scalar.
        value: number or scalar tensor.
        dtype: element type.

    Returns:
        Tile of `shape` and `dtype`.

    Raises:
        ValueError: a bad shape, or a value that `dtype` cannot hold.

    Example:
        >>> tl.full((4,), 7, tl.int32)
        [7 7 7 7]
    """
    element, number = unwrap(dtype), unwrap(value)
    if element is None:
        raise LanguageValueError(
            "dtype must be specified when value is not a tensor", hint="pass tl.float32, tl.int32, ..."
        )
    if not isinstance(element, dtypes.dtype):
        raise LanguageValueError(
            f"dtype must be a data type such as tl.float32, not {element!r}", hint=dtype_hint(element)
        )
    if not isinstance(number, (bool, int, float, tensor)):
        raise LanguageTypeError(f"tl.full takes a number or a scalar tensor as value, not {number!r}")
    return full_tile(b, shape_ints([shape]), number, element)


@builtin
def zeros(b: Emitter, shape: Any, dtype: Element) -> tensor:
    """A tile of zeros.

    Args:
        shape: compile-time integers.
        dtype: element type.

    Returns:
        Tile of `shape` and `dtype`.

    Raises:
        ValueError: a bad shape.

    Example:
        >>> tl.zeros((2,), tl.float32)
        [0. 0.]
    """
    filled: tensor = full.fn(b, shape, 0, dtype)
    return filled


@builtin
def zeros_like(b: Emitter, input: tensor) -> tensor:
    """A tile of zeros with the shape and type of another.

    Args:
        input: tensor of numbers.

    Returns:
        Zeros of the type of `input`.

    Example:
        >>> tl.zeros_like(tl.arange(0, 4))
        [0 0 0 0]
    """
    if not isinstance(input, tensor):
        raise LanguageTypeError(f"tl.zeros_like takes a tensor, not {input!r}")
    return full_tile(b, input.block_shape, 0, input.dtype)


@builtin
def to_tensor(b: Emitter, x: Operand) -> tensor:
    """A number as a run-time value: bool gives int1, an integer the first of int32, uint32, int64, uint64 that fits.

    Args:
        x: number, compile-time constant, or tensor (returned as it is).

    Returns:
        Scalar tensor.

    Raises:
        TypeError: `x` is not a number.

    Example:
        >>> tl.to_tensor(3)
        3
    """
    return core.to_tensor(b, x)


__all__ = ["MakeRangeOp", "arange", "constexpr", "full", "full_tile", "to_tensor", "zeros", "zeros_like"]
