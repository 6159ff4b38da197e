"""Compiling tile IR text, ours or Triton's: the front end is left out, everything after it is the same.

compile("kernel.ttir") -> parse -> passes -> the back end's stages -> CompiledKernel
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute

from tilewright.base.errors import TilewrightError, UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.compile.kernel import CompiledKernel, backend_of
from tilewright.compile.metadata import describe_kernel
from tilewright.compile.specialize import Specialization
from tilewright.devices.drivers import driver
from tilewright.devices.registry import effects, pipeline
from tilewright.ir.types import TilePointerType, dtype_of
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.stages import Stage, run_stages


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

    def hash(self) -> str:
        """Content hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def _public_function(module: ModuleOp) -> FuncOp:
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    public = [op for op in functions if op.sym_visibility is None or op.sym_visibility == StringAttr("public")]
    if len(public) != 1:
        raise TilewrightError(f"a module to compile has one public tt.func, this one has {len(public)}")
    return public[0]


def _signature(kind: Attribute) -> str:
    if isinstance(kind, TilePointerType):
        return f"*{_signature(kind.pointee)}"
    return dtype_of(kind).signature


def _simplified(text: str, name: str, metadata: dict[str, Any]) -> ModuleOp:
    module = pipeline.run_passes(parse_module(text, name), pipeline.SIMPLIFY_TEXT)
    metadata["stored"] = sorted(effects.effects_of(module).writes)
    return module


def compile_ir(source: IRSource, options: Options, target: Target | None = None) -> CompiledKernel:
    """Compile tile IR; nothing is kept on disk.

    Args:
        source: the text.
        options: compile options.
        target: default is that of the active driver.
    """
    begin = time.perf_counter()
    target = driver.active.get_current_target() if target is None else target
    backend, specialization = backend_of(target), source.specialization()
    metadata: dict[str, Any] = {"name": source.name, "types": list(specialization.runtime_types)}
    metadata["params"] = list(specialization.names)
    # parsed once more: the passes work in place, and a source may be compiled twice
    parse = Stage(lambda text, found: _simplified(text, str(source.path), found), print_module)
    stages = {"ttir": parse, **backend.stages(options, target)}
    outcome = run_stages(stages, source.text, metadata, source.name, knobs.compilation)
    kernel = CompiledKernel(source.name, target, metadata, source.hash(), outcome.texts, outcome.seconds)
    kernel.module = backend.load(kernel.binary, metadata)
    kernel.specialization = specialization
    kernel.metadata = describe_kernel(options, target, kernel.hash, metadata)
    kernel.total_seconds = time.perf_counter() - begin
    return kernel
