"""Compiling tile IR text, ours or Triton's: the front end is left out, everything after it is the same.

compile("kernel.ttir") -> Request -> parse -> passes -> the back end's stages -> CompiledKernel
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute

from tilewright.base.errors import TilewrightError, UnsupportedError
from tilewright.compile.late import ordered, pipeline
from tilewright.compile.request import Request
from tilewright.compile.sources import simplify
from tilewright.compile.specialize import Specialization
from tilewright.ir.types import TilePointerType, dtype_of
from tilewright.ops.function import FuncOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.stages import Stage


class IRSource:
    """A kernel as a file of tile IR.

    Args:
        path: the file; it ends in `.ttir`.

    Attributes:
        name: symbol of its public function.
        signature: signature type by parameter (`arg0`, `arg1`, ...). Integers count as signed.

    Raises:
        UnsupportedError: another kind of file.
        ParseError: the text is no tile IR.
        TilewrightError: there is not exactly one public function.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.ext = Path(path), Path(path).suffix.removeprefix(".")
        if self.ext != "ttir":
            raise UnsupportedError(f"cannot compile {self.path.name}: only tile IR files (.ttir) are read")
        self.text = self.path.read_text(encoding="utf-8")
        self.module = parse_module(self.text, str(path))
        kernel = _public_function(self.module)
        self.name = kernel.sym_name.data
        self.signature = {f"arg{i}": _signature(kind) for i, kind in enumerate(kernel.function_type.inputs)}

    def specialization(self) -> Specialization:
        """Types of the arguments; nothing is a compile-time constant any more."""
        return Specialization(tuple(self.signature), tuple(self.signature.values()), ("",) * len(self.signature))

    def name_for(self, specialization: Specialization) -> str:
        """Name of the compiled function."""
        return self.name

    def content(self) -> str:
        """Content hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    hash = content  # as programs for Triton call it

    def check(self) -> None:
        """The text is what it was."""

    def has_content(self) -> bool:
        """The text says everything."""
        return True

    def first_stage(self, request: Request) -> Stage:
        """Parsing and simplification."""

        def run(source: IRSource, metadata: dict[str, Any]) -> ModuleOp:
            metadata["params"] = list(request.specialization.names)
            # parsed once more: the passes work in place, and a source may be compiled twice
            module = parse_module(source.text, str(source.path))
            _refuse_effects(module)
            return simplify(module, metadata, pipeline.SIMPLIFY_TEXT)

        return Stage(run, print_module)


def _public_function(module: ModuleOp) -> FuncOp:
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    public = [op for op in functions if op.sym_visibility is None or op.sym_visibility == StringAttr("public")]
    if len(public) != 1:
        raise TilewrightError(f"a module to compile has one public tt.func, this one has {len(public)}")
    return public[0]


def _refuse_effects(module: ModuleOp) -> None:
    """Raise UnsupportedError for reductions and scans that print or assert: the front end makes loops of these."""
    for op in module.walk():
        if isinstance(op, (ReduceOp, ScanOp)) and ordered.has_effects(op.regions[0]):
            raise UnsupportedError(
                f"{op.name} with a function that prints or asserts is not compiled from text",
                hint="compile the kernel from its Python source, or take the print out of the text",
            )


def _signature(kind: Attribute) -> str:
    if isinstance(kind, TilePointerType):
        return f"*{_signature(kind.pointee)}"
    return dtype_of(kind).signature
