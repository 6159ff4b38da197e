"""Every family compiles to objects for targets that this machine may not be, without calls into a run-time library."""

from __future__ import annotations

import re

import pytest

from tests.backends.cpu.dot_harness import Case, emit_case
from tilewright.backends.cpu.emit.dot import plan_dot
from tilewright.backends.llvm.codegen import assembly
from tilewright.backends.llvm.features import CpuFeatures, describe
from tilewright.backends.llvm.module import Module

_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_TARGETS = [
    (_X86, "x86-64", ""), (_X86, "haswell", ""), (_X86, "alderlake", "+avxvnniint8"), (_X86, "skylake-avx512", ""),
    (_X86, "znver4", ""), (_X86, "sapphirerapids", ""), (_ARM, "neoverse-n1", ""),
    (_ARM, "neoverse-v2", ""), ("aarch64-apple-darwin", "apple-m1", ""), ("aarch64-apple-darwin", "apple-m4", ""),
]  # fmt: skip
_TYPES = [
    ("f32", "f32", "f32"), ("f64", "f64", "f64"), ("f16", "f16", "f32"), ("bf16", "bf16", "f32"),
    ("f8E5M2", "f8E4M3FN", "f32"), ("i8", "i8", "i32"), ("i64", "i64", "i64"),
]  # fmt: skip


@pytest.mark.parametrize("types", _TYPES, ids=lambda types: types[0])
@pytest.mark.parametrize("target", _TARGETS, ids=lambda target: target[1])
def test_compiles(target: tuple[str, str, str], types: tuple[str, str, str]) -> None:
    isa = describe(*target)
    for shape, case in (((32, 64, 64), Case(a="mn", b="k")), ((13, 37, 19), Case(fresh=False))):
        module = Module(isa)
        emit_case(module, plan_dot(isa, *shape, *types, "tf32"), case)
        callees = re.findall(r"^\s+(?:callq?|bl)\s+(\S+)", assembly(module.render(), isa), re.MULTILINE)
        assert callees and all(name.lstrip("_").startswith("dot.") for name in callees)


def test_amx_instructions() -> None:
    isa = describe(_X86, "sapphirerapids")
    text = {}
    for types in (("bf16", "bf16", "f32"), ("i8", "i8", "i32"), ("f32", "f32", "f32")):
        module = Module(isa)
        emit_case(module, plan_dot(isa, 64, 64, 64, *types, "tf32"), Case())
        text[types[0]] = assembly(module.render(), isa)
    for listing in text.values():
        assert listing.count("ldtilecfg") == 1 and listing.count("tilerelease") == 1
    assert text["bf16"].count("tdpbf16ps") == 4 and text["i8"].count("tdpbssd") == 4
    assert text["f32"].count("tdpbf16ps") == 16


def _product(isa: CpuFeatures, types: tuple[str, str, str]) -> str:
    module = Module(isa)
    emit_case(module, plan_dot(isa, 64, 64, 64, *types), Case())
    return assembly(module.render(), isa)


@pytest.mark.parametrize(
    ("cpu", "flags", "int8", "bf16"),
    [
        ("generic", "", "mla", "fmla"), ("generic", "+dotprod", "sdot", "fmla"), ("generic", "+bf16", "mla", "bfmmla"),
        ("generic", "+i8mm", "smmla", "fmla"), ("neoverse-n1", "", "sdot", "fmla"),
        ("neoverse-n1", "-dotprod", "mla", "fmla"), ("neoverse-v1", "", "smmla", "bfmmla"),
        ("neoverse-n2", "", "smmla", "bfmmla"), ("neoverse-v2", "-bf16", "smmla", "fmla"),
        ("neoverse-v2", "-i8mm", "sdot", "bfmmla"), ("grace", "", "smmla", "bfmmla"), ("apple-m1", "", "sdot", "fmla"),
        ("apple-m2", "", "smmla", "bfmmla"), ("apple-m4", "", "smmla", "bfmmla"),
    ],
)  # fmt: skip
def test_products_of_arm_are_those_of_its_features(cpu: str, flags: str, int8: str, bf16: str) -> None:
    isa = describe("aarch64-apple-darwin" if cpu.startswith("apple") else _ARM, cpu, flags)
    for types, instruction in ((("i8", "i8", "i32"), int8), (("bf16", "bf16", "f32"), bf16)):
        found = set(re.findall(r"^\s+(mla|fmla|sdot|bfdot|smmla|bfmmla)\b", _product(isa, types), re.MULTILINE))
        assert found == {instruction}
    assert "fmla" in _product(isa, ("f32", "f32", "f32"))


def _inner_loop(text: str, instruction: str) -> str:
    """The lines of the only loop that has an instruction."""
    loops = re.findall(r"^(\.LBB\d+_\d+):.*\n((?:(?!^\.LBB).*\n)*?)\s+b\.\w+\s+\1\n", text, re.MULTILINE)
    (found,) = [body for _, body in loops if instruction in body]
    return found


@pytest.mark.parametrize(
    ("types", "instruction"), [(("i8", "i8", "i32"), "smmla"), (("bf16", "bf16", "f32"), "bfmmla")]
)
def test_products_of_blocks_keep_accumulators_in_registers(types: tuple[str, str, str], instruction: str) -> None:
    loop = _inner_loop(_product(describe(_ARM, "neoverse-v2"), types), instruction)
    assert loop.count(instruction) == 16 and "[sp" not in loop
    assert loop.count("ldr\tq") + 2 * loop.count("ldp\tq") == 4  # of eight columns; of eight rows eight halves


def test_micro_kernel_keeps_accumulators_in_registers() -> None:
    isa = describe(_X86, "znver5")
    module = Module(isa)
    emit_case(module, plan_dot(isa, 64, 64, 64, "f32", "f32", "f32"), Case())
    kernel = assembly(module.render(), isa).split("dot.micro.fma.f32.f32.8x2x16:")[1].split("retq")[0]
    loop = re.search(r"^(\.LBB\d+_\d+):\n((?:(?!^\.LBB).*\n)*?)\s+j\w+\s+\1\n", kernel, re.MULTILINE)
    assert loop is not None
    assert loop.group(2).count("vfmadd231ps") == 16 and "(%rsp" not in loop.group(2)
