"""Conversions between types: the cast ops and `tl.cast` / ``x.to``.

`cast` chooses the op (or short chain of ops) for each pair of types as Triton does: fp8 converts with `tt.fp_to_fp`,
f16 and bf16 reach other types through f32, any type becomes int1 by comparison with zero,
and a change of sign alone is no operation because integers are signless in the IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition, opt_prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from tilewright.base import dtypes
from tilewright.base.dtypes import PointerType, Type, with_shape_of
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ir.types import (
    bit_width,
    element_type,
    i32,
    is_float,
    is_integer,
    is_pointer,
    pointer_type,
    scalar_type,
    shape_of,
    tile_type,
)
from tilewright.ops import elementwise_reference as ref
from tilewright.ops import facts, folds, vjps
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.elementwise import CmpFOp, CmpIOp
from tilewright.ops.elementwise_base import (
    Check,
    ConversionOp,
    ToOp,
    define,
    expect_kind,
    parse_attributes,
    parse_keyword_attribute,
    parse_operands,
    print_operands,
    print_types,
    tile,
    words,
)
from tilewright.ops.elementwise_samples import FLOAT8S, FLOATS, INTEGERS, SIZE, values
from tilewright.ops.functions.target import is_cuda
from tilewright.ops.spec import Call, Infer, NoGradient, OpSpec, Reference, Sample, Samples, Vjp, register
from tilewright.ops.values import tensor, unwrap

Pairs = Sequence[tuple[str, str]]


# --- type rules and samples ------------------------------------------------------------------------------------


def _widths(name: str, source: Attribute, target: Attribute, relation: str) -> None:
    """Raise unless the width of `target` is "wider", "narrower" or "same" as that of `source`."""
    a, b = bit_width(element_type(source)), bit_width(element_type(target))
    if not {"wider": b > a, "narrower": b < a, "same": b == a, "any": True}[relation]:
        wanted = "of the same width" if relation == "same" else relation
        raise DTypeError(f"{name} takes a result type that is {wanted}: {source} does not become {target}")


def _infer_cast(name: str, source_kind: Check, target_kind: Check, relation: str) -> Infer:
    def infer(call: Call) -> tuple[Attribute]:
        source = call.operand_types[0]
        assert source is not None
        if not call.result_types:
            raise DTypeError(f"{name} needs the result type")
        target = call.result_types[0]
        expect_kind(name, source, source_kind)
        if not target_kind(element_type(target)):
            raise DTypeError(f"{name} does not make {target}")
        if shape_of(source) != shape_of(target):
            raise ShapeError(f"{name} keeps the shape: {source} does not become {target}")
        _widths(name, source, target, relation)
        return (target,)

    return infer


def _cast_samples(good: Pairs, bad: tuple[str, str, str], attrs: Sequence[dict[str, Any]] = ({},)) -> Samples:
    """Each (source, target) pair with each set of attributes; `bad` is a pair and the error that it gives."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        out = []
        for source, target in good:
            for extra in attrs:
                operand, types = values(rng, source), (tile(source, (SIZE,)),)
                out.append(Sample((operand,), types, extra, (tile(target, (SIZE,)),)))
        source, target = good[0]
        scalar = np.asarray(values(rng, source)[0])
        out.append(Sample((scalar,), (tile(source, ()),), attrs[0], (tile(target, ()),)))
        wide = (tile(target, (4, 2)),)
        out.append(Sample((values(rng, source, 8),), (tile(source),), attrs[0], wide, error="keeps the shape"))
        source, target, error = bad
        out.append(Sample((values(rng, source, 8),), (tile(source),), attrs[0], (tile(target),), error=error))
        return out

    return samples


def _conversion(
    name: str,
    doc: str,
    kinds: tuple[Check, Check],
    relation: str,
    reference: Reference,
    samples: Samples,
    transfer: facts.Transfer = facts.lanewise,
    fold: folds.Fold | None = None,
    vjp: Vjp | NoGradient | None = None,
    **slots: Any,
) -> type[ConversionOp]:
    cls = define(ToOp, f"arith.{name}", doc)
    infer = _infer_cast(cls.name, *kinds, relation)
    register(OpSpec(cls, infer, reference, samples, transfer, fold, doc, elementwise=name, vjp=vjp, **slots))
    return cls


