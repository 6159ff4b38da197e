"""The instruction families that products are tested with, on any machine: natively where it has them, else in software.

The code that is planned, packed and emitted is that of the family everywhere. What the machine lacks is replaced in the
LLVM IR (`soft_vectors`, `soft_amx`), which is then compiled for the machine. The header of a test run says which
families are native. `TILEWRIGHT_TEST_MACHINE=haswell` makes the tests take this machine for a lesser one.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.backends.cpu import soft_vectors
from tilewright.backends.cpu.device.permission import request_permission
from tilewright.backends.llvm.codegen import Library, compile_object, load
from tilewright.backends.llvm.features import CpuFeatures, describe, host

_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
_ARM = ("generic", "cortex", "neoverse", "apple")


@dataclass(frozen=True)
class Family:
    """A processor that stands for a family of instructions.

    Args:
        name: of the family.
        cpu: LLVM's name of the processor.
    """

    name: str
    cpu: str

    @property
    def isa(self) -> CpuFeatures:
        """What is planned and emitted for."""
        return described(self.cpu)

    @property
    def native(self) -> bool:
        """Whether its code runs here as it is."""
        return soften_for(self.isa) is None


FAMILIES = {
    family.name: family
    for family in (
        Family("amx", "sapphirerapids"),
        Family("avx512-bf16", "znver4"),
        Family("avx512", "skylake-avx512"),
        Family("avx-vnni", "alderlake"),
        Family("avx2", "haswell"),
        Family("sse2", "x86-64"),
        Family("neon", "neoverse-n1"),
        Family("neon-mmla", "apple-m2"),
        Family("sve", "neoverse-v1"),
    )
}


def described(cpu: str) -> CpuFeatures:
    """The view of a CPU by its name, of whichever architecture."""
    arch = "aarch64" if cpu.startswith(_ARM) else "x86_64"
    return describe(host().triple if host().arch == arch else _TRIPLES[arch], cpu)


@functools.cache
def machine() -> CpuFeatures:
    """What code may use that runs here."""
    lesser = os.environ.get("TILEWRIGHT_TEST_MACHINE")
    if lesser:
        return describe(host().triple, lesser)
    if host().has("amx-tile") and not request_permission():
        return describe(flags="-amx-tile,-amx-bf16,-amx-int8")
    return host()


def soften_for(isa: CpuFeatures) -> Callable[[str], str] | None:
    """What makes code for `isa` run on this machine; None if it runs as it is."""
    if not soft_vectors.needed(isa, machine()):
        return None
    return lambda text: soft_vectors.soften(text, machine())


def load_for(isa: CpuFeatures, text: str, exports: list[str]) -> Library:
    """Code for `isa`, made to run here and loaded."""
    soften = soften_for(isa)
    if soften is None:
        return load(compile_object(text, isa), exports)
    return load(compile_object(soften(text), machine()), exports)


def report() -> str:
    """Which families are native, for the header of a test run."""
    native = [name for name, family in FAMILIES.items() if family.native]
    emulated = [name for name in FAMILIES if name not in native]
    return f"instruction families: native {', '.join(native) or 'none'}; emulated {', '.join(emulated) or 'none'}"


def in_pairs(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combinations of a value of each axis in which every two values of two axes meet (orthogonal arrays).

    All combinations would take as many times longer as the shortest axis has values, and show little more.
    """
    numbered = [list(enumerate(axis)) for axis in axes]
    step = min(map(len, numbered))
    chosen = (row for row in itertools.product(*numbered) if sum(number for number, _ in row) % step == 0)
    return [tuple(value for _, value in row) for row in chosen]
