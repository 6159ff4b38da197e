"""`triton.tools.disasm`, with a program in the place of nvdisasm."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.tools import disasm

TEXT = """\t.headerflags
//--------------------- .text.first --------------------------
    IADD3 R0, R0, R1, RZ ;
//--------------------- .text.second --------------------------
    EXIT ;
"""


def test_functions_of_a_cubin(monkeypatch, tmp_path):
    monkeypatch.setattr(disasm, "disassemble", lambda image: TEXT if image == b"cubin" else None)
    file = tmp_path / "kernel.cubin"
    file.write_bytes(b"cubin")
    assert disasm.get_sass(b"cubin") == TEXT
    assert "IADD3" in disasm.extract(str(file), "first") and "EXIT" not in disasm.extract(str(file), "first")
    assert "EXIT" in disasm.get_sass(b"cubin", "second")
    with pytest.raises(ArgumentError, match="first, second"):
        disasm.get_sass(b"cubin", "fir")
    with pytest.raises(UnsupportedError, match="nvdisasm"):
        disasm.get_sass(b"other")