def _pairs(sources: Sequence[str], targets: Sequence[str], keep: str = "any") -> list[tuple[str, str]]:
    """All pairs of different types whose widths are in the relation `keep`."""

    def fits(a: str, b: str) -> bool:
        x, y = bit_width(scalar_type(a)), bit_width(scalar_type(b))
        return {"wider": y > x, "narrower": y < x, "any": True}[keep]

    return [(a, b) for a in sources for b in targets if a != b and fits(a, b)]


_INT_INT, _INT_FLOAT = (is_integer, is_integer), (is_integer, is_float)
_FLOAT_INT, _FLOAT_FLOAT = (is_float, is_integer), (is_float, is_float)
_WIDEN, _NARROW = _pairs(INTEGERS, INTEGERS, "wider"), _pairs(INTEGERS, INTEGERS, "narrower")

ExtSIOp = _conversion(
    "extsi",
    "Sign extension.",
    _INT_INT,
    "wider",
    ref.extend(ref.signed),
    _cast_samples(_WIDEN, ("i32", "i8", "wider")),
    facts.same,
    ring=lambda value: value,
)
ExtUIOp = _conversion(
    "extui",
    "Zero extension.",
    _INT_INT,
    "wider",
    ref.extend(ref.unsigned),
    _cast_samples(_WIDEN, ("i32", "i8", "wider")),
    facts.zero_extend,
)
TruncIOp = _conversion(
    "trunci", "The low bits.", _INT_INT, "narrower", ref.truncate, _cast_samples(_NARROW, ("i8", "i32", "narrower"))
)
ExtFOp = _conversion(
    "extf",
    "Exact conversion to a wider float.",
    _FLOAT_FLOAT,
    "wider",
    ref.quiet(ref.convert_float),
    _cast_samples(_pairs(FLOATS, FLOATS, "wider"), ("f64", "f32", "wider")),
    vjp=vjps.convert,
)
TruncFOp = _conversion(
    "truncf",
    "Rounding to a narrower float, to nearest even.",
    _FLOAT_FLOAT,
    "narrower",
    ref.quiet(ref.convert_float),
    _cast_samples(_pairs(FLOATS, FLOATS, "narrower"), ("f32", "f64", "narrower")),
    vjp=vjps.convert,
)
SIToFPOp = _conversion(
    "sitofp",
    "Signed integer to float, rounded once.",
    _INT_FLOAT,
    "any",
    ref.integer_to_float(ref.signed),
    _cast_samples(_pairs(INTEGERS, FLOATS), ("f32", "f64", "takes integer")),
    vjp=vjps.constant,
)
UIToFPOp = _conversion(
    "uitofp",
    "Unsigned integer to float, rounded once.",
    _INT_FLOAT,
    "any",
    ref.integer_to_float(ref.unsigned),
    _cast_samples(_pairs(INTEGERS, FLOATS), ("f32", "f64", "takes integer")),
    vjp=vjps.constant,
)
FPToSIOp = _conversion(
    "fptosi",
    "Float to signed integer, toward zero; saturates, NaN is 0.",
    _FLOAT_INT,
    "any",
    ref.float_to_integer("s"),
    _cast_samples(_pairs(FLOATS, INTEGERS[1:]), ("i32", "i8", "takes floating-point")),
    vjp=vjps.constant,
)
FPToUIOp = _conversion(
    "fptoui",
    "Float to unsigned integer, toward zero; saturates, NaN is 0.",
    _FLOAT_INT,
    "any",
    ref.float_to_integer("u"),
    _cast_samples(_pairs(FLOATS, INTEGERS[1:]), ("i32", "i8", "takes floating-point")),
    vjp=vjps.constant,
)

_BITS = [
    ("f32", "i32"),
    ("i32", "f32"),
    ("i16", "bf16"),
    ("bf16", "i16"),
    ("f16", "i16"),
    ("i64", "f64"),
    ("i8", "f8E5M2"),
]
_NUMBER: Check = lambda t: is_integer(t) or is_float(t)  # noqa: E731
_ANY: Check = lambda t: True  # noqa: E731
ArithBitcastOp = _conversion(
    "bitcast",
    "The same bits as another number type.",
    (_NUMBER, _NUMBER),
    "same",
    ref.bit_cast,
    _cast_samples(_BITS, ("i8", "i32", "of the same width")),
    fold=folds.no_change,
    vjp=vjps.BITS,
)

