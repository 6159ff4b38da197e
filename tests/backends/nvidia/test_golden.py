"""Laid-out tile IR and PTX of small kernels, checked by FileCheck beside the kernels themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tests.filecheck_text import filecheck
from tilewright.backends.nvidia.arch import arch_of, target_of
from tilewright.backends.nvidia.cubin import assemble, serial_notes
from tilewright.backends.nvidia.emit.lower import emit_kernel
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.nvidia.ptx import compile_ptx
from tilewright.backends.nvidia.tgir.ops import print_module

CAPABILITIES = (80, 86, 89, 90, 100, 120)
Golden = tuple[Any, dict[str, str], dict[str, Any], str, str]
KERNELS: list[Golden] = []


def golden(
    types: dict[str, str], tgir: str, ptx: str, **constants: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a kernel with the types of its parameters and the checks of its two texts (for Hopper)."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        KERNELS.append((tilewright.jit(function), types, constants, tgir, ptx))
        return function

    return register


@golden(
    {"x_ptr": "*fp32!", "y_ptr": "*fp32!", "n": "i32!"},
    tgir="""
    CHECK: #L0 = #tw.layout<"register=(1) (2) (512); lane=(4) (8) (16) (32) (64); warp=(128) (256)
    CHECK-NOT: #L1
    CHECK: tt.load
    CHECK-SAME: tensor<1024x!tt.ptr<f32>, #L0>
    CHECK-NOT: ttg.convert_layout
    CHECK-NOT: ttg.barrier
    CHECK: tt.store
    """,
    ptx="""
    CHECK: .reqntid 128
    CHECK-NOT: bar.sync
    CHECK-COUNT-2: ld.global.v4.b32
    CHECK-COUNT-2: st.global.v4.b32
    CHECK: ret;
    """,
)
def doubled(x_ptr, y_ptr, n):
    offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    mask = offsets < n
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask), mask)


@golden(
    {"x_ptr": "*fp16!", "y_ptr": "*fp32!"},
    tgir="""
    CHECK: tt.load
    CHECK: "tt.reduce"
    CHECK-NOT: ttg.convert_layout
    CHECK: tt.store
    """,
    ptx="""
    CHECK: ld.global.v4.b32
    CHECK-COUNT-5: shfl.sync.bfly
    CHECK: st.shared
    CHECK: bar.sync
    CHECK: ld.shared
    CHECK-NOT: bar.sync
    CHECK: ret;
    """,
)
def row_sum(x_ptr, y_ptr):
    x = tl.load(x_ptr + tl.program_id(0) * 1024 + tl.arange(0, 1024)).to(tl.float32)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x, 0))


@golden(
    {"x_ptr": "*fp32!", "y_ptr": "*fp32!"},
    tgir="""
    CHECK: tt.load
    CHECK: "ttg.convert_layout"
    CHECK-NOT: "ttg.convert_layout"
    CHECK: tt.store
    """,
    ptx="""
    CHECK: ld.global.v4.b32
    CHECK: st.shared
    CHECK: bar.sync
    CHECK: ld.shared
    CHECK: st.global.v4.b32
    """,
)
def transposed(x_ptr, y_ptr):
    i, j = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    tl.store(y_ptr + j * 64 + i, tl.load(x_ptr + i * 64 + j))


@golden(
    {"a_ptr": "*fp16!", "b_ptr": "*fp16!", "c_ptr": "*fp32!", "K": "i32!"},
    tgir="""
    CHECK: !ttg.memdesc<tensor<3x128x64xf16
    CHECK: "ttg.async_copy_global_to_local"
    CHECK: "ttg.async_commit_group"
    CHECK: scf.for
    CHECK: "ttg.async_wait"
    CHECK: "ttng.warp_group_dot"
    CHECK-NOT: ttg.convert_layout
    CHECK: scf.yield
    CHECK: tt.store
    """,
    ptx="""
    CHECK: cp.async.cg.shared.global
    CHECK: cp.async.commit_group
    CHECK: cp.async.wait_group
    CHECK-COUNT-4: wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16
    CHECK: wgmma.commit_group
    CHECK: st.global
    """,
)
def product(a_ptr, b_ptr, c_ptr, K):
    m, n, k = tl.arange(0, 128), tl.arange(0, 128), tl.arange(0, 64)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * 128 + n[None, :]
    total = tl.zeros((128, 128), tl.float32)
    for _ in range(0, K, 64):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += 64
        b += 64 * 128
    tl.store(c_ptr + m[:, None] * 128 + n[None, :], total)


def _laid_out(kernel: Golden, capability: int) -> Any:
    fn, types, constants, *_ = kernel
    return lay_out_module(tile_ir(fn, types, **constants), CudaOptions(), target_of(capability))


IDS = [kernel[0].fn.__name__ for kernel in KERNELS]


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_laid_out_tile_ir(kernel: Golden) -> None:
    filecheck(print_module(_laid_out(kernel, 90)), kernel[3])


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_ptx(kernel: Golden) -> None:
    made = emit_kernel(_laid_out(kernel, 90), CudaOptions(), target_of(90))
    filecheck(compile_ptx(made.llvm, arch_of(90)), kernel[4])


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_machine_code(kernel: Golden, capability: int) -> None:
    """Every kernel assembles for every target, without spilled registers."""
    made = emit_kernel(_laid_out(kernel, capability), CudaOptions(), target_of(capability))
    cubin = assemble(compile_ptx(made.llvm, arch_of(capability)), arch_of(capability), kernel=made.symbol)
    assert cubin is not None and cubin.image[:4] == b"\x7fELF" and cubin.spill_bytes == 0
    assert not serial_notes(cubin.notes) and cubin.whole is None
