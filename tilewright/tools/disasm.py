"""`triton.tools.disasm`: the machine code of a cubin as text."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.backends.nvidia.cubin import disassemble
from tilewright.base.errors import ArgumentError, UnsupportedError


def get_sass(cubin_asm: bytes, fun: str | None = None) -> str:
    """The SASS of a cubin.

    Args:
        cubin_asm: the bytes of the cubin (`CompiledKernel.asm["cubin"]`).
        fun: name of a function; by default all are shown.

    Raises:
        UnsupportedError: there is no nvdisasm, or it does not read this.
        ArgumentError: there is no such function.
    """
    text = disassemble(cubin_asm)
    if text is None:
        raise UnsupportedError(
            "no SASS: nvdisasm is not found, or does not read this cubin",
            hint="install the CUDA toolkit, or put nvdisasm on the PATH",
        )
    if fun is None:
        return text
    parts = re.split(r"(?m)^(?=\s*//-+ \.text\.)", text)
    found = [part for part in parts if re.match(rf"\s*//-+ \.text\.{re.escape(fun)}\s", part)]
    if not found:
        names = re.findall(r"(?m)^\s*//-+ \.text\.(\S+)", text)
        raise ArgumentError(f"the cubin has no function {fun!r}", hint=f"it has {', '.join(names) or 'none'}")
    return found[0]


def extract(file_path: str, fun: str | None = None) -> str:
    """The SASS of a file that holds a cubin; as `get_sass`.

    Args:
        file_path: of the cubin.
        fun: name of a function; by default all are shown.
    """
    return get_sass(Path(file_path).read_bytes(), fun)