# --- tt casts -------------------------------------------------------------------------------------------------------

_ROUNDINGS: dict[str, Attribute] = {"rtz": IntegerAttr(0, i32), "rtne": IntegerAttr(1, i32)}


@irdl_op_definition
class FpToFpOp(ConversionOp):
    """``tt.fp_to_fp %x, rounding = rtne : T -> U``: between floats, saturating into the 8-bit ones."""

    name = "tt.fp_to_fp"
    rounding = opt_prop_def()

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        word = self.attr_values()["rounding"]
        if word is not None:
            printer.print_string(f", rounding = {word}")
        printer.print_op_attributes(self.attributes)
        print_types(printer, [self.operands[0].type], self.ARROW, [self.results[0].type])

    @classmethod
    def parse(cls, parser: Parser) -> FpToFpOp:
        names = parse_operands(parser, 1)
        word = parse_keyword_attribute(parser, "rounding", _ROUNDINGS)
        attributes = parse_attributes(parser)
        return cls._parse_types(parser, names, {**attributes, "rounding": word} if word is not None else attributes)


FpToFpOp.ATTRS = {"rounding": words(_ROUNDINGS)}
_DOWN = [(a, b) for a in FLOATS for b in FLOAT8S] + [("f32", "f16"), ("f32", "bf16"), ("f64", "bf16")]


def _fp_to_fp_samples(rng: np.random.Generator) -> list[Sample]:
    rounded = _cast_samples(_DOWN, ("i32", "f32", "takes floating-point"), [{"rounding": r} for r in _ROUNDINGS])
    exact = _cast_samples([(b, a) for a in FLOATS for b in FLOAT8S], ("f32", "i32", "does not make"))
    return [*rounded(rng), *exact(rng)]


register(
    OpSpec(
        FpToFpOp,
        _infer_cast("tt.fp_to_fp", is_float, is_float, "any"),
        ref.quiet(ref.convert_float),
        _fp_to_fp_samples,
        facts.lanewise,
        summary="float to float with a stated rounding",
        elementwise="fp_to_fp",
        vjp=vjps.convert,
    )
)


def is_exact(op: Operation) -> bool:
    """Whether an operation is a conversion that loses nothing: every number becomes itself, in a wider type."""
    if isinstance(op, FpToFpOp):
        source, target = (element_type(value.type) for value in (op.operands[0], op.results[0]))
        return bit_width(source) == 8 < bit_width(target)
    return isinstance(op, ExtFOp | ExtSIOp)


BitcastOp = define(ConversionOp, "tt.bitcast", "The same bits as another type of the same width.")
IntToPtrOp = define(ConversionOp, "tt.int_to_ptr", "A 64-bit integer as an address.")
PtrToIntOp = define(ConversionOp, "tt.ptr_to_int", "An address as a 64-bit integer.")
_F32_POINTER = pointer_type(scalar_type("f32"))


def makes_addresses(text: str) -> bool:
    """Whether printed tile IR makes addresses of integers: what they point to is no argument of the kernel."""
    return IntToPtrOp.name in text


def _pointer_samples(source: Attribute, target: Attribute, refused: Attribute) -> Samples:
    def samples(rng: np.random.Generator) -> list[Sample]:
        addresses = rng.integers(0, 1 << 40, 8).astype(np.int64) * 4
        tiles = (tile_type((8,), source),), (tile_type((8,), target),)
        bad = Sample((addresses,), tiles[0], {}, (tile_type((8,), refused),), error="does not")
        return [Sample((addresses,), tiles[0], {}, tiles[1]), bad]

    return samples


def _bitcast_samples(rng: np.random.Generator) -> list[Sample]:
    pointers = _pointer_samples(_F32_POINTER, pointer_type(i32), scalar_type("f32"))(rng)
    return [*_cast_samples(_BITS, ("i8", "i32", "of the same width"))(rng), *pointers]


