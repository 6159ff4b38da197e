"""Every operation compiles for other CPUs, without calls to conversion helpers that a process may lack."""

from __future__ import annotations

import re

import pytest

from tests.backends.llvm.harness import build
from tilewright.backends.llvm import casts, codegen, elementwise, features, vecmath
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I1, PTR, V

LINUX = "x86_64-unknown-linux-gnu"
ARM = "aarch64-unknown-linux-gnu"
TARGETS = {
    "x86-64": (LINUX, "x86-64"),
    "haswell": (LINUX, "haswell"),
    "skylake-avx512": (LINUX, "skylake-avx512"),
    "sapphirerapids": (LINUX, "sapphirerapids"),
    "znver5": (LINUX, "znver5"),
    "neoverse-n1": (ARM, "neoverse-n1"),
    "generic-arm": (ARM, "generic"),
    "apple-m1": ("arm64-apple-macosx14.0.0", "apple-m1"),
}
# Calls that are ours (libm) or that LLVM makes where the instruction set lacks an operation: in every C runtime.
LIBM = set(vecmath.ACCURACY) | {"pow", "fmod", "fmodf", "memset", "memcpy", "tilewright.reduce_far"}
WITHOUT_SSE4 = {f"{name}{kind}" for name in ("floor", "ceil", "trunc", "rint", "fma") for kind in ("", "f")}


def target(name: str) -> features.CpuFeatures:
    triple, cpu = TARGETS[name]
    return features.describe(triple, cpu)


def add_function(module: Module, number: int, name: str, element: str, lanes: int) -> None:
    """One operation between a load and a store."""
    entry = elementwise.TABLE[name]
    f = module.function(f"k{number}", params=[PTR, PTR], linkage="")
    t = casts.storage(element, lanes)
    args = [f.load(t, f.gep(f.args[0], 512 * i)) for i in range(entry.arity)]
    attributes = {"cmpi": {"predicate": "slt"}, "cmpf": {"predicate": "ult"}}.get(name, {})
    if name == "select":
        args[0] = f.cast("trunc", f.load(casts.storage("i8", lanes), f.args[0]), I1)
    result = elementwise.emit(f, name, *args, **attributes)
    if result.type.elem == "i1":
        result = casts.store_bool(f, result)
    f.store(result, f.args[1])
    f.ret()


def all_operations(isa: features.CpuFeatures, elements: dict[str, tuple[str, ...]], lanes: int) -> str:
    module = Module(isa)
    number = 0
    for name, entry in elementwise.TABLE.items():
        for element in elements[entry.kind]:
            add_function(module, number, name, element, lanes)
            number += 1
    return module.render()


def calls(text: str) -> set[str]:
    """Symbols that assembly calls."""
    found = re.findall(r"^\s+(?:callq?|jmp|bl|b)\s+_?([A-Za-z_][\w.]*)", text, re.M)
    return {name for name in found if not re.match(r"L?BB|k\d", name)}


@pytest.mark.parametrize("name", TARGETS)
def test_every_operation_compiles(name: str) -> None:
    isa = target(name)
    elements = {"int": ("i8", "i32", "i64"), "float": ("f32", "f64", "f16", "bf16"), "any": ("f32", "f16")}
    for lanes, chosen in (
        (2 * isa.native_lanes(32), elements),
        (0, {"int": ("i32",), "float": ("f32",), "any": ("f32",)}),
    ):
        text = codegen.assembly(all_operations(isa, chosen, lanes), isa, optimize="none", level=1)
        allowed = LIBM | (WITHOUT_SSE4 if name == "x86-64" else set())
        assert calls(text) <= allowed, calls(text) - allowed


CASTS = [
    ("truncf", "f32", "bf16"), ("truncf", "f32", "f16"), ("truncf", "f64", "f16"), ("truncf", "f64", "bf16"),
    ("extf", "f16", "f32"), ("extf", "bf16", "f32"), ("fptosi", "f32", "i8"), ("fptoui", "f32", "i32"),
    ("fptosi", "f64", "i64"), ("sitofp", "i64", "f32"), ("uitofp", "i32", "f32"), ("sitofp", "i32", "bf16"),
    ("fp_to_fp", "f32", "f8E4M3FN"), ("fp_to_fp", "f8E5M2", "f16"), ("trunci", "i64", "i8"), ("extsi", "i8", "i64"),
]  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_every_conversion_compiles(name: str) -> None:
    isa = target(name)
    for op, src, dst in CASTS:

        def body(f: Function, args: list[V], op: str = op, src: str = src, dst: str = dst) -> V:
            return casts.convert(f, op, args[0], src, dst)

        text = codegen.assembly(build(body, (src,), dst, 2 * isa.native_lanes(32), isa).render(), isa)
        assert calls(text) <= set(), (op, src, dst, calls(text))


def test_scalar_operations_compile_for_nvidia() -> None:
    isa = features.describe("nvptx64-nvidia-cuda", "sm_90", "+ptx80")
    module = Module(isa)
    skipped = {"remf"}  # a library function on the CPU
    number = 0
    for name, entry in elementwise.TABLE.items():
        if name not in skipped:
            add_function(module, number, name, "i32" if entry.kind == "int" else "f32", 0)
            number += 1
    text = codegen.assembly(module.render(), isa)
    assert ".visible .func" in text or ".visible" in text
    assert "fma.rn.f32" in text


def test_hardware_conversions_are_used_where_they_are() -> None:
    def body(f: Function, args: list[V]) -> V:
        return casts.convert(f, "truncf", args[0], "f32", "bf16")

    for name, used in (("sapphirerapids", True), ("skylake-avx512", False), ("haswell", False)):
        isa = target(name)
        text = codegen.assembly(build(body, ("f32",), "bf16", 16, isa).render(), isa)
        assert ("vcvtneps2bf16" in text) is used, name


def test_exp_uses_the_scale_instruction_of_avx512() -> None:
    def body(f: Function, args: list[V]) -> V:
        return elementwise.emit(f, "exp", args[0])

    for name, used in (("skylake-avx512", True), ("haswell", False), ("neoverse-n1", False)):
        isa = target(name)
        text = codegen.assembly(build(body, ("f32",), "f32", 4 * isa.native_lanes(32), isa).render(), isa)
        assert ("vscalefps" in text) is used, name
        assert calls(text) == set(), name
