"""Integer and float arithmetic, comparisons and select: the `arith` operations and their Triton relatives.

Each op is one row below: class, numpy reference, transfer function of the axis analysis, samples. Back ends
have all of them in their element-wise table under the op's name without its dialect.
The language functions and operators that build them are in `operators.py` and `math.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base.errors import DTypeError, ShapeError
from tilewright.ir.op import TileOp
from tilewright.ir.types import element_type, i1, i32, i64, is_float, is_integer, shape_of
from tilewright.ops import elementwise_reference as ref
from tilewright.ops import facts, folds, signs, vjps
from tilewright.ops.elementwise_base import (
    BinaryOp,
    Check,
    CompareOp,
    SameTypeOp,
    TernaryOp,
    UnaryOp,
    as_bool,
    define,
    expect_same,
    finish_parse,
    infer_compare,
    infer_same,
    parse_attributes,
    parse_keyword_attribute,
    parse_operands,
    print_operands,
    print_types,
    tile,
    words,
)
from tilewright.ops.elementwise_samples import FLOATS, INTEGERS, SIZE, integers, same_type_samples, values
from tilewright.ops.spec import Array, Call, Monoid, NoGradient, OpSpec, Reference, Sample, Samples, Vjp, register


def table_name(op: type[TileOp]) -> str:
    """Name of an op in the element-wise table of the back ends: without its dialect."""
    return op.name.split(".", 1)[1]


def same_type_op(
    base: type[SameTypeOp],
    name: str,
    doc: str,
    reference: Reference,
    samples: Samples,
    *,
    check: Check,
    transfer: facts.Transfer = facts.lanewise,
    fold: folds.Fold | None = None,
    identity: Callable[[int], int | float] | None = None,
    idempotent: bool = False,
    vjp: Vjp | NoGradient | None = None,
    **slots: Any,
) -> type[SameTypeOp]:
    """Define and register an op whose operands and result share one type.

    Args:
        base: `UnaryOp`, `BinaryOp` or `TernaryOp`.
        name: operation name.
        doc: one line.
        reference: numpy meaning.
        samples: for the generated tests.
        check: the kind of element that it takes.
        transfer: axis facts.
        fold: algebraic simplification.
        identity: the neutral element by number of bits, of an operation that is a monoid.
        idempotent: whether an element and itself make that element.
        vjp: gradient rule.
        slots: further ones of the record.
    """
    cls = define(base, name, doc)
    monoid = None if identity is None else Monoid(identity, idempotent=idempotent)
    infer, known_as = infer_same(name, check), table_name(cls)
    register(OpSpec(cls, infer, reference, samples, transfer, fold, doc, known_as, monoid, vjp, **slots))
    return cls


# --- integers ---------------------------------------------------------------------------------------------


def _integer(
    name: str,
    doc: str,
    reference: Reference,
    transfer: facts.Transfer = facts.lanewise,
    fold: folds.Fold | None = None,
    identity: Callable[[int], int] | None = None,
    idempotent: bool = False,
    **slots: Any,
) -> type[SameTypeOp]:
    samples = same_type_samples(2, INTEGERS, wrong="f32")
    return same_type_op(
        BinaryOp,
        f"arith.{name}",
        doc,
        reference,
        samples,
        check=is_integer,
        transfer=transfer,
        fold=fold,
        identity=identity,
        idempotent=idempotent,
        **slots,
    )


def _divide_unsigned(a: Array, b: Array) -> Array:
    return np.where(b == 0, np.zeros_like(a), a // np.where(b == 0, np.ones_like(b), b))


def _remainder_unsigned(a: Array, b: Array) -> Array:
    return np.where(b == 0, np.zeros_like(a), a % np.where(b == 0, np.ones_like(b), b))


def _signed(fn: ref.ArrayFn) -> Reference:
    return ref.integer(fn, view=ref.signed)


def _unsigned(fn: ref.ArrayFn) -> Reference:
    return ref.integer(fn, view=ref.unsigned)


def _and_true(op: Operation, known: Sequence[folds.Number | None]) -> SSAValue | None:
    """``mask & true = mask``."""
    return op.operands[0] if known[1] is True else op.operands[1] if known[0] is True else None


def _or_true(op: Operation, known: Sequence[folds.Number | None]) -> bool | None:
    """``mask | true = true``."""
    return True if known[0] is True or known[1] is True else None


def _zero(bits: int) -> int:
    return 0


def _one(bits: int) -> int:
    return 1


def _ones(bits: int) -> int:
    return -1


def _least(bits: int) -> int:
    return -(1 << (bits - 1))


def _most(bits: int) -> int:
    return (1 << (bits - 1)) - 1


_ZERO = folds.unit(0)
AddIOp = _integer(
    "addi", "Integer sum; wraps.", _signed(np.add), facts.add, folds.unit(0, commutative=True), _zero, ring=operator.add
)
SubIOp = _integer("subi", "Integer difference; wraps.", _signed(np.subtract), facts.sub, _ZERO, ring=operator.sub)
MulIOp = _integer(
    "muli",
    "Integer product; wraps.",
    _signed(np.multiply),
    facts.mul,
    folds.unit(1, commutative=True, zero=0),
    _one,
    ring=operator.mul,
)
DivSIOp = _integer(
    "divsi", "Signed quotient toward zero; x / 0 is 0, MIN / -1 wraps.", _signed(ref.divide), facts.div, folds.unit(1)
)
DivUIOp = _integer("divui", "Unsigned quotient; x / 0 is 0.", _unsigned(_divide_unsigned), facts.div, folds.unit(1))
RemSIOp = _integer(
    "remsi", "Remainder with the sign of the left; x % 0 is 0.", _signed(ref.remainder), facts.rem, folds.remainder
)
RemUIOp = _integer(
    "remui", "Unsigned remainder; x % 0 is 0.", _unsigned(_remainder_unsigned), facts.rem, folds.remainder
)
AndIOp = _integer(
    "andi",
    "Bitwise and.",
    _signed(np.bitwise_and),
    facts.bit_and,
    fold=folds.first_of(folds.unit(-1, commutative=True, zero=0), _and_true, folds.idempotent),
    identity=_ones,
    idempotent=True,
)
OrIOp = _integer(
    "ori",
    "Bitwise or.",
    _signed(np.bitwise_or),
    fold=folds.first_of(folds.unit(0, commutative=True), _or_true, folds.idempotent),
    identity=_zero,
    idempotent=True,
)
XOrIOp = _integer(
    "xori", "Bitwise exclusive or.", _signed(np.bitwise_xor), fold=folds.unit(0, commutative=True), identity=_zero
)
ShLIOp = _integer(
    "shli",
    "Shift left; 0 when the amount reaches the width.",
    ref.shift_reference("left", view=ref.unsigned),
    facts.shift_left,
    _ZERO,
)
ShRSIOp = _integer(
    "shrsi",
    "Shift right copying the sign; amounts past the width give the sign.",
    ref.shift_reference("right", view=ref.signed),
    facts.shift_right,
    _ZERO,
)
ShRUIOp = _integer(
    "shrui",
    "Shift right filling with 0; 0 when the amount reaches the width.",
    ref.shift_reference("right", view=ref.unsigned),
    facts.shift_right,
    _ZERO,
)
MinSIOp = _integer(
    "minsi", "Smaller signed integer.", _signed(np.minimum), facts.minimum, folds.idempotent, _most, True
)
MaxSIOp = _integer(
    "maxsi", "Larger signed integer.", _signed(np.maximum), facts.maximum, folds.idempotent, _least, True
)
MinUIOp = _integer(
    "minui", "Smaller unsigned integer.", _unsigned(np.minimum), facts.lanewise, folds.idempotent, _ones, True
)
MaxUIOp = _integer(
    "maxui", "Larger unsigned integer.", _unsigned(np.maximum), facts.lanewise, folds.idempotent, _zero, True
)
MulHiUIOp = same_type_op(
    BinaryOp,
    "tt.mulhiui",
    "High half of the unsigned product.",
    ref.integer(ref.multiply_high, view=ref.unsigned),
    same_type_samples(2, ("i32", "i64"), wrong="f32"),
    check=is_integer,
)
AbsIOp = same_type_op(
    UnaryOp,
    "math.absi",
    "Absolute value; that of MIN is MIN.",
    ref.integer(np.abs),
    same_type_samples(1, INTEGERS[1:], wrong="f32"),
    check=is_integer,
)

# --- floats -------------------------------------------------------------------------------------------------


def _unsigned_zeros(rng: np.random.Generator, name: str) -> Array:
    """Values without -0: which zero a minimum or maximum returns is not defined."""
    drawn = values(rng, name)
    return np.where(drawn == 0, np.abs(drawn), drawn).astype(drawn.dtype)


def _float(
    base: type[SameTypeOp],
    name: str,
    doc: str,
    reference: Reference,
    samples: Samples,
    vjp: Vjp,
    identity: float | None = None,
    idempotent: bool = False,
) -> type[SameTypeOp]:
    neutral = None if identity is None else lambda bits: identity
    return same_type_op(
        base, name, doc, reference, samples, check=is_float, identity=neutral, idempotent=idempotent, vjp=vjp
    )


_two = same_type_samples(2, FLOATS, wrong="i32")
_extremes = same_type_samples(2, FLOATS, draw=_unsigned_zeros, wrong="i32")
AddFOp = _float(BinaryOp, "arith.addf", "Float sum.", ref.floating(np.add), _two, vjps.add, -0.0)
SubFOp = _float(BinaryOp, "arith.subf", "Float difference.", ref.floating(np.subtract), _two, vjps.sub)
MulFOp = _float(BinaryOp, "arith.mulf", "Float product.", ref.floating(np.multiply), _two, vjps.mul, 1.0)
DivFOp = _float(BinaryOp, "arith.divf", "Float quotient.", ref.floating(np.divide), _two, vjps.div)
RemFOp = _float(
    BinaryOp,
    "arith.remf",
    "Remainder of the quotient cut toward zero (C fmod).",
    ref.floating(np.fmod),
    _two,
    vjps.remainder,
)
NegFOp = _float(
    UnaryOp,
    "arith.negf",
    "Sign flipped, also of zero and NaN.",
    ref.floating(np.negative),
    same_type_samples(1, FLOATS, wrong="i32"),
    vjps.neg,
)
AbsFOp = _float(
    UnaryOp,
    "math.absf",
    "Sign cleared.",
    ref.floating(np.abs),
    same_type_samples(1, FLOATS, wrong="i32"),
    vjps.magnitude,
)
MinNumFOp = _float(
    BinaryOp,
    "arith.minnumf",
    "Smaller float; a number wins over NaN.",
    ref.floating(ref.pick_number(np.minimum)),
    _extremes,
    vjps.extremum("olt", numbers=True),
    math.inf,
    True,
)
MaxNumFOp = _float(
    BinaryOp,
    "arith.maxnumf",
    "Larger float; a number wins over NaN.",
    ref.floating(ref.pick_number(np.maximum)),
    _extremes,
    vjps.extremum("ogt", numbers=True),
    -math.inf,
    True,
)
MinimumFOp = _float(
    BinaryOp,
    "arith.minimumf",
    "Smaller float; NaN wins.",
    ref.floating(np.minimum),
    _extremes,
    vjps.extremum("olt", numbers=False),
    math.inf,
    True,
)
MaximumFOp = _float(
    BinaryOp,
    "arith.maximumf",
    "Larger float; NaN wins.",
    ref.floating(np.maximum),
    _extremes,
    vjps.extremum("ogt", numbers=False),
    -math.inf,
    True,
)
PreciseDivFOp = _float(
    BinaryOp,
    "tt.precise_divf",
    "Float quotient, correctly rounded.",
    ref.floating(np.divide),
    same_type_samples(2, ("f32", "f64"), wrong="i32"),
    vjps.div,
)
PreciseSqrtOp = _float(
    UnaryOp,
    "tt.precise_sqrt",
    "Square root, correctly rounded.",
    ref.floating(np.sqrt),
    same_type_samples(1, ("f32", "f64"), wrong="i32"),
    vjps.sqrt,
)
FmaOp = _float(
    TernaryOp,
    "math.fma",
    "x * y + z with one rounding.",
    ref.fused_multiply_add,
    same_type_samples(3, FLOATS, wrong="i32"),
    vjps.fma,
)

# --- comparisons -----------------------------------------------------------------------------------------------

CMPI_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
CMPF_PREDICATES = (
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
)
_CMPI = {word: IntegerAttr(code, i64) for code, word in enumerate(CMPI_PREDICATES)}
_CMPF = {word: IntegerAttr(code, i64) for code, word in enumerate(CMPF_PREDICATES)}

CmpIOp = define(CompareOp, "arith.cmpi", "Integer comparison.", PREDICATES=_CMPI, ATTRS={"predicate": words(_CMPI)})
CmpFOp = define(CompareOp, "arith.cmpf", "Float comparison.", PREDICATES=_CMPF, ATTRS={"predicate": words(_CMPF)})


def _predicates(names: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"predicate": name} for name in names]


register(
    OpSpec(
        CmpIOp,
        infer_compare("arith.cmpi", is_integer),
        ref.compare_integers,
        same_type_samples(2, ("i1", "i8", "i32"), attrs=_predicates(CMPI_PREDICATES), wrong="f32"),
        facts.compare,
        signs.block_bound,
        summary="integer comparison",
        elementwise="cmpi",
    )
)
register(
    OpSpec(
        CmpFOp,
        infer_compare("arith.cmpf", is_float),
        ref.compare_floats,
        same_type_samples(2, ("f16", "bf16", "f32"), attrs=_predicates(CMPF_PREDICATES), wrong="i32"),
        summary="float comparison",
        elementwise="cmpf",
        vjp=vjps.constant,
    )
)

# --- select --------------------------------------------------------------------------------------------------------


@irdl_op_definition
class SelectOp(TileOp):
    """``arith.select %c, %a, %b : T``, or ``: C, T`` when the condition is a tile."""

    name = "arith.select"
    condition = operand_def()
    true_value = operand_def()
    false_value = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_op_attributes(self.attributes)
        condition, type_ = self.operands[0].type, self.results[0].type
        print_types(printer, [type_] if condition == i1 else [condition, type_], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> SelectOp:
        names = parse_operands(parser, 3)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        first = parser.parse_type()
        many = parser.parse_optional_punctuation(",") is not None
        condition, type_ = (first, parser.parse_type()) if many else (i1, first)
        return finish_parse(cls, parser, names, [condition, type_, type_], [type_], attributes)


def _infer_select(call: Call) -> tuple[Attribute]:
    condition, *rest = call.operand_types
    type_ = expect_same("arith.select", rest)
    assert condition is not None
    if element_type(condition) != i1:
        raise DTypeError(f"arith.select takes a condition of i1, not {condition}")
    if condition != i1 and condition != as_bool(type_):
        raise ShapeError(f"arith.select: condition has shape {shape_of(condition)}, values have {shape_of(type_)}")
    return (type_,)


def _select_samples(rng: np.random.Generator) -> list[Sample]:
    mask, flag = integers(rng, "i1"), np.asarray(True)
    out = []
    for name in ("i1", "i8", "f16", "bf16", "f32", "i64"):
        a, b, type_ = values(rng, name), values(rng, name), tile(name, (SIZE,))
        out.append(Sample((mask, a, b), (tile("i1", (SIZE,)), type_, type_)))
        out.append(Sample((flag, a, b), (i1, type_, type_)))
    out.append(Sample((flag, np.asarray(a[0]), np.asarray(b[0])), (i1, i64, i64)))
    out.append(Sample((mask[:8], a, b), (tile("i1"), type_, type_), error="condition has shape"))
    out.append(Sample((a, a, b), (type_, type_, type_), error="condition of i1"))
    return out


def _select_reference(call: Call, condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b)


register(
    OpSpec(
        SelectOp,
        _infer_select,
        _select_reference,
        _select_samples,
        facts.choose,
        folds.choose,
        summary="one of two values by a condition",
        elementwise="select",
        vjp=vjps.select,
    )
)

# --- clamp ------------------------------------------------------------------------------------------------------------

_PROPAGATE: dict[str, Attribute] = {"none": IntegerAttr(0, i32), "all": IntegerAttr(0xFFFF, i32)}


@irdl_op_definition
class ClampFOp(TileOp):
    """``tt.clampf %x, %low, %high, propagateNan = none : T``: min(max(x, low), high)."""

    name = "tt.clampf"
    x = operand_def()
    low = operand_def()
    high = operand_def()
    result = result_def()
    propagate_nan = prop_def(prop_name="propagateNan")
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_string(f", propagateNan = {self.attr_values()['propagateNan']}")
        printer.print_op_attributes(self.attributes)
        print_types(printer, [self.results[0].type], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> ClampFOp:
        names = parse_operands(parser, 3)
        word = parse_keyword_attribute(parser, "propagateNan", _PROPAGATE)
        attributes = {**parse_attributes(parser), "propagateNan": word or _PROPAGATE["none"]}
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        return finish_parse(cls, parser, names, [type_] * 3, [type_], attributes)


ClampFOp.ATTRS = {"propagateNan": words(_PROPAGATE)}


def _clamp_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for name in FLOATS:
        low, high = np.sort(np.stack([_unsigned_zeros(rng, name), _unsigned_zeros(rng, name)]), axis=0)
        low, high = np.nan_to_num(low), np.nan_to_num(high)
        for rule in _PROPAGATE:
            operands = (_unsigned_zeros(rng, name), low, high)
            out.append(Sample(operands, (tile(name, (SIZE,)),) * 3, {"propagateNan": rule}))
    number = integers(rng, "i32", 8)
    out.append(Sample((number,) * 3, (tile("i32"),) * 3, {"propagateNan": "none"}, error="takes floating-point"))
    return out


register(
    OpSpec(
        ClampFOp,
        infer_same("tt.clampf", is_float),
        ref.clamp,
        _clamp_samples,
        facts.lanewise,
        summary="value limited to a range",
        elementwise="clampf",
        vjp=vjps.clamp,
    )
)
