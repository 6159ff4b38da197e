"""NVIDIA's libdevice: functions `__nv_*` as LLVM bitcode, linked into the modules that call one.

    declare double @__nv_pow(double, double)  --link-->  its definition and what that calls, internal to the module

The library is not ours to ship: it comes with the CUDA toolkit, with the package nvidia-nvvm, and with Triton. It is
read once per process; a module gets only the few functions that it needs.
"""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.backends.llvm import foreign
from tilewright.backends.nvidia import toolkit
from tilewright.base.errors import UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.base.options import ExternLibrary

_DECLARED = re.compile(r"^declare [^\n]*@(__nv_\w+)\(", re.MULTILINE)


def needed(text: str) -> frozenset[str]:
    """Functions of libdevice that a module (LLVM IR) declares."""
    return frozenset(_DECLARED.findall(text))


def bitcode_for(symbols: frozenset[str], path: Path | None = None) -> bytes:
    """Functions of libdevice as bitcode; nothing if none are asked for.

    Args:
        symbols: of the functions.
        path: of the library; by default the one that is found.

    Raises:
        UnsupportedError: libdevice is not found, or has no such function.
    """
    if not symbols:
        return b""
    path = path or find()
    if path is None:
        where = f"at {knobs.cuda.libdevice}" if knobs.cuda.libdevice else "found"
        raise UnsupportedError(
            f"{', '.join(sorted(symbols))}: of NVIDIA's libdevice, which is not {where}",
            hint="pip install nvidia-nvvm, or let TILEWRIGHT_LIBDEVICE_PATH name libdevice.10.bc of a CUDA toolkit",
        )
    return _reduced(path, symbols)


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


def _reduced(path: Path, symbols: frozenset[str]) -> bytes:
    """Bitcode of some functions and what they call."""
    library = ExternLibrary("libdevice", str(path), toolkit.identity(path))
    missing = symbols - foreign.signatures(library).keys()
    if missing:
        raise UnsupportedError(f"libdevice has no function {', '.join(sorted(missing))}")
    return foreign.functions_of(library, symbols)
