"""Features of targets, and text to object to address."""

from __future__ import annotations

import ctypes

import pytest

from tilewright.backends.llvm import codegen, features, names
from tilewright.backends.llvm.module import Module
from tilewright.backends.llvm.types import I64
from tilewright.base.errors import InternalError, UnsupportedError

LINUX = "x86_64-unknown-linux-gnu"


def constant_function(value: int) -> str:
    module = Module(features.host())
    f = module.function("k", I64, [I64], linkage="")
    f.ret(f.add(f.args[0], value))
    return module.render()


def test_named_targets() -> None:
    haswell = features.describe(LINUX, "haswell")
    assert haswell.vector_bytes == 32 and haswell.has("fma", "f16c") and not haswell.has_zmm
    server = features.describe(LINUX, "sapphirerapids")
    assert server.vector_bytes == 64 and server.has("amx-tile", "amx-bf16", "avx512bf16", "avxvnni")
    base = features.describe(LINUX, "x86-64")
    assert base.vector_bytes == 16 and not base.has_fma and not base.has_half_convert
    arm = features.describe("aarch64-unknown-linux-gnu", "neoverse-n1")
    assert arm.vector_bytes == 16 and arm.has_fma and arm.has("dotprod") and not arm.is_x86
    assert features.describe("arm64-apple-macosx14.0.0").arch == "aarch64"
    assert (server.native_lanes(32), haswell.native_lanes(64), base.native_lanes(1)) == (16, 4, 16)


def test_feature_changes() -> None:
    less = features.describe(LINUX, "sapphirerapids", "-avx512bw, -amx-tile")
    assert less.vector_bytes == 32 and not less.has("amx-tile") and less.has("amx-bf16")
    more = features.describe(LINUX, "x86-64", "+avx2,+fma")
    assert more.vector_bytes == 32 and more.has_fma
    assert less.key != features.describe(LINUX, "sapphirerapids").key


ARM_CPUS = ("cortex-a76", "cortex-a78", "neoverse-n1", "neoverse-n2", "neoverse-n3", "neoverse-v1", "neoverse-v2",
            "neoverse-v3", "grace", "apple-m1", "apple-m2", "apple-m3", "apple-m4")  # fmt: skip


_PRODUCTS = """
define <4 x i32> @k(<4 x i32> %c, <16 x i8> %a) {
  %s = call <4 x i32> @llvm.aarch64.neon.INSTRUCTION.v4i32.v16i8(<4 x i32> %c, <16 x i8> %a, <16 x i8> %a)
  ret <4 x i32> %s
}
declare <4 x i32> @llvm.aarch64.neon.INSTRUCTION.v4i32.v16i8(<4 x i32>, <16 x i8>, <16 x i8>)
"""


@pytest.mark.parametrize("cpu", ARM_CPUS)
def test_llvm_knows_the_arm_processors_and_their_features(cpu: str) -> None:
    isa = features.describe("aarch64-unknown-linux-gnu", cpu)
    names.check_names(isa)
    for feature, instruction in (("dotprod", "udot"), ("i8mm", "smmla")):
        if isa.has(feature):
            assert instruction in codegen.assembly(_PRODUCTS.replace("INSTRUCTION", instruction), isa)


def test_features_of_an_arm_host() -> None:
    told = "-aes,+crc,+neon,-sve"
    known = features._arm_flags("neoverse-v1", told, frozenset({"neon", "fp-armv8", "dotprod"})).split(",")
    assert {"+neon", "+dotprod", "-bf16", "-crc", "-aes", "-sve"} <= set(known)  # the system knows better than the name
    unknown = features._arm_flags("apple-m2", told, None).split(",")
    assert {"+neon", "+dotprod", "+bf16", "+crc", "-sve"} <= set(unknown)
    assert "+dotprod" not in features._arm_flags("of tomorrow", "", None)


def test_the_host_is_described_by_llvm() -> None:
    host = features.host()
    assert host.cpu and host.triple
    assert features.describe() == host
    if host.available:
        one = sorted(host.available)[0]
        assert not features.describe(flags=f"-{one}").has(one)


def test_compile_load_call() -> None:
    libraries = [codegen.load(codegen.compile_object(constant_function(n), features.host()), ["k"]) for n in (1, 2)]
    calls = [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("k")) for library in libraries]
    assert [call(40) for call in calls] == [41, 42]


def test_external_symbols() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    callback = kind(lambda x: x * 3)
    module = Module(features.host())
    f = module.function("k", I64, [I64], linkage="")
    f.ret(f.call("helper", I64, [f.args[0]]))
    image = codegen.compile_object(module.render(), features.host())
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    library = codegen.load(image, ["k"], {"helper": address})
    assert kind(library.address("k"))(5) == 15


@pytest.mark.parametrize("optimize", ("none", "light", "full"))
def test_pipelines(optimize: str) -> None:
    image = codegen.compile_object(constant_function(7), features.host(), optimize=optimize)
    library = codegen.load(image, ["k"])
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("k"))(0) == 7


def test_rejected_text_is_an_internal_error_with_the_text_kept() -> None:
    with pytest.raises(InternalError, match="LLVM rejects") as caught:
        codegen.compile_object("define void @k() { ret i32 0 }", features.host())
    path = str(caught.value.hint).rpartition(" ")[2]
    with open(path, encoding="utf-8") as file:
        assert "ret i32 0" in file.read()


@pytest.mark.parametrize("damage", (b"", b"not an object", None))
def test_damaged_images_are_refused(damage: bytes | None) -> None:
    image = codegen.compile_object(constant_function(7), features.host())[:200] if damage is None else damage
    with pytest.raises(InternalError):
        codegen.load(image, ["k"])


def test_missing_symbol_is_an_error() -> None:
    image = codegen.compile_object(constant_function(7), features.host())
    with pytest.raises(InternalError):
        codegen.load(image, ["absent"])


def test_unknown_target() -> None:
    with pytest.raises(UnsupportedError, match="nonsense"):
        codegen.assembly(constant_function(1), features.describe("nonsense-unknown-unknown", "x"))


def test_assembly_and_optimized_text_are_readable() -> None:
    host = features.host()
    assert "k:" in codegen.assembly(constant_function(7), host)
    assert "define i64 @k" in codegen.optimized(constant_function(7), host)
    assert codegen.versions().startswith("llvmlite ")


_STRIDED = """
define void @k(ptr %p, i64 %stride, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = mul i64 %i, %stride
  %place = getelementptr i8, ptr %p, i64 %at
  store i32 0, ptr %place
  %next = add nsw i64 %i, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %loop, label %end
end:
  ret void
}
"""


def test_addresses_stay_as_they_are_written_in_our_code_alone() -> None:
    """LLVM's option for that is one of the process, where PTX and other programs' code are made too."""
    import llvmlite.binding as llvm

    haswell = features.describe(LINUX, "haswell")
    assert "imul" in codegen.assembly(_STRIDED, haswell)
    module = llvm.parse_assembly(_STRIDED, context=llvm.create_context())
    machine = llvm.Target.from_triple(LINUX).create_target_machine(cpu="haswell", opt=1)
    assert "imul" not in machine.emit_assembly(module)
