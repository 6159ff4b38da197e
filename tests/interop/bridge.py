"""Triton 3.9 as a neighbour: its front end makes TTIR of our case files, its parser and verifier read what we print.

Neither needs a GPU. Case files are those of `tests/fuzz`: kernels in the block language with what their arguments are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.case import Param
from tilewright.tools.modules import load_file

triton = pytest.importorskip("triton", reason="`make test-interop` installs Triton")

from triton._C.libtriton import ir  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource, make_backend  # noqa: E402

TARGET = GPUTarget("cuda", 90, 32)
BACKEND = make_backend(TARGET)
_NAMES = {
    "int1": "u1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    "float8e5": "fp8e5", "float8e4nv": "fp8e4nv",
}  # fmt: skip


def as_triton(path: Path, folder: Path) -> Any:
    """The kernel of a case file as Triton's own object."""
    text = path.read_text().replace("import tilewright.language", "import triton.language")
    other = folder / f"triton_{path.stem}.py"
    other.write_text(text.replace("import tilewright\n", "import triton as tilewright\n"))
    return load_file(other).kernel


def _signature(param: Param) -> str:
    if param.kind == "constexpr":
        return "constexpr"
    return ("*" if param.kind == "array" else "") + _NAMES[param.dtype]


def _divisible(param: Param) -> bool:
    if param.kind == "array":
        return param.aligned
    return param.kind == "scalar" and isinstance(param.value, int) and param.value % 16 == 0


def ttir(kernel: Any, params: tuple[Param, ...], options: dict[str, Any], *, optimized: bool) -> str:
    """TTIR of a Triton kernel: as its front end makes it, or after Triton's own passes over it."""
    signature = {p.name: _signature(p) for p in params}
    constants = {p.name: p.value for p in params if p.kind == "constexpr"}
    attrs = {(number,): [["tt.divisibility", 16]] for number, p in enumerate(params) if _divisible(p)}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attrs)
    parsed = BACKEND.parse_options({"default_dot_input_precision": "ieee", **options})
    context = _context()
    functions, modules = BACKEND.get_codegen_implementation(parsed), BACKEND.get_module_map()
    module = source.make_ir(TARGET, parsed, functions, modules, context)
    if optimized:
        module = BACKEND.make_ttir(module, {}, parsed, 90)
    return str(module.str_nodebug() if hasattr(module, "str_nodebug") else module)


def _context() -> Any:
    context = ir.context()
    ir.load_dialects(context)
    BACKEND.load_dialects(context)
    return context


def check_accepted(text: str, folder: Path) -> None:
    """Raise unless Triton parses and verifies `text`."""
    path = folder / "ours.ttir"
    path.write_text(text)
    context = _context()  # must outlive the module
    module = ir.parse_mlir_module(str(path), context)
    if not module.verify():
        raise AssertionError("Triton's verifier rejects the module")
