"""Common ground of the element-wise operations: text forms, type rules and class factories.

Every op here applies lane by lane to operands of one shape. Four text forms cover them, as MLIR prints them:
``op %a, %b : T`` (one type), ``op %a : T to U`` and ``op %a : T -> U`` (casts), ``op pred, %a, %b : T`` (comparisons).
Flags that only promise more (``fastmath<..>``, ``overflow<..>``, ``exact``, ``nneg``) are read and dropped.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base.errors import DTypeError, ShapeError
from tilewright.ir.attrs import Codec
from tilewright.ir.op import TileOp
from tilewright.ir.types import (
    element_type,
    i1,
    is_float,
    is_integer,
    is_pointer,
    scalar_type,
    shape_of,
    tile_type,
    with_element,
)
from tilewright.ops.spec import Call, Infer

_T = TypeVar("_T", bound=TileOp)
_C = TypeVar("_C", bound="ConversionOp")

# --- text -----------------------------------------------------------------------------------------

_FLAGS_WITH_BODY = ("fastmath", "overflow")
_FLAGS = ("exact", "nneg")


def skip_flags(parser: Parser) -> None:
    """Read past MLIR's optimisation flags: dropping a promise never changes a defined result."""
    for keyword in _FLAGS_WITH_BODY:
        if parser.parse_optional_keyword(keyword) is not None:
            parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_identifier)
    for keyword in _FLAGS:
        parser.parse_optional_keyword(keyword)


def parse_operands(parser: Parser, count: int) -> list[Any]:
    """`count` comma-separated operand names, not yet bound to values."""
    names = [parser.parse_unresolved_operand()]
    for _ in range(count - 1):
        parser.parse_punctuation(",")
        names.append(parser.parse_unresolved_operand())
    return names


def finish_parse(
    cls: type[_T],
    parser: Parser,
    names: Sequence[Any],
    operand_types: Sequence[Attribute],
    result_types: Sequence[Attribute],
    attributes: Mapping[str, Attribute],
) -> _T:
    """Bind names to values and split `attributes` into properties and discardable attributes."""
    operands = [parser.resolve_operand(name, type_) for name, type_ in zip(names, operand_types, strict=True)]
    return cls.create(
        operands=operands,
        result_types=list(result_types),
        properties={k: v for k, v in attributes.items() if k in cls.ATTRS},
        attributes={k: v for k, v in attributes.items() if k not in cls.ATTRS},
    )


def parse_attributes(parser: Parser) -> dict[str, Attribute]:
    """Flags, then the optional attribute dictionary."""
    skip_flags(parser)
    return parser.parse_optional_attr_dict()


def parse_keyword_attribute(parser: Parser, keyword: str, words: Mapping[str, Attribute]) -> Attribute | None:
    """``, keyword = word`` if it is there, as the attribute that `words` gives for the word."""
    if parser.parse_optional_punctuation(",") is None:
        return None
    parser.parse_keyword(keyword)
    parser.parse_punctuation("=")
    word = parser.parse_identifier()
    if word not in words:
        parser.raise_error(f"{keyword} is one of {', '.join(words)}, not {word}")
    return words[word]


def print_operands(printer: Printer, op: Operation) -> None:
    """`` %a, %b`` and the discardable attributes."""
    printer.print_string(" ")
    printer.print_list(op.operands, printer.print_ssa_value)


def print_types(printer: Printer, arguments: Sequence[Attribute], arrow: str, results: Sequence[Attribute]) -> None:
    """`` : T, U -> V``; `arrow` is empty where no result type is printed."""
    printer.print_string(" : ")
    printer.print_list(arguments, printer.print_attribute)
    if arrow:
        printer.print_string(arrow)
        printer.print_list(results, printer.print_attribute)


# --- classes ---------------------------------------------------------------------------------------


