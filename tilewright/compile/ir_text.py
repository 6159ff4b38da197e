"""What a file of tile IR says of its kernel, and what in it cannot be compiled (`ir_source.py` compiles it)."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute

from tilewright.base.errors import TilewrightError, UnsupportedError
from tilewright.base.target import Target
from tilewright.frontend import ordered
from tilewright.ir.types import TilePointerType, dtype_of
from tilewright.ir.walk import every
from tilewright.ops.function import FuncOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.text import parse_module


def name_and_types(text: str, file: str) -> tuple[str, list[str]]:
    """Name of the public function of a module, and the signature types of its parameters.

    Args:
        text: tile IR.
        file: what messages call it.

    Raises:
        ParseError: it is none.
        TilewrightError: there is not exactly one public function.
    """
    kernel = _public_function(parse_module(text, file))
    return kernel.sym_name.data, [_signature(kind) for kind in kernel.function_type.inputs]


def _public_function(module: ModuleOp) -> FuncOp:
    functions = FuncOp.all_of(module)
    public = [op for op in functions if op.sym_visibility is None or op.sym_visibility == StringAttr("public")]
    if len(public) != 1:
        raise TilewrightError(f"a module to compile has one public tt.func, this one has {len(public)}")
    return public[0]


def refuse_effects(module: ModuleOp, target: Target) -> None:
    """Raise UnsupportedError for reductions and scans that run in order: the front end makes loops of these."""
    for op in every(module, ReduceOp, ScanOp):
        if ordered.runs_in_order(op.regions[0], target):
            raise UnsupportedError(
                f"{op.name} with a function that prints or asserts, or loops on a CPU, is not compiled from text",
                hint="compile the kernel from its Python source, or take the print or the loop out of the text",
            )


def _signature(kind: Attribute) -> str:
    if isinstance(kind, TilePointerType):
        return f"*{_signature(kind.pointee)}"
    return dtype_of(kind).signature
