"""NVIDIA's libdevice: functions `__nv_*` as LLVM bitcode, linked into the modules that call one.

    declare double @__nv_pow(double, double)  --link-->  its definition and what that calls, internal to the module

The library is not ours to ship: it comes with the CUDA toolkit, with the package nvidia-nvvm, and with Triton. It is
read once per process; a module gets only the few functions that it needs.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from tilewright.backends.nvidia import toolkit
from tilewright.base.errors import UnsupportedError
from tilewright.base.knobs import knobs

_DECLARED = re.compile(r"^declare [^\n]*@(__nv_\w+)\(", re.MULTILINE)


def needed(text: str) -> frozenset[str]:
    """Functions of libdevice that a module (LLVM IR) declares."""
    return frozenset(_DECLARED.findall(text))


def bitcode_for(text: str, path: Path | None = None) -> bytes:
    """The functions of libdevice that a module declares, as bitcode; nothing if it declares none.

    Args:
        text: LLVM IR.
        path: of the library; by default the one that is found.

    Raises:
        UnsupportedError: libdevice is not found, or has no such function.
    """
    symbols, path = needed(text), path or find()
    if not symbols:
        return b""
    if path is None:
        where = f"at {knobs.cuda.libdevice}" if knobs.cuda.libdevice else "found"
        raise UnsupportedError(
            f"{', '.join(sorted(symbols))}: of NVIDIA's libdevice, which is not {where}",
            hint="pip install nvidia-nvvm, or let TILEWRIGHT_LIBDEVICE_PATH name libdevice.10.bc of a CUDA toolkit",
        )
    return _reduced(path, symbols)


def link(module: Any, bitcode: bytes) -> None:
    """Add what `bitcode_for` gave to a module, in place.

    Args:
        module: of llvmlite, with triple and data layout; the passes must still run, as they resolve `__nvvm_reflect`.
        bitcode: the functions, which become internal.
    """
    import llvmlite.binding as llvm

    if not bitcode:
        return
    part = llvm.parse_bitcode(bitcode, context=module._context)
    part.triple, part.data_layout = module.triple, module.data_layout
    names = {function.name for function in part.functions if not function.is_declaration}
    module.link_in(part)
    for function in module.functions:
        if function.name in names:
            function.linkage = "internal"


def find() -> Path | None:
    """The library's file: the one that a knob names, else one that is installed; None where there is none."""
    named = knobs.cuda.libdevice
    if named is not None:
        return named if named.is_file() else None
    return toolkit.bitcode("libdevice.10.bc")


def version() -> str:
    """Text for cache keys that tells one build from another."""
    path = find()
    return "no libdevice" if path is None else toolkit.identity(path)


@functools.lru_cache(maxsize=64)
def _reduced(path: Path, symbols: frozenset[str]) -> bytes:
    """Bitcode of some functions and what they call."""
    import llvmlite.binding as llvm

    whole = _library(path)
    missing = symbols - {function.name for function in whole.functions if not function.is_declaration}
    if missing:
        raise UnsupportedError(f"libdevice has no function {', '.join(sorted(missing))}")
    library = whole.clone()
    for function in library.functions:
        if not function.is_declaration and function.name not in symbols:
            function.linkage = "internal"
    machine = llvm.Target.from_default_triple().create_target_machine()
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(library, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(library.as_bitcode())


@functools.cache
def _library(path: Path) -> Any:
    """The whole library, parsed."""
    import llvmlite.binding as llvm

    return llvm.parse_bitcode(path.read_bytes(), context=llvm.create_context())
