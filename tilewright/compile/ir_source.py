"""Compiling the file of a stage: what comes before it is left out, everything after it is the same.

::

    compile("kernel.ttir")   tile IR, ours or Triton's -> parse -> passes -> the back end's stages -> CompiledKernel
    compile("kernel.ptx")    a file of TILEWRIGHT_DUMP_DIR, with kernel.json beside it -> the stages behind it
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute

from tilewright.base.errors import ArgumentError, TilewrightError, UnsupportedError
from tilewright.compile.late import ordered, pipeline
from tilewright.compile.request import Request
from tilewright.compile.sources import simplify
from tilewright.compile.specialize import Specialization
from tilewright.ir.types import TilePointerType, dtype_of
from tilewright.ir.walk import walk
from tilewright.ops.function import FuncOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.stages import Stage


class IRSource:
    """A kernel as the file of a stage.

    Args:
        path: the file. It ends in `.ttir`, or like another stage of the target; of those the file of facts that is
            written with the stages, `.json`, must lie beside it.
        context, backend: of Triton, without a meaning here.

    Attributes:
        ext: how the file ends.
        name: symbol of its public function.
        signature: signature type by parameter (`arg0`, `arg1`, ...). Integers count as signed.

    Raises:
        ArgumentError: there is no such file, or no file of facts beside it.
        ParseError: the text is no tile IR.
        TilewrightError: there is not exactly one public function.
    """

    def __init__(self, path: str | Path, context: Any = None, backend: Any = None) -> None:
        self.path, self.ext = Path(path), Path(path).suffix.removeprefix(".")
        if not self.path.is_file():
            raise ArgumentError(f"there is no file {self.path}", hint="TILEWRIGHT_DUMP_DIR has every stage written")
        self.contents, self._facts = self.path.read_bytes(), {}
        if self.ext == "ttir":
            kernel = _public_function(parse_module(self.contents.decode(), str(path)))
            self.name = kernel.sym_name.data
            types = [_signature(kind) for kind in kernel.function_type.inputs]
        else:
            self._facts = _facts_beside(self.path)
            self.name, types = self._facts["name"], self._facts["types"]
        self.signature = {f"arg{i}": kind for i, kind in enumerate(types)}

    def specialization(self) -> Specialization:
        """Types of the arguments; nothing is a compile-time constant any more."""
        return Specialization(tuple(self.signature), tuple(self.signature.values()), ("",) * len(self.signature))

    def name_for(self, specialization: Specialization) -> str:
        """Name of the compiled function."""
        return self.name

    def content(self) -> str:
        """Content hash of the file, and of the facts."""
        facts = json.dumps(self._facts, sort_keys=True)
        return hashlib.sha256(self.contents + f"\0{self.ext}\0{facts}".encode()).hexdigest()

    hash = content  # as programs for Triton call it

    def check(self) -> None:
        """The text is what it was."""

    def has_content(self) -> bool:
        """The text says everything."""
        return True

    def stages(self, request: Request, later: Mapping[str, Stage]) -> dict[str, Stage]:
        """Parsing, for tile IR simplification, and the stages behind.

        Raises:
            UnsupportedError: the target has no such stage, or no file can stand for it.
        """
        if self.ext == "ttir":

            def run(source: IRSource, metadata: dict[str, Any]) -> ModuleOp:
                metadata["params"] = list(request.specialization.names)
                module = parse_module(source.contents.decode(), str(source.path))
                _refuse_effects(module)
                return simplify(module, metadata, request, pipeline.SIMPLIFY_TEXT)

            return {"ttir": Stage(run, print_module), **later}
        parse = later[self.ext].parse if self.ext in later else None
        if parse is None:
            known = ["ttir", *(extension for extension, stage in later.items() if stage.parse is not None)]
            raise UnsupportedError(
                f"cannot compile {self.path.name} for {request.target}", hint=f"files may end in .{', .'.join(known)}"
            )

        def read(source: IRSource, metadata: dict[str, Any]) -> Any:
            metadata.update(source._facts)
            return parse(source.contents)

        names = list(later)
        behind = names[names.index(self.ext) + 1 :]
        return {self.ext: Stage(read, later[self.ext].render), **{name: later[name] for name in behind}}


def _facts_beside(path: Path) -> dict[str, Any]:
    """What the stages before a file have found out.

    Raises:
        ArgumentError: there is no such file, or it has other things in it.
    """
    file = path.with_suffix(".json")
    try:
        facts = json.loads(file.read_bytes())
        if isinstance(facts["name"], str) and isinstance(facts["types"], list):
            return dict(facts)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    raise ArgumentError(
        f"{path.name} alone does not say what its kernel takes: {file.name} beside it is no file of facts",
        hint="TILEWRIGHT_DUMP_DIR writes it with the stages; a .ttir needs none",
    )


def _public_function(module: ModuleOp) -> FuncOp:
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    public = [op for op in functions if op.sym_visibility is None or op.sym_visibility == StringAttr("public")]
    if len(public) != 1:
        raise TilewrightError(f"a module to compile has one public tt.func, this one has {len(public)}")
    return public[0]


def _refuse_effects(module: ModuleOp) -> None:
    """Raise UnsupportedError for reductions and scans that print or assert: the front end makes loops of these."""
    for op in walk(module):
        if isinstance(op, (ReduceOp, ScanOp)) and ordered.has_effects(op.regions[0]):
            raise UnsupportedError(
                f"{op.name} with a function that prints or asserts is not compiled from text",
                hint="compile the kernel from its Python source, or take the print out of the text",
            )


def _signature(kind: Attribute) -> str:
    if isinstance(kind, TilePointerType):
        return f"*{_signature(kind.pointee)}"
    return dtype_of(kind).signature
