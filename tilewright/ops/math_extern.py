"""`tt.extern_elementwise`: calls of a function of NVIDIA's libdevice, named by its symbol.

Its reference knows the libdevice functions that have an op in `math.py`; others have no meaning
outside NVIDIA's library, and a CPU refuses them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def, result_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base.errors import ShapeError, UnsupportedError
from tilewright.ir.attrs import BOOL, STR, Codec
from tilewright.ir.op import TileOp
from tilewright.ir.types import shape_of
from tilewright.ops import facts, vjps
from tilewright.ops.dims import lanewise
from tilewright.ops.elementwise_base import finish_parse, parse_attributes, print_operands, tile
from tilewright.ops.elementwise_samples import floats
from tilewright.ops.math import OPS
from tilewright.ops.reverse import Reverse
from tilewright.ops.spec import REGISTRY, Array, Call, OpSpec, Sample, register


@irdl_op_definition
class ExternElementwiseOp(TileOp):
    """``tt.extern_elementwise %x {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (T) -> U``."""

    name = "tt.extern_elementwise"
    ATTRS: ClassVar[Mapping[str, Codec]] = {"libname": STR, "libpath": STR, "pure": BOOL, "symbol": STR}
    srcs = var_operand_def()
    result = result_def()
    libname = prop_def()
    libpath = prop_def()
    pure = prop_def()
    symbol = prop_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_op_attributes({**self.properties, **self.attributes})
        printer.print_string(" : ")
        printer.print_function_type([operand.type for operand in self.operands], [self.results[0].type])

    @classmethod
    def parse(cls, parser: Parser) -> ExternElementwiseOp:
        names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        signature = parser.parse_function_type()
        return finish_parse(cls, parser, names, signature.inputs.data, signature.outputs.data, attributes)


def math_name(symbol: str) -> str | None:
    """Name of the `math` op that computes libdevice's `symbol` ("__nv_tanhf" -> "tanh"), if there is one."""
    stem = symbol.removeprefix("__nv_")
    candidates = (stem, stem.removesuffix("f"), stem.removesuffix("f") + "f")
    return next((name for name in candidates if name in OPS), None)


def _infer(call: Call) -> tuple[Attribute]:
    (result,) = call.result_types
    for operand in call.operand_types:
        assert operand is not None
        if shape_of(operand) != shape_of(result):
            raise ShapeError(f"tt.extern_elementwise: operand {operand} has not the shape of the result {result}")
    return (result,)


def _reference(call: Call, *args: Array) -> Any:
    name = math_name(call.attrs["symbol"])
    if name is None:
        symbol = str(call.attrs["symbol"])
        of_nvidia = symbol.startswith("__nv_")
        why = "runs on NVIDIA GPUs only" if of_nvidia else "is code of a device, which nobody but its processor runs"
        raise UnsupportedError(
            f"external function {symbol} {why}",
            hint=f"functions with a portable form: {', '.join(OPS)}",
        )
    reference = REGISTRY[f"math.{name}"].reference
    assert reference is not None
    return reference(call, *args)


def _samples(rng: np.random.Generator) -> list[Sample]:
    attrs = {"libname": "", "libpath": "", "pure": True, "symbol": "__nv_tanhf"}
    x, type_ = floats(rng, "f32", 8), tile("f32")
    return [
        Sample((x,), (type_,), attrs, (type_,), max_ulp=4),
        Sample((x, x), (type_, type_), {**attrs, "symbol": "__nv_powf"}, (type_,), max_ulp=4),
        Sample((x,), (type_,), attrs, (tile("f32", (4, 2)),), error="has not the shape"),
    ]


def _vjp(r: Reverse) -> Sequence[Any]:
    """As the operation of `math.py` that computes the same."""
    name = math_name(r.call.attrs["symbol"])
    rule = vjps.FUNCTIONS.get(name or "")
    if rule is None:
        raise r.refuse(
            f"no gradient flows through the external function {r.call.attrs['symbol']}",
            "use a function of the language",
        )
    return rule(r)


register(
    OpSpec(
        ExternElementwiseOp,
        _infer,
        _reference,
        _samples,
        facts.lanewise,
        summary="function of an external library, element by element",
        vjp=_vjp,
        dims=lanewise,
    )
)
