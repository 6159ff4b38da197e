"""`tt.dot`: matrix product of two tiles plus an accumulator, with a choice of precision for f32 operands.

Tiles have two dimensions, or three with a batch dimension first. Products and sums are made in the
accumulator's type; their order is free. `ieee` multiplies f32 operands as they are; `tf32` may first round
them to 10 bits of mantissa; the other precisions split operands into several narrower ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base import dtypes
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.base.minifloat import round_to
from tilewright.base.options import INPUT_PRECISIONS
from tilewright.ir.asm import FlatOp, make, print_attrs, print_operands, resolve, word
from tilewright.ir.attrs import I32, Codec
from tilewright.ir.traits import Collective
from tilewright.ir.types import dtype_of, element_type, is_float, scalar_type, shape_of, tile_type
from tilewright.ops import vjps
from tilewright.ops.broadcast import checked_block
from tilewright.ops.builtin import Emitter, builtin
from tilewright.ops.casts import cast_to
from tilewright.ops.dims import Dims
from tilewright.ops.functions.shape import reshape_to
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register
from tilewright.ops.values import Element, Operand, tensor, unwrap

PRECISION = word("ieee")
# Zero means "as precise as the accumulator" and is left out of the text.
COUNT = Codec(lambda v: I32.encode(v or None), lambda a: 0 if a is None else I32.decode(a))


@irdl_op_definition
class DotOp(FlatOp):
    """d = a @ b + c for tiles [M, K], [K, N], [M, N], or the same with a batch dimension in front."""

    name = "tt.dot"
    ATTRS: ClassVar = {"inputPrecision": PRECISION, "maxNumImpreciseAcc": COUNT}
    a = operand_def()
    b = operand_def()
    c = operand_def()
    d = result_def()
    inputPrecision = opt_prop_def()
    maxNumImpreciseAcc = opt_prop_def()
    traits = traits_def(Pure(), Collective())

    @classmethod
    def parse(cls, parser: Parser) -> DotOp:
        operands = [parser.parse_unresolved_operand()]
        for _ in range(2):
            parser.parse_punctuation(",")
            operands.append(parser.parse_unresolved_operand())
        properties: dict[str, Attribute] = {}
        if parser.parse_optional_punctuation(",") is not None:
            parser.parse_keyword("inputPrecision")
            parser.parse_punctuation("=")
            properties["inputPrecision"] = StringAttr(parser.parse_identifier())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        a_type = parser.parse_type()
        parser.parse_punctuation("*")
        b_type = parser.parse_type()
        parser.parse_punctuation("->")
        d_type = parser.parse_type()
        return make(cls, resolve(parser, operands, [a_type, b_type, d_type]), [d_type], attributes, properties)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_operands(printer, self.operands)
        if isinstance(self.inputPrecision, StringAttr):
            printer.print_string(f", inputPrecision = {self.inputPrecision.data}")
        print_attrs(printer, self, ("inputPrecision",))
        for text, type_ in zip((" : ", " * ", " -> "), (self.a.type, self.b.type, self.d.type), strict=True):
            printer.print_string(text)
            printer.print_attribute(type_)


# --- type rules -----------------------------------------------------------------------------------------------

_ACCUMULATORS = {"i8": ("i32",), "f16": ("f32", "f16"), "bf16": ("f32",), "f32": ("f32",), "f64": ("f64",)}
_FP8_ACCUMULATORS = ("f32", "f16")


def accumulators(element: Attribute) -> tuple[str, ...]:
    """IR names of the accumulator types that operands of type `element` allow."""
    dtype = dtype_of(element)
    return _FP8_ACCUMULATORS if dtype.is_fp8() else _ACCUMULATORS.get(dtype.ir_name, ())


def _infer_dot(call: Call) -> Sequence[Attribute]:
    a, b, c = call.operand_types
    assert a is not None and b is not None and c is not None
    shapes = [shape_of(t) for t in (a, b, c)]
    check_shapes(shapes[0], shapes[1])
    wanted = (*shapes[0][:-1], shapes[1][-1])
    if shapes[2] != wanted:
        raise ShapeError(f"tt.dot needs an accumulator of shape {list(wanted)}, got {list(shapes[2])}")
    a_type, b_type = element_type(a), element_type(b)
    if a_type != b_type and not (dtype_of(a_type).is_fp8() and dtype_of(b_type).is_fp8()):
        raise DTypeError(f"Both operands must be same dtype. Got {a_type} and {b_type}")
    if not accumulators(a_type):
        raise DTypeError(f"Unsupported lhs dtype {a_type}")
    if element_type(c) not in [scalar_type(name) for name in accumulators(a_type)]:
        raise DTypeError(
            f"tt.dot of {a_type} accumulates in {' or '.join(accumulators(a_type))}, not {element_type(c)}"
        )
    return (c,)


def check_shapes(lhs: Sequence[int], rhs: Sequence[int]) -> None:
    """Raise `ShapeError` unless `lhs` @ `rhs` is a product of matrices or of equal batches of them."""
    if len(lhs) != len(rhs) or len(lhs) not in (2, 3):
        raise ShapeError(
            f"Both inputs must be either 2D or 3D; (lhs: {list(lhs)} vs rhs: {list(rhs)})",
            hint="insert a dimension with x[:, None] or x[None, :]",
        )
    if lhs[-1] != rhs[-2]:
        raise ShapeError(
            f"First input shape ({list(lhs)}) and second input shape {list(rhs)} are not compatible for matmul "
            f"(second index of first shape ({lhs[-1]}) must be equal to first index of second shape ({rhs[-2]})",
            hint="transpose one operand with tl.trans",
        )
    if lhs[:-2] != rhs[:-2]:
        raise ShapeError(f"batch dimensions of dot differ: {list(lhs)} and {list(rhs)}")


# --- reference --------------------------------------------------------------------------------------------------


def _reference_dot(call: Call, a: Array, b: Array, c: Array) -> Array:
    """Exact products summed in float64, rounded once; int8 sums are exact and wrap."""
    product = np.matmul(a.astype(np.float64), b.astype(np.float64))
    if not is_float(element_type(call.result_types[0])):
        return np.asarray((product.astype(np.int64) + c).astype(np.int32))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((product + c).astype(c.dtype))


def _samples_dot(rng: np.random.Generator) -> Iterable[Sample]:
    """All terms are positive, so that a bound in ulp holds whatever the order of the sum."""
    cases = [("f32", "f32", 16), ("f64", "f64", 16), ("f16", "f32", 16), ("f16", "f16", 4), ("bf16", "f32", 16)]
    for (m, n, k), batch in (((16, 16, 16), ()), ((8, 32, 4), ()), ((1, 16, 32), ()), ((8, 8, 8), (2,))):
        shapes = ((*batch, m, k), (*batch, k, n), (*batch, m, n))
        for operand, acc, ulp in cases:
            elements = [scalar_type(operand), scalar_type(operand), scalar_type(acc)]
            arrays = [
                round_to(rng.uniform(0.5, 1.5, shape), dtype_of(element))
                for shape, element in zip(shapes, elements, strict=True)
            ]
            types = [tile_type(shape, element) for shape, element in zip(shapes, elements, strict=True)]
            yield Sample(tuple(arrays), tuple(types), {"inputPrecision": "ieee"}, max_ulp=ulp)
        i8, i32 = scalar_type("i8"), scalar_type("i32")
        ints = [rng.integers(-128, 128, s).astype(t) for s, t in zip(shapes, (np.int8, np.int8, np.int32), strict=True)]
        yield Sample(tuple(ints), tuple(tile_type(s, t) for s, t in zip(shapes, (i8, i8, i32), strict=True)))
    f32 = scalar_type("f32")
    zeros = np.zeros((4, 8), np.float32)
    bad = tile_type((4, 8), f32)
    yield Sample((zeros, zeros, zeros), (bad, bad, bad), error="not compatible for matmul")


def _dims(op: DotOp) -> Dims:
    """Rows of A and columns of B are those of the sum."""
    *batch, rows, columns = range(len(shape_of(op.d.type)))
    summed = columns + 1
    both = (*batch, rows, columns)
    return Dims(((*batch, rows, summed), (*batch, summed, columns), both), (both,), frozenset((summed,)))


register(
    OpSpec(DotOp, _infer_dot, _reference_dot, _samples_dot, summary="matrix product of tiles", vjp=vjps.dot, dims=_dims)
)


# --- user function ------------------------------------------------------------------------------------------------


def _precision(b: Emitter, lhs: tensor, input_precision: Any, allow_tf32: Any) -> str:
    """The precision asked for, or the default of the target."""
    input_precision, allow_tf32 = unwrap(input_precision), unwrap(allow_tf32)
    if input_precision is not None and allow_tf32 is not None:
        raise LanguageValueError(
            "Only one of input_precision and allow_tf32 can be specified", hint="allow_tf32 is the deprecated one"
        )
    if input_precision is None and allow_tf32 is not None:
        input_precision = "tf32" if allow_tf32 else "ieee"
    if input_precision is None:
        return b.options.default_dot_input_precision if lhs.dtype == dtypes.float32 else "ieee"
    name = input_precision.lower() if isinstance(input_precision, str) else input_precision
    if name not in INPUT_PRECISIONS:
        raise LanguageValueError(f"input_precision must be one of {INPUT_PRECISIONS}. Got {input_precision}")
    return str(name)


def _result_dtype(lhs: tensor, rhs: tensor, acc: tensor | None, out_dtype: Element) -> dtypes.dtype:
    """Type of the accumulator: fixed by the operands, save that f16 and 8-bit floats leave a choice."""
    left, right = lhs.dtype, rhs.dtype
    for side, dtype in (("lhs", left), ("rhs", right)):
        known = isinstance(dtype, dtypes.dtype) and (dtype.is_floating() or dtype in (dtypes.int8, dtypes.uint8))
        if not known:
            raise DTypeError(f"Unsupported {side} dtype {dtype}", hint="cast it, e.g. x.to(tl.float16)")
    if left != right and not (left.is_fp8() and right.is_fp8()):
        raise DTypeError(
            f"Both operands must be same dtype. Got {left} and {right}", hint="cast one of them with .to()"
        )
    if left == dtypes.uint8:
        raise DTypeError("only int8 supported!", hint="cast the operands to tl.int8 or to a float type")
    if out_dtype == dtypes.bfloat16:
        raise DTypeError(
            "out_dtype=bfloat16 is unsupported. Please use out_dtype=float32/float16 and cast with `.to(tl.bfloat16)`"
        )
    if left == dtypes.int8:
        return dtypes.int32
    if left in (dtypes.bfloat16, dtypes.float32):
        return dtypes.float32
    if left == dtypes.float64:
        return dtypes.float64
    wanted: Any = out_dtype or (acc.dtype if acc is not None else dtypes.float32)
    return dtypes.float16 if wanted == dtypes.float16 else dtypes.float32


def _flattened(b: Emitter, lhs: tensor, rhs: tensor, acc: Any, options: tuple[Any, ...]) -> tensor:
    """A product with several batch dimensions, as one with a single batch dimension."""
    batch = lhs.block_shape[:-2]
    if rhs.block_shape[:-2] != batch or (acc is not None and acc.block_shape[:-2] != batch):
        sides = [lhs, rhs] if acc is None else [lhs, rhs, acc]
        raise ShapeError(f"batch dimensions of dot differ: {' and '.join(str(list(s.block_shape)) for s in sides)}")
    flat = [None if x is None else reshape_to(b, x, (math.prod(batch), *x.block_shape[-2:])) for x in (lhs, rhs, acc)]
    made = dot.fn(b, *flat, *options)
    return reshape_to(b, made, (*batch, *made.block_shape[-2:]))


def _without_e4b15(b: Emitter, x: tensor) -> tensor:
    """No unit multiplies fp8e4b15: such operands are widened to float16, which holds them exactly."""
    return cast_to(b, x, dtypes.float16) if x.dtype == dtypes.float8e4b15 else x


def _operand(name: str, value: Operand) -> tensor:
    if not isinstance(value, tensor):
        raise LanguageTypeError(f"{name} of tl.dot must be a tile, not {value!r}")
    return value


@builtin
def dot(
    b: Emitter,
    input: Operand,
    other: Operand,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Element | None = None,
) -> tensor:
    """Matrix product of two tiles: ``input @ other (+ acc)``.

    Args:
        input: tile [M, K], or [..., M, K] with batch dimensions.
        other: tile [K, N], or [..., K, N], of the same data type (8-bit floats may differ).
        acc: accumulator [M, N] or [..., M, N] in the result's type; zero when absent.
        input_precision: for f32 operands "ieee", "tf32", "tf32x3", "bf16x3" or "bf16x6"; default is an option. On a CPU
            all products are exact, infinities and NaN included, but those of f32 on AMX: 2**-10 off with "tf32" (exact
            for operands rounded to 11 bits), 2**-15 with "bf16x3". A sum of K is off by at most 4K 2**-24 of the
            magnitudes of its terms. AMX takes numbers below 2**-126 as zero, parts of split f32 included.
        allow_tf32: deprecated alias, True for "tf32" and False for "ieee".
        max_num_imprecise_acc: how many products a GPU may add in reduced precision (8-bit floats).
        out_dtype: float16 or float32 where the operands are float16 or 8-bit floats.

    Returns:
        int8 gives int32; bf16 and f32 give f32; f64 gives f64; f16 and 8-bit floats give `out_dtype`,
        else the type of `acc`, else f32.

    Raises:
        ShapeError: the shapes are not those of a product. DTypeError: operand or accumulator types do not fit.

    Example:
        >>> tl.ravel(tl.dot(tl.full((2, 2), 3.0, tl.float32), tl.full((2, 2), 2.0, tl.float32)))
        [12. 12. 12. 12.]
    """
    acc = unwrap(acc)
    input, other = _operand("input", input), _operand("other", other)
    batch = input.block_shape[:-2]
    if len(batch) > 1:
        return _flattened(b, input, other, acc, (input_precision, allow_tf32, max_num_imprecise_acc, out_dtype))
    input, other = (_without_e4b15(b, side) for side in (input, other))
    check_shapes(input.block_shape, other.block_shape)
    result = _result_dtype(input, other, acc, unwrap(out_dtype))
    precision = _precision(b, input, input_precision, allow_tf32)
    shape = (*input.block_shape[:-1], other.block_shape[-1])
    type_ = checked_block(result, shape)
    if acc is None:
        acc = b.constant(0 if result == dtypes.int32 else 0.0, type_)
    elif acc.type != type_:
        raise DTypeError(
            f"expected accumulator dtype {type_}, got {acc.type}",
            hint=f"make it with tl.zeros({list(shape)}, {result!r})",
        )
    count = unwrap(max_num_imprecise_acc)
    depth = input.block_shape[-1]
    if count is not None and count > depth:
        raise LanguageValueError(f"max_num_imprecise_acc ({count}) must be <= K ({depth})")
    return b.emit(DotOp, type_, input, other, acc, inputPrecision=precision, maxNumImpreciseAcc=count)