for _cls, _kinds, _samples in (
    (BitcastOp, (_ANY, _ANY), _bitcast_samples),
    (IntToPtrOp, (is_integer, is_pointer), _pointer_samples(scalar_type("i64"), _F32_POINTER, scalar_type("f32"))),
    (PtrToIntOp, (is_pointer, is_integer), _pointer_samples(_F32_POINTER, scalar_type("i64"), scalar_type("f32"))),
):
    register(
        OpSpec(
            _cls,
            _infer_cast(_cls.name, *_kinds, "same"),
            ref.bit_cast,
            _samples,
            facts.same,
            folds.no_change,
            summary=(_cls.__doc__ or "").lower().rstrip("."),
            elementwise=_cls.name[3:],
            vjp=vjps.BITS,
        )
    )


# --- language ---------------------------------------------------------------------------------------------------------

_NVIDIA_FP8 = ("fp8e5", "fp8e4b15")


def check_fp8(b: Emitter, type_: Any) -> None:
    """Raise `LanguageValueError` if the target does not have the 8-bit float `type_`; other types pass."""
    if not isinstance(type_, dtypes.dtype) or not type_.is_fp8() or not is_cuda(b.target):
        return
    capability = b.target.arch if isinstance(b.target.arch, int) else 0
    supported = (*_NVIDIA_FP8, "fp8e4nv") if capability >= 89 else _NVIDIA_FP8
    if type_.name not in supported:
        raise LanguageValueError(
            f"type {type_} not supported in this architecture. The supported fp8 dtypes are {supported}",
            hint=f"compute capability {capability} has {', '.join(supported)}",
        )


def _not_zero(b: Emitter, x: tensor) -> tensor:
    result = with_shape_of(x.type, dtypes.int1)
    zero = b.constant(0.0 if x.dtype.is_floating() else 0, x.type)
    if x.dtype.is_floating():
        return b.emit(CmpFOp, result, x, zero, predicate="une")
    return b.emit(CmpIOp, result, x, zero, predicate="ne")


def _cast_float(b: Emitter, x: tensor, target: dtypes.dtype, rounding: str | None) -> tensor:
    """Float to anything."""
    source, result = x.dtype, with_shape_of(x.type, target)
    if target.is_floating():
        narrows = target.primitive_bitwidth < source.primitive_bitwidth
        same_width = target.primitive_bitwidth == source.primitive_bitwidth
        if source.is_fp8() or target.is_fp8() or same_width or (rounding == "rtz" and narrows):
            rounds = narrows or (same_width and not source.is_fp8())
            return b.emit(FpToFpOp, result, x, rounding=(rounding or "rtne") if rounds else None)
        if target.primitive_bitwidth > source.primitive_bitwidth:
            return b.emit(ExtFOp, result, x)
        return b.emit(TruncFOp, result, x)
    if source.is_fp8() or source.primitive_bitwidth == 16:
        x = _cast_float(b, x, dtypes.float32, None)
    if target.is_bool():
        return _not_zero(b, x)
    return b.emit(FPToSIOp if target.is_int_signed() else FPToUIOp, result, x)


def _cast_int(b: Emitter, x: tensor, target: dtypes.dtype) -> tensor:
    """Integer or bool to anything."""
    source, result = x.dtype, with_shape_of(x.type, target)
    extends_sign = source.is_int_signed() and not source.is_bool()
    if target.is_fp8():
        wide = b.emit(SIToFPOp if extends_sign else UIToFPOp, with_shape_of(x.type, dtypes.float32), x)
        return _cast_float(b, wide, target, None)
    if target.is_floating():
        return b.emit(SIToFPOp if extends_sign else UIToFPOp, result, x)
    if target.is_bool():
        return _not_zero(b, x)
    if target.primitive_bitwidth == source.primitive_bitwidth:
        return tensor(x.handle, result)
    if target.primitive_bitwidth < source.primitive_bitwidth:
        return b.emit(TruncIOp, result, x)
    return b.emit(ExtSIOp if extends_sign else ExtUIOp, result, x)


def _cast_pointer(b: Emitter, x: tensor, target: Any) -> tensor:
    """Conversions with a pointer on either side."""
    source, result = x.dtype, with_shape_of(x.type, target)
    if source.is_ptr() and target.is_ptr():
        return b.emit(BitcastOp, result, x)
    if source.is_ptr() and target.is_int() and target.primitive_bitwidth == 64:
        return b.emit(PtrToIntOp, result, x)
    if source.is_ptr() and target.is_int() and target.is_bool():
        return _not_zero(b, _cast_pointer(b, x, dtypes.int64))
    if target.is_ptr() and source.is_int():
        return b.emit(IntToPtrOp, result, cast_to(b, x, dtypes.int64))
    hint = "pointers convert to int64, int1 and pointers"
    if source.is_ptr() and target.is_floating():
        hint += "; for the number that it points to write tl.load(pointer)"
    raise LanguageTypeError(f"cannot cast {source} to {target}", hint=hint)


