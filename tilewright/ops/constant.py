"""`arith.constant`: numbers, tiles of one number, and (read from text only) tiles of many.

A splat keeps a single number whatever its shape, so that constants are cheap to build, compare and print.
Text is MLIR's: six significant digits when they give the number back, else nine or seventeen, else hexadecimal bits.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, FloatData, IntAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, Pure

from tilewright.base import minifloat
from tilewright.base.errors import DTypeError, ShapeError
from tilewright.ir.attrs import Codec
from tilewright.ir.op import TileOp
from tilewright.ir.types import bit_width, dtype_of, element_type, is_float, is_integer, shape_of
from tilewright.ops import facts
from tilewright.ops.dims import made
from tilewright.ops.elementwise_base import tile
from tilewright.ops.elementwise_reference import from_bits
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register

Number = bool | int | float
_INFINITE = {"fp16", "bf16", "fp32", *(n for n, fmt in minifloat.FORMATS.items() if fmt.inf_code is not None)}


# --- attributes ---------------------------------------------------------------------------------------------


def normalise(value: Number, element: Attribute) -> Number:
    """`value` as an element of type `element` holds it: integers wrap to signed, floats are rounded, i1 is a bool."""
    if is_integer(element):
        bits = bit_width(element)
        if bits == 1:
            return bool(int(value) & 1)
        wrapped = int(value) & ((1 << bits) - 1)
        return wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped
    name = dtype_of(element).name
    if name == "fp64":
        return float(value)
    if name == "fp32" and abs(value) < 3.4e38:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    if math.isinf(value) and name in _INFINITE:
        return float(value)
    return float(minifloat.round_to(np.float64(value), dtype_of(element)))


@functools.lru_cache(maxsize=4096)
def _attribute(bits: bytes | int, element: Attribute) -> Attribute:
    if isinstance(bits, int):
        return IntegerAttr.new((IntAttr(bits), element))
    # `new` keeps the value as it is: the constructor would round f8E4M3B11FNUZ with the bias of its name.
    return FloatAttr.new((FloatData(struct.unpack("<d", bits)[0]), element))


def number_attribute(value: Number, element: Attribute) -> Attribute:
    """Interned attribute of a number; keyed by bits, so that 0.0 and -0.0 stay apart."""
    held = normalise(value, element)
    if not isinstance(held, float):
        # MLIR keeps a true i1 as the signed integer -1.
        return _attribute(-int(held) if isinstance(held, bool) else held, element)
    return _attribute(struct.pack("<d", held), element)


def _decode(attribute: Attribute | None) -> Any:
    if isinstance(attribute, IntegerAttr):
        value = int(attribute.value.data)
        return bool(value) if bit_width(attribute.type) == 1 else value
    if isinstance(attribute, FloatAttr):
        return float(attribute.value.data)
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        element = attribute.type.element_type
        raw = np.array(attribute.get_values()).reshape(attribute.get_shape())
        return raw.astype(dtype_of(element).work_dtype)
    return None


# --- numbers as text ----------------------------------------------------------------------------------------


def float_bits(value: float, element: Attribute) -> int:
    """Bit pattern of a float of type `element`."""
    type_ = dtype_of(element)
    memory = np.asarray(minifloat.to_memory(np.asarray(value, dtype=type_.work_dtype), type_))
    return int(memory.view(f"uint{type_.primitive_bitwidth}"))


def number_text(value: Number, element: Attribute) -> str:
    """`value` as MLIR writes an element of type `element`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        # Six significant digits, padded to the width of seven.
        short = "0e".join(f"{value:.5e}".split("e"))
        if normalise(float(short), element) == value:
            return short
        digits = f"{value:.{17 if dtype_of(element).name == 'fp64' else 9}g}"
        if "." in digits and normalise(float(digits), element) == value:
            return digits.replace("e", "E")
    return f"0x{float_bits(value, element):0{bit_width(element) // 4}X}"


def _parse_number(parser: Parser) -> tuple[Number, bool]:
    """A number and whether it was written in hexadecimal."""
    for word, value in (("true", True), ("false", False)):
        if parser.parse_optional_keyword(word) is not None:
            return value, False
    start = parser.pos
    number = parser.parse_number()
    text = parser.lexer.input.content[start : parser.pos].strip()
    return number, text.lower().startswith("0x")


def _as_element(number: Number, hexadecimal: bool, element: Attribute) -> Number:
    """Hexadecimal text of a float is its bits."""
    if hexadecimal and is_float(element):
        bits = np.asarray(int(number), dtype=f"uint{bit_width(element)}")
        return float(from_bits(bits, element))
    return number


# --- the op -------------------------------------------------------------------------------------------------


