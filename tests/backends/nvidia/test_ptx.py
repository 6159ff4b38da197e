"""LLVM IR to PTX for every architecture, and the table of architectures."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding
import pytest

from tests.backends.nvidia.ptx_cases import ADD
from tilewright.backends.nvidia import ptx
from tilewright.backends.nvidia.arch import CAPABILITIES, arch_of, features_of, target_of
from tilewright.base.errors import InternalError, UnsupportedError
from tilewright.base.target import Target
from tilewright.devices.registry import parse_target


@pytest.mark.parametrize(
    ("capability", "version", "name"),
    [
        (80, "7.8", "sm_80"), (86, "7.8", "sm_86"), (89, "8.4", "sm_89"), (90, "8.6", "sm_90a"),
        (100, "8.8", "sm_100a"), (120, "8.8", "sm_120a"),
    ],
)  # fmt: skip
def test_every_architecture(capability: int, version: str, name: str) -> None:
    text = ptx.compile_ptx(ADD, arch_of(capability))
    assert f".version {version}" in text and f".target {name}\n" in text
    assert ".visible .entry add(" in text and ".reqntid 128" in text and "ld.global.b32" in text


def test_passes_run_but_nothing_is_vectorised() -> None:
    text = """
define ptx_kernel void @k(ptr addrspace(1) %p) {
  %q = getelementptr float, ptr addrspace(1) %p, i64 1
  %x = load float, ptr addrspace(1) %p, align 8
  %y = load float, ptr addrspace(1) %q
  %a = fadd float %x, 1.0
  %b = fadd float %y, 1.0
  %dead = fadd float %a, %b
  store float %a, ptr addrspace(1) %p, align 8
  store float %b, ptr addrspace(1) %q
  ret void
}
"""
    assert "%dead" not in ptx.optimized(text, arch_of(80))
    assert "x float>" not in ptx.optimized(text, arch_of(80))
    assert "add.rn.f32" in ptx.compile_ptx(text, arch_of(80), optimize=False)


_LOOP = """
define ptx_kernel void @k(ptr addrspace(1) %p, i32 %n, i32 %m) {
entry:
  br label %again
again:
  %i = phi i32 [ 0, %entry ], [ %next, %again ]
  %same = mul i32 %m, %m
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %i
  store volatile i32 %same, ptr addrspace(1) %q
  %next = add i32 %i, 1
  %go = icmp slt i32 %next, %n
  br i1 %go, label %again, label %end
end:
  ret void
}
"""
_BRANCH = """
define ptx_kernel void @k(ptr addrspace(1) %p, i32 %n, i32 %m) {
entry:
  %once = mul i32 %m, %m
  store volatile i32 %once, ptr addrspace(1) %p
  %go = icmp slt i32 %m, %n
  br i1 %go, label %again, label %end
again:
  %twice = mul i32 %m, %m
  %sum = add i32 %twice, 1
  %more = add i32 %sum, 2
  store volatile i32 %more, ptr addrspace(1) %p
  br label %end
end:
  ret void
}
"""


def test_what_does_not_change_leaves_loops() -> None:
    assert ptx.optimized(_LOOP, arch_of(90)).index("mul i32") < ptx.optimized(_LOOP, arch_of(90)).index("again:")


def test_kernels_without_loops_are_simplified_across_branches() -> None:
    made = ptx.optimized(_BRANCH, arch_of(90))
    assert made.count("mul i32") == 1 and made.count("add i32") == 1


def test_narrow_negations_are_unsigned() -> None:
    """The assembler of CUDA 13.0 forgets that a signed one may overflow."""
    text = """define void @negate(ptr addrspace(1) %p, ptr addrspace(1) %q) {
      %x = load i16, ptr addrspace(1) %p
      %y = sub i16 0, %x
      %wide = sext i16 %y to i64
      store i64 %wide, ptr addrspace(1) %q
      ret void
    }"""
    made = ptx.compile_ptx(text, arch_of(90))
    assert "neg.s16" not in made and "sub.u16" in made


def test_text_that_llvm_rejects() -> None:
    with pytest.raises(InternalError, match="LLVM rejects generated code") as raised:
        ptx.compile_ptx("define void @k() { ret i32 }", arch_of(90))
    assert ".ll" in str(raised.value)


def test_unknown_architectures() -> None:
    for wrong in (75, 70, 99, Target("cuda", "sm_90")):
        with pytest.raises(UnsupportedError, match="compute capability") as raised:
            arch_of(wrong)
        assert "80, 86, 87, 89, 90, 100" in str(raised.value)


def test_targets_by_text() -> None:
    assert parse_target("cuda:90") == parse_target("cuda:sm_90a") == target_of(90) == Target("cuda", 90, warp_size=32)
    assert parse_target("cpu:znver4") == Target("cpu", "znver4")
    assert parse_target(target_of(120)) is not None
    for wrong in ("cuda", "cuda:", "cuda:hopper", "hip:gfx942", ""):
        with pytest.raises(UnsupportedError, match="is no target"):
            parse_target(wrong)


def test_features_by_name() -> None:
    hopper, ada = features_of(target_of(90)), features_of(target_of(89))
    assert hopper.has("sm_80", "sm_90", "sm_90a") and ada.has("sm_86", "sm_89") and not ada.has("sm_90")
    assert not features_of(target_of(100)).has("sm_90a")
    assert (hopper.cpu, hopper.flags, hopper.vector_bytes) == ("sm_90a", "+ptx86", 4)
    assert hopper.has_fma and hopper.has_half_convert and not hopper.is_x86


def test_what_architectures_have() -> None:
    rows = {
        capability: (arch.has_wgmma, arch.has_tma, arch.has_fp8_conversions)
        for capability in CAPABILITIES
        for arch in [arch_of(capability)]
    }
    assert rows[80] == rows[86] == (False, False, False) and rows[89] == (False, False, True)
    assert rows[90] == (True, True, True) and rows[100] == rows[120] == (False, True, True)
    assert [arch_of(c).shared_limit // 1024 for c in (80, 86, 89, 90, 100, 120)] == [163, 99, 99, 227, 227, 99]


@pytest.mark.parametrize(
    ("capability", "warps", "registers", "shared", "blocks"),
    [
        (90, 4, 32, 0, 16),  # by warps: 64 / 4
        (90, 1, 16, 0, 32),  # by blocks
        (90, 4, 255, 0, 2),  # by registers: 8 warps of 8192
        (90, 8, 128, 0, 2),
        (90, 4, 32, 100 * 1024, 2),  # by shared memory
        (90, 4, 32, 228 * 1024, 0),
        (86, 4, 40, 0, 12),  # 48 warps
        (80, 32, 64, 0, 1),
    ],
)
def test_occupancy(capability: int, warps: int, registers: int, shared: int, blocks: int) -> None:
    arch = arch_of(capability)
    assert arch.blocks_per_multiprocessor(warps, registers, shared) == blocks
    assert arch.occupancy(warps, registers, shared) == blocks * warps / arch.max_warps


def test_the_library_that_the_options_name_is_linked(tmp_path: Path) -> None:
    body = "define double @__nv_pow(double %x, double %y) {\n  %r = fmul double %x, 4.2e1\n  ret double %r\n}"
    (tmp_path / "mine.bc").write_bytes(llvmlite.binding.parse_assembly(body).as_bitcode())
    text = """
declare double @__nv_pow(double, double)
define ptx_kernel void @k(ptr addrspace(1) %p) {
  %x = load double, ptr addrspace(1) %p
  %r = call double @__nv_pow(double %x, double %x)
  store double %r, ptr addrspace(1) %p
  ret void
}"""
    assert "0d4045000000000000" in ptx.compile_ptx(text, arch_of(90), library=tmp_path / "mine.bc")  # 42.0