def dtype_hint(given: Any) -> str | None:
    """What to write instead of a data type by name, or of another library."""
    name = str(getattr(given, "__name__", given)).rpartition(".")[-1]
    known = {repr(known).rpartition(".")[-1] for known in dtypes.ALL_DTYPES}
    return f"write tl.{name}" if name in known else None


def cast_to(b: Emitter, x: tensor, target: Any, rounding: str | None = None) -> tensor:
    """`x` as elements of scalar type `target` (dtype or pointer type); `x` itself when it has them.

    Args:
        b: emitter.
        x: tensor of any shape.
        target: a dtype or `PointerType`.
        rounding: "rtne" or "rtz", for narrowing float to float only.

    Raises:
        LanguageValueError: a rounding where none is allowed; an fp8 type that the target does not have.
        LanguageTypeError: the types do not convert.
    """
    source = x.dtype
    if source == target:
        return x
    both_float = not source.is_ptr() and not target.is_ptr() and source.is_floating() and target.is_floating()
    if rounding is not None and not (both_float and target.primitive_bitwidth < source.primitive_bitwidth):
        raise LanguageValueError(
            "fp_downcast_rounding should be set only for truncating fp conversions. "
            f"Source scalar type is {source} and destination type is {target}"
        )
    check_fp8(b, target)
    if source.is_ptr() or target.is_ptr():
        return _cast_pointer(b, x, target)
    if target.name == "void":
        raise LanguageTypeError(f"cannot cast {source} to {target}")
    return _cast_float(b, x, target, rounding) if source.is_floating() else _cast_int(b, x, target)


def bitcast_to(b: Emitter, x: tensor, target: Any) -> tensor:
    """The bits of `x` read as `target`.

    Raises:
        LanguageValueError: the widths differ.
    """
    source = x.dtype
    if source == target:
        return x
    if source.is_ptr() or target.is_ptr():
        return _cast_pointer(b, x, target)
    if source.primitive_bitwidth != target.primitive_bitwidth:
        raise LanguageValueError(
            "Cannot bitcast data-type of size "
            f"{source.primitive_bitwidth} to data-type of size {target.primitive_bitwidth}",
            hint=f"use x.to(tl.{target.name}) to convert the value",
        )
    result: Type = with_shape_of(x.type, target)
    if source.is_int() and target.is_int():
        return tensor(x.handle, result)
    return b.emit(BitcastOp, result, x)


@builtin(method=True)
def cast(b: Emitter, input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> tensor:
    """Convert each element to another type.

    Float to integer cuts toward zero and saturates; float to an 8-bit float rounds to nearest even and saturates;
    anything to int1 is "not zero".

    Args:
        input: tensor or number.
        dtype: target element type.
        fp_downcast_rounding: "rtne" (default) or "rtz"; only for a float to a narrower float.
        bitcast: reinterpret the bits instead of converting the value.

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: a bitcast between different widths, or a rounding that does not apply.

    Example:
        >>> tl.cast(3.7, tl.int32)
        3
    """
    x = to_tensor(b, input)
    target, rounding = unwrap(dtype), unwrap(fp_downcast_rounding)
    if isinstance(target, dtypes.BlockType):
        target = target.element_ty
    if not isinstance(target, (dtypes.dtype, PointerType)):
        raise LanguageTypeError(f"cast needs a data type such as tl.float32, not {target!r}", hint=dtype_hint(target))
    if rounding not in (None, "rtne", "rtz"):
        raise LanguageValueError(
            f"invalid fp_downcast_rounding {rounding!r}",
            hint='it is None, "rtne" (nearest even) or "rtz" (toward zero)',
        )
    return bitcast_to(b, x, target) if unwrap(bitcast) else cast_to(b, x, target, rounding)


@builtin(method=True, export=False)
def to(b: Emitter, input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> tensor:
    """``x.to(dtype)``: :func:`cast` as a method."""
    converted: tensor = cast.fn(b, input, dtype, fp_downcast_rounding, bitcast)
    return converted