@irdl_op_definition
class ConstantOp(TileOp):
    """``arith.constant 1 : i32`` or ``arith.constant dense<0.000000e+00> : tensor<8xf32>``."""

    name = "arith.constant"
    ATTRS: ClassVar[Mapping[str, Codec]] = {"value": Codec(lambda v: v, _decode)}
    result = result_def()
    value = prop_def()
    traits = traits_def(Pure(), ConstantLike())

    @classmethod
    def of(cls, value: Number, type_: Attribute) -> ConstantOp:
        """A constant of IR type `type_`, every element `value`."""
        return cls.create(result_types=[type_], properties={"value": number_attribute(value, element_type(type_))})

    @classmethod
    def build_op(
        cls,
        operands: Sequence[SSAValue | Sequence[SSAValue]],
        result_types: Sequence[Attribute],
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[Any] = (),
    ) -> ConstantOp:
        """As `TileOp.build_op`; `value` is a number or an array of the result's shape."""
        (type_,), value = result_types, (attrs or {})["value"]
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            return cls.of(value if isinstance(value, (bool, int, float)) else value.item(), type_)
        make: Any = DenseIntOrFPElementsAttr.from_list
        dense = make(type_, value.ravel().tolist())
        return cls.create(result_types=[type_], properties={"value": dense})

    @property
    def splat_value(self) -> Number | None:
        """The number that every element is; ``None`` for a tile of different numbers."""
        value: Any = _decode(self.properties["value"])
        if not isinstance(value, np.ndarray):
            return cast("Number | None", value)
        numbers = value.ravel()
        first: Number = numbers[0].item()
        return first if numbers.tobytes() == numbers[:1].tobytes() * numbers.size else None  # 0.0 is not -0.0

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        type_, attribute = self.results[0].type, self.properties["value"]
        element, value = element_type(type_), _decode(attribute)
        if isinstance(value, np.ndarray):
            text = f"dense<{_nested(value.tolist(), element)}>"
        else:
            text = number_text(value, element)
            text = f"dense<{text}>" if shape_of(type_) else text
        printer.print_string(f" {text}")
        if not isinstance(value, bool) or shape_of(type_):
            printer.print_string(" : ")
            printer.print_attribute(type_)

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        attributes = parser.parse_optional_attr_dict()
        if parser.parse_optional_keyword("dense") is None:
            number, hexadecimal = _parse_number(parser)
            if isinstance(number, bool):
                op = cls.of(number, tile("i1", ()))
            else:
                parser.parse_punctuation(":")
                type_ = parser.parse_type()
                op = cls.of(_as_element(number, hexadecimal, type_), type_)
        else:
            op = cls._parse_dense(parser)
        op.attributes.update(attributes)
        return op

    @classmethod
    def _parse_dense(cls, parser: Parser) -> ConstantOp:
        parser.parse_punctuation("<")
        numbers, shape = _parse_nested(parser)
        parser.parse_punctuation(">")
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        element = element_type(type_)
        if not shape:
            return cls.of(_as_element(*numbers[0], element), type_)
        if shape != shape_of(type_):
            parser.raise_error(f"dense literal of shape {shape} for {type_}")
        values = [normalise(_as_element(*n, element), element) for n in numbers]
        return cls.build_op((), (type_,), {"value": np.array(values).reshape(shape)})


def _nested(values: Any, element: Attribute) -> str:
    if isinstance(values, list):
        return f"[{', '.join(_nested(v, element) for v in values)}]"
    return number_text(values, element)


def _parse_nested(parser: Parser) -> tuple[list[tuple[Number, bool]], tuple[int, ...]]:
    """Numbers of a dense literal in row-major order, and its shape; () for a splat."""
    parts = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_nested(parser))
    if parts is None:
        return [_parse_number(parser)], ()
    return [n for numbers, _ in parts for n in numbers], (len(parts), *(parts[0][1] if parts else ()))


# --- meaning ------------------------------------------------------------------------------------------------


def _infer(call: Call) -> tuple[Attribute]:
    (type_,) = call.result_types
    element, value = element_type(type_), call.attrs["value"]
    if not is_integer(element) and not is_float(element):
        raise DTypeError(f"arith.constant makes numbers, not {type_}")
    if isinstance(value, np.ndarray) and value.shape not in ((), shape_of(type_)):
        raise ShapeError(f"arith.constant of shape {value.shape} for {type_}")
    if is_integer(element) and isinstance(value, float):
        raise DTypeError(f"arith.constant {value} for {type_}")
    return (type_,)


def _reference(call: Call) -> Array:
    type_ = call.result_types[0]
    value = np.asarray(call.attrs["value"])
    if value.ndim == 0:
        held = normalise(value.item(), element_type(type_))
        return np.full(shape_of(type_), held, dtype=dtype_of(element_type(type_)).work_dtype)
    return value.astype(dtype_of(element_type(type_)).work_dtype)


def _transfer(op: Any, args: Any) -> facts.AxisFacts:
    value = op.splat_value
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return facts.of_constant(value, op.results[0].type) if is_whole else facts.lanewise(op, args)


def _samples(rng: np.random.Generator) -> list[Sample]:
    numbers: list[tuple[Number, str]] = [
        (0, "i32"), (-1, "i8"), (2**31 - 1, "i32"), (-(2**63), "i64"), (True, "i1"), (False, "i1"),
        (0.0, "f32"), (-0.0, "f32"), (1.44269504, "f32"), (0.1, "f64"), (1e-40, "f32"), (1e300, "f64"),
        (math.inf, "f32"), (-math.inf, "bf16"), (math.nan, "f16"), (0.1, "bf16"), (0.1, "f16"), (1e-7, "bf16"),
        (448.0, "f8E4M3FN"), (0.3, "f8E5M2"), (1.75, "f8E4M3B11FNUZ"),
    ]  # fmt: skip
    out = [Sample((), (), {"value": v}, (tile(name, ()),)) for v, name in numbers]
    out += [Sample((), (), {"value": v}, (tile(name, (4, 2)),)) for v, name in numbers]
    many = rng.standard_normal((2, 4)).astype(np.float32)
    out.append(Sample((), (), {"value": many}, (tile("f32", (2, 4)),)))
    out.append(Sample((), (), {"value": rng.integers(-9, 9, 4).astype(np.int64)}, (tile("i64", (4,)),)))
    out.append(Sample((), (), {"value": many}, (tile("f32", (4,)),), error="of shape"))
    out.append(Sample((), (), {"value": 1.5}, (tile("i32", ()),), error="arith.constant 1.5"))
    return out


register(
    OpSpec(
        ConstantOp,
        _infer,
        _reference,
        _samples,
        _transfer,
        summary="a number, or a tile of numbers known at compile time",
        dims=lambda op: made(op) if op.splat_value is not None else None,
    )
)
