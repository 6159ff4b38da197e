"""Faults of LLVM's code generator that are mended in what it emits.

LLVM 22 makes `vmovmsk %xmm27, %eax` of `vpmovq2m %xmm27, %k0; kmovd %k0, %eax` after registers are chosen. The short
form has no register above 15: the bytes name `%xmm11`, and lanes are masked by what happens to be there
(llvm/llvm-project, issue 191304). Assembly text still says what was meant, so code that has such bytes is written as
text, the long form is put back, and the text is assembled.

    object ──has the short form?──▶ no: done
                    └─▶ text ──names a register above 15?──▶ no: done
                                        └─▶ long form ─▶ object
"""

from __future__ import annotations

import re

from tilewright.backends.llvm.features import CpuFeatures

# VEX prefix of two or three bytes, no second source, 128 or 256 bits; VMOVMSKPS, VMOVMSKPD or VPMOVMSKB; two registers.
_SHORT = re.compile(
    rb"(?:\xc5|\xc4[\x01\x21\x41\x61\x81\xa1\xc1\xe1])[\x78\x79\x7c\x7d\xf8\xf9\xfc\xfd][\x50\xd7][\xc0-\xff]"
)
_LOST = re.compile(r"^\tv(movmskps|movmskpd|pmovmskb)\t(%[xy]mm(?:1[6-9]|2\d|3[01])), (%\w+)$", re.MULTILINE)
_LONG = {"movmskps": "vpmovd2m", "movmskpd": "vpmovq2m", "pmovmskb": "vpmovb2m"}


def may_lose_registers(image: bytes, isa: CpuFeatures) -> bool:
    """Whether an object for a target has the short form, of whatever register."""
    return isa.is_x86 and isa.has_zmm and _SHORT.search(image) is not None


def with_registers(assembly: str) -> str:
    """Assembly text in which every short form of a register above 15 is the long form.

    The mask register that LLVM had chosen is gone, so one is kept on the stack meanwhile; no flag changes.
    """
    return _LOST.sub(_long, assembly)


def _long(match: re.Match[str]) -> str:
    operation, vector, number = match.groups()
    lines = (
        "leaq\t-8(%rsp), %rsp",
        "kmovq\t%k1, (%rsp)",
        f"{_LONG[operation]}\t{vector}, %k1",
        f"kmovd\t%k1, {number}",
        "kmovq\t(%rsp), %k1",
        "leaq\t8(%rsp), %rsp",
    )
    return "".join(f"\t{line}\n" for line in lines).rstrip("\n")


def as_module(assembly: str) -> str:
    """LLVM IR of a module that is nothing but some assembly text."""
    lines = (line.replace("\\", r"\5C").replace('"', r"\22").replace("\t", r"\09") for line in assembly.splitlines())
    return "".join(f'module asm "{line}"\n' for line in lines)
