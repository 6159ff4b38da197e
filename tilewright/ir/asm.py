"""Pieces of the textual form that several families of operations share.

Triton's assembly puts properties into the attribute dictionary, in alphabetical order, and leaves
defaults out; the helpers here read and write that, and `FlatOp` builds operations whose
optional and variadic operands only trail, so that no segment sizes are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from xdsl.dialects.builtin import BoolAttr, StringAttr
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from tilewright.ir.attrs import Codec
from tilewright.ir.op import TileOp

_Op = TypeVar("_Op", bound="FlatOp")

# A boolean whose `false` is the default and is left out of the text.
FLAG = Codec(lambda v: BoolAttr.from_bool(True) if v else None, lambda a: a is not None and bool(a.value.data))


def word(default: str) -> Codec:
    """A keyword kept as a string attribute; absent means `default`."""
    return Codec(
        lambda v: None if v is None or v == default else StringAttr(v), lambda a: default if a is None else a.data
    )


class FlatOp(TileOp):
    """An operation whose optional and variadic operands stand last and are kept as one flat list."""

    @classmethod
    def build_op(
        cls: type[_Op],
        operands: Sequence[SSAValue | Sequence[SSAValue]],
        result_types: Sequence[Attribute],
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[Region] = (),
    ) -> _Op:
        """Make an operation; operands left out may be given as `None`, variadic ones as a sequence."""
        flat: list[SSAValue] = []
        for operand in operands:
            if isinstance(operand, SSAValue):
                flat.append(operand)
            elif operand is not None:
                flat.extend(operand)
        properties = {name: enc for name, v in (attrs or {}).items() if (enc := cls.ATTRS[name].encode(v)) is not None}
        return cls.create(operands=flat, result_types=list(result_types), properties=properties, regions=list(regions))


# --- printing ---------------------------------------------------------------------------------------


def print_attrs(printer: Printer, op: TileOp, hide: Sequence[str] = (), *, keyword: bool = False) -> None:
    """Attributes and properties of `op` as one dictionary in alphabetical order; `hide` is printed elsewhere."""
    merged = {**op.properties, **op.attributes}
    printer.print_op_attributes(dict(sorted(merged.items())), reserved_attr_names=hide, print_keyword=keyword)


def print_types(printer: Printer, types: Sequence[Attribute]) -> None:
    """`T, U`."""
    printer.print_list(types, printer.print_attribute)


def print_operands(printer: Printer, operands: Sequence[SSAValue]) -> None:
    """`%a, %b`."""
    printer.print_list(operands, printer.print_operand)


def print_signature(printer: Printer, operands: Sequence[Attribute], results: Sequence[Attribute]) -> None:
    """`(T, U) -> V`; several results, or none, stand in parentheses."""
    with printer.in_parens():
        print_types(printer, operands)
    printer.print_string(" -> ")
    if len(results) == 1:
        printer.print_attribute(results[0])
        return
    with printer.in_parens():
        print_types(printer, results)


# --- parsing ----------------------------------------------------------------------------------------


def parse_operand_list(parser: Parser) -> list[UnresolvedOperand]:
    """One or more operands, separated by commas."""
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)


def parse_type_list(parser: Parser) -> list[Attribute]:
    """One or more types, separated by commas."""
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


def parse_signature(parser: Parser) -> tuple[list[Attribute], list[Attribute]]:
    """Types of operands and of results, written `(T, U) -> V`."""
    function_type = parser.parse_function_type()
    return list(function_type.inputs.data), list(function_type.outputs.data)


def resolve(parser: Parser, operands: Sequence[UnresolvedOperand], types: Sequence[Attribute]) -> list[SSAValue]:
    """Values of parsed operands; their number must be that of the types."""
    return list(parser.resolve_operands(operands, types, parser.pos))


def make(
    cls: type[_Op],
    operands: Sequence[SSAValue],
    results: Sequence[Attribute],
    attributes: Mapping[str, Attribute] | None = None,
    properties: Mapping[str, Attribute] | None = None,
    regions: Sequence[Region] = (),
) -> _Op:
    """An operation from its parsed parts; entries of `attributes` that the class lists become properties."""
    known = dict(properties or {})
    rest: dict[str, Attribute] = {}
    for name, value in (attributes or {}).items():
        (known if name in cls.ATTRS else rest)[name] = value
    return cls.create(operands=operands, result_types=results, properties=known, attributes=rest, regions=regions)