class SameTypeOp(TileOp):
    """``op %a, ... : T``: operands and result have one type."""

    ARITY: ClassVar[int]

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_op_attributes(self.attributes)
        print_types(printer, [self.results[0].type], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> SameTypeOp:
        names = parse_operands(parser, cls.ARITY)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        return finish_parse(cls, parser, names, [type_] * cls.ARITY, [type_], attributes)


class UnaryOp(SameTypeOp):
    """One operand, one result, one type."""

    ARITY: ClassVar[int] = 1
    operand = operand_def()
    result = result_def()
    traits = traits_def(Pure())


class BinaryOp(SameTypeOp):
    """Two operands, one result, one type."""

    ARITY: ClassVar[int] = 2
    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    traits = traits_def(Pure())


class TernaryOp(SameTypeOp):
    """Three operands, one result, one type."""

    ARITY: ClassVar[int] = 3
    a = operand_def()
    b = operand_def()
    c = operand_def()
    result = result_def()
    traits = traits_def(Pure())


class ConversionOp(TileOp):
    """``op %a : T to U`` or ``op %a : T -> U``; `ARROW` tells which, properties stand in the attribute dictionary."""

    ARROW: ClassVar[str] = " -> "
    src = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_op_attributes({**self.properties, **self.attributes})
        print_types(printer, [self.operands[0].type], self.ARROW, [self.results[0].type])

    @classmethod
    def parse(cls: type[_C], parser: Parser) -> _C:
        names = parse_operands(parser, 1)
        attributes = parse_attributes(parser)
        return cls._parse_types(parser, names, attributes)

    @classmethod
    def _parse_types(cls: type[_C], parser: Parser, names: Sequence[Any], attributes: Mapping[str, Attribute]) -> _C:
        parser.parse_punctuation(":")
        source = parser.parse_type()
        if cls.ARROW.strip() == "to":
            parser.parse_keyword("to")
        else:
            parser.parse_punctuation("->")
        return finish_parse(cls, parser, names, [source], [parser.parse_type()], attributes)


class ToOp(ConversionOp):
    """``op %a : T to U``, the spelling of the arith dialect."""

    ARROW: ClassVar[str] = " to "


class CompareOp(TileOp):
    """``op predicate, %a, %b : T``; the result is the i1 tile of the same shape."""

    PREDICATES: ClassVar[Mapping[str, Attribute]]
    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    predicate = prop_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.attr_values()['predicate']},")
        print_operands(printer, self)
        printer.print_op_attributes(self.attributes)
        print_types(printer, [self.operands[0].type], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> CompareOp:
        word = parser.parse_identifier()
        if word not in cls.PREDICATES:
            parser.raise_error(f"{cls.name} has no predicate {word}; it has {', '.join(cls.PREDICATES)}")
        parser.parse_punctuation(",")
        names = parse_operands(parser, 2)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        attributes["predicate"] = cls.PREDICATES[word]
        return finish_parse(cls, parser, names, [type_, type_], [as_bool(type_)], attributes)


def define(base: type[_T], name: str, doc: str, **fields: Any) -> type[_T]:
    """Make the op class `name` on one of the bases above.

    Args:
        base: gives operands, results and the text form.
        name: operation name, "dialect.op".
        doc: one line, kept as the docstring.
        fields: further class attributes (properties, `ATTRS`).
    """

    # Constants go in afterwards: IRDL takes every name in the class body for a field of the operation.
    constants = {key: fields.pop(key) for key in list(fields) if key.isupper()}

    def body(namespace: dict[str, Any]) -> None:
        namespace.update(fields, name=name, __doc__=doc, __module__=base.__module__)

    title = "".join(part[:1].upper() + part[1:] for part in name.replace("_", ".").split("."))
    made: type[_T] = irdl_op_definition(types.new_class(f"{title}Op", (base,), {}, body))
    for key, value in constants.items():
        setattr(made, key, value)
    return made


def words(codes: Mapping[str, Attribute]) -> Codec:
    """Codec of an enumeration that Python code sees as its printed word."""
    back = {attribute: word for word, attribute in codes.items()}
    return Codec(lambda v: None if v is None else codes[v], lambda a: None if a is None else back[a])


# --- type rules --------------------------------------------------------------------------------------

Check = Callable[[Attribute], bool]
_KIND_NAMES: dict[Check, str] = {is_float: "floating-point", is_integer: "integer", is_pointer: "pointer"}


def as_bool(type_: Attribute) -> Attribute:
    """The i1 type of the same shape."""
    return with_element(type_, i1)


def expect_same(name: str, types_: Sequence[Attribute | None]) -> Attribute:
    """The one type of all operands, or a `ShapeError`/`DTypeError` that names the first that differs."""
    first = types_[0]
    assert first is not None
    for other in types_[1:]:
        if other is not first and other != first:
            assert other is not None
            if shape_of(first) != shape_of(other):
                raise ShapeError(f"{name}: operands have shapes {shape_of(first)} and {shape_of(other)}")
            raise DTypeError(f"{name}: operands have types {first} and {other}")
    return first


def expect_kind(name: str, type_: Attribute, check: Check) -> None:
    """Raise `DTypeError` unless the element of `type_` is of the kind that `check` tells."""
    if not check(element_type(type_)):
        raise DTypeError(f"{name} takes {_KIND_NAMES[check]} operands, not {type_}")


def infer_same(name: str, check: Check) -> Infer:
    """Rule of arithmetic: all operands have one type of the kind `check`, and so has the result."""

    def infer(call: Call) -> tuple[Attribute]:
        type_ = expect_same(name, call.operand_types)
        expect_kind(name, type_, check)
        return (type_,)

    return infer


def infer_compare(name: str, check: Check) -> Infer:
    """Rule of comparisons: operands of one type, result i1 of their shape."""

    def infer(call: Call) -> tuple[Attribute]:
        type_ = expect_same(name, call.operand_types)
        expect_kind(name, type_, check)
        return (as_bool(type_),)

    return infer


# --- short forms for samples --------------------------------------------------------------------------


def tile(name: str, shape: Sequence[int] = (8,)) -> Attribute:
    """IR type of a tile of elements `name` ("f32", "i1"); the scalar for the empty shape."""
    return tile_type(tuple(shape), scalar_type(name))
