"""Machine code of products for every target: which instructions, how many registers, what the assembler says."""

from __future__ import annotations

import re

import pytest

from tests.backends.nvidia import product_kernels as kernels
from tests.backends.nvidia.test_pipeliner import attention_of, build
from tilewright.backends.nvidia.cubin import assembler, serial_notes

CAPABILITIES = (80, 86, 89, 90, 100, 120)
needs_assembler = pytest.mark.skipif(assembler() is None, reason="nvJitLink is not installed")


@needs_assembler
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_matmul_on_every_target(capability: int) -> None:
    ptx, cubin = build(kernels.matmul, "bf16", capability, (64, 64, 32)).assembled()
    assert not cubin.spill_bytes and not serial_notes(cubin.notes)
    found = {
        name: len(re.findall(name, ptx)) for name in ("wgmma.mma_async", "mma.sync", "ldmatrix.sync", "cp.async.cg")
    }
    if capability == 90:
        assert found["wgmma.mma_async"] == 2 and not found["mma.sync"]
    else:
        # 64 x 64 x 32 by 4 warps: 2 x 4 tiles of 16 x 8 each, in 2 steps; A takes 4 ldmatrix, B (of 16 x 16) also 4.
        assert found["mma.sync"] == 16 * 2 // 2 and not found["wgmma.mma_async"]
        assert found["ldmatrix.sync"] == 8
    assert found["cp.async.cg"] == 3 * 4


def test_products_of_a_hopper_tile_stay_in_flight() -> None:
    ptx, cubin = build(kernels.matmul, "bf16", 90, (128, 256, 64), 8, 3).assembled()
    body = ptx[ptx.index("wgmma.fence") :]
    assert ptx.count("wgmma.mma_async") == 4 and "wgmma.wait_group.sync.aligned \t1" in body.replace(
        "aligned 1", "aligned \t1"
    )
    assert not serial_notes(cubin.notes) and not cubin.spill_bytes and cubin.registers < 200


def test_halves_of_an_accumulator_start_behind_one_fence() -> None:
    """4 warps hold 128 rows as two blocks of 64; in flight, nothing but the products has their registers."""
    ptx, cubin = build(kernels.matmul, "bf16", 90, (128, 128, 64), 4, 3).assembled()
    assert ptx.count("wgmma.mma_async") == 8 and ptx.count("wgmma.fence") == 1
    assert not serial_notes(cubin.notes) and not cubin.spill_bytes


def test_attention_of_a_hopper_tile() -> None:
    ptx, cubin = attention_of(90, 8, 128, 64, 128).assembled()
    assert not serial_notes(cubin.notes) and not cubin.spill_bytes and cubin.registers < 200
    loop = ptx[ptx.index("wgmma.fence") : ptx.rindex("wgmma.fence")]
    assert loop.count("bar.sync") == 0  # between the two products of an iteration


@pytest.mark.parametrize("kind", ["fp8e4nv", "i8", "fp32"])
def test_other_types_on_hopper(kind: str) -> None:
    ptx, cubin = build(kernels.matmul, kind, 90, (64, 64, 64), TRANS_B=True).assembled()
    wanted = {"fp8e4nv": "m64n64k32.f32.e4m3.e4m3", "i8": "m64n64k32.s32.s8.s8", "fp32": "m64n64k8.f32.tf32.tf32"}[kind]
    assert wanted in ptx and not serial_notes(cubin.notes) and not cubin.spill_bytes


def test_exact_products_need_no_local_memory() -> None:
    _, cubin = build(kernels.matmul, "fp32", 80, (64, 64, 32), PRECISION="ieee").assembled()
    assert not cubin.spill_bytes


@needs_assembler
def test_long_exact_products_are_loops() -> None:
    """128 sums of a thread, in steps of 16 along K."""
    ptx, cubin = build(kernels.matmul, "fp32", 90, (128, 128, 32), 4, 2, PRECISION="ieee", EVEN=True).assembled()
    assert not cubin.spill_bytes
    assert ptx.count("fma.rn.f32") == 16 * 128
