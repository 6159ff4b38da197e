"""The simulator itself: arithmetic, divergence, memory, and that it finds races and divergent barriers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.nvidia.simt import run_kernel
from tests.backends.nvidia.simt_memory import SimtError


def run(body, args=(), warps=1, shared=0, grid=(1,), params=""):
    names = params or ", ".join("ptr" if isinstance(a, np.ndarray) else "i32" for a in args)
    text = ", ".join(f"{t.strip()} %a{i}" for i, t in enumerate(names.split(","))) if names else ""
    head = "@shared = external addrspace(3) global [0 x i8], align 1024\n"
    llvm = f"{head}define ptx_kernel void @k({text}) nounwind {{\nentry:\n{body}\n  ret void\n}}\n"
    return run_kernel(llvm, "k", grid, warps, list(args), shared)


TID = "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"


def at(name, base="%a0", size="i32"):
    return f"  %{name} = getelementptr {size}, ptr {base}, i32 %t\n"


def test_loads_adds_and_stores():
    x = np.arange(64, dtype=np.int32)
    run(
        TID + at("p") + "  %x = load i32, ptr %p, align 4\n  %y = add nsw i32 %x, %a1\n  store i32 %y, ptr %p, align 4",
        [x, 7],
        2,
    )
    assert (x == np.arange(64) + 7).all()


def test_grid_gives_every_block_its_numbers():
    x = np.zeros(6, np.int32)
    body = """  %i = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %j = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %n = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %r = mul i32 %j, %n
  %k = add i32 %r, %i
  %p = getelementptr i32, ptr %a0, i32 %k
  store i32 %k, ptr %p, align 4"""
    run(body, [x], grid=(3, 2))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_threads_diverge_in_loops_and_meet_again():
    """Thread t sums 0 .. t-1; after the loop all lanes shuffle."""
    x = np.zeros(32, np.int32)
    body = (
        TID
        + """  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %i1, %body ]
  %s = phi i32 [ 0, %entry ], [ %s1, %body ]
  %c = icmp slt i32 %i, %t
  br i1 %c, label %body, label %exit
body:
  %s1 = add i32 %s, %i
  %i1 = add i32 %i, 1
  br label %head
exit:
  %o = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %s, i32 1, i32 31)
"""
        + at("p")
        + "  store i32 %o, ptr %p, align 4"
    )
    run(body, [x])
    sums = np.arange(32) * (np.arange(32) - 1) // 2
    assert (x == sums[np.arange(32) ^ 1]).all()


def test_calls_internal_functions_and_joins_branches():
    x = np.zeros(32, np.float32)
    llvm = """define internal float @twice(float %a0) nounwind {
entry:
  %v = fmul float %a0, 0x4000000000000000
  ret float %v
}
define ptx_kernel void @k(ptr %a0) nounwind {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %f = sitofp i32 %t to float
  %c = icmp ult i32 %t, 10
  br i1 %c, label %then.1, label %endif.1
then.1:
  %d = call float @twice(float %f)
  br label %endif.1
endif.1:
  %r = phi float [ %f, %entry ], [ %d, %then.1 ]
  %p = getelementptr float, ptr %a0, i32 %t
  store float %r, ptr %p, align 4
  ret void
}"""
    run_kernel(llvm, "k", (1,), 1, [x])
    assert (x == np.where(np.arange(32) < 10, 2, 1) * np.arange(32)).all()


SHARED = (
    TID
    + """  %at = mul i32 %t, 4
  %mine = getelementptr i8, ptr addrspace(3) @shared, i32 %at
  %other = xor i32 %at, {mask}
  %theirs = getelementptr i8, ptr addrspace(3) @shared, i32 %other
  store i32 %t, ptr addrspace(3) %mine, align 4
  {barrier}
  %v = load i32, ptr addrspace(3) %theirs, align 4
"""
    + at("p")
    + "  store i32 %v, ptr %p, align 4"
)
BLOCK = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
WARP = "call void @llvm.nvvm.bar.warp.sync(i32 -1)"


def test_shared_memory_after_a_barrier():
    x = np.zeros(64, np.int32)
    run(SHARED.format(mask=128, barrier=BLOCK), [x], 2, 256)
    assert (x == np.arange(64) ^ 32).all()
    run(SHARED.format(mask=4, barrier=WARP), [x], 2, 256)
    assert (x == np.arange(64) ^ 1).all()


@pytest.mark.parametrize(("mask", "barrier"), [(4, ""), (128, ""), (128, WARP)])
def test_finds_races(mask, barrier):
    with pytest.raises(SimtError, match="race"):
        run(SHARED.format(mask=mask, barrier=barrier), [np.zeros(64, np.int32)], 2, 256)


def test_finds_a_write_after_a_read():
    body = SHARED.format(mask=128, barrier=BLOCK) + "\n  store i32 0, ptr addrspace(3) %mine, align 4"
    with pytest.raises(SimtError, match="another reads"):
        run(body, [np.zeros(64, np.int32)], 2, 256)


def test_finds_divergent_barriers_and_shuffles():
    body = TID + "  %c = icmp ult i32 %t, 8\n  br i1 %c, label %then, label %end\nthen:\n  {}\n  br label %end\nend:"
    with pytest.raises(SimtError, match="part of the block"):
        run(body.format(BLOCK))
    with pytest.raises(SimtError, match="part of a warp"):
        run(body.format("%s = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %t, i32 0, i32 31)"))


def test_finds_wild_and_misaligned_accesses():
    x = np.zeros(31, np.int32)
    with pytest.raises(SimtError, match="outside of every array"):
        run(TID + at("p") + "  store i32 %t, ptr %p, align 4", [x])
    with pytest.raises(SimtError, match="not aligned"):
        run(TID + at("p") + "  %v = load <2 x i32>, ptr %p, align 8", [x])


def test_inline_ptx_with_predicates():
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    body = (
        TID
        + at("p")
        + at("q", "%a1")
        + """  %c = icmp ult i32 %t, 5
  %v = call float asm sideeffect "mov.b32 $0, 0f3F800000; @$2 ld.global.b32 $0, [$1 + 0];", "=f,l,b"(ptr %p, i1 %c)
  call void asm sideeffect "@$2 st.global.f32 [$1], $0;", "f,l,b"(float %v, ptr %q, i1 true)"""
    )
    run(body, [x, y])
    assert (y == np.where(np.arange(32) < 5, x, 1)).all()


def test_matrices_and_copies():
    """cp.async brings 16 x 16 halves in; ldmatrix gives them out as in the PTX ISA's figure."""
    x, y = np.arange(256, dtype=np.uint16), np.zeros((32, 4, 2), np.uint16)
    body = (
        TID
        + """  %at = mul i32 %t, 16
  %from = getelementptr i8, ptr %a0, i32 %at
  %g = addrspacecast ptr %from to ptr addrspace(1)
  %to = getelementptr i8, ptr addrspace(3) @shared, i32 %at
  call void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3) %to, ptr addrspace(1) %g, i32 16)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.wait.group(i32 0)
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  %r = and i32 %t, 15
  %h = lshr i32 %t, 4
  %rr = mul i32 %r, 32
  %hh = mul i32 %h, 16
  %o = add i32 %rr, %hh
  %row = getelementptr i8, ptr addrspace(3) @shared, i32 %o
  %m = call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %row)
  %m0 = extractvalue { i32, i32, i32, i32 } %m, 0
  %m1 = extractvalue { i32, i32, i32, i32 } %m, 1
  %m2 = extractvalue { i32, i32, i32, i32 } %m, 2
  %m3 = extractvalue { i32, i32, i32, i32 } %m, 3
  %w0 = insertelement <4 x i32> poison, i32 %m0, i64 0
  %w1 = insertelement <4 x i32> %w0, i32 %m1, i64 1
  %w2 = insertelement <4 x i32> %w1, i32 %m2, i64 2
  %w3 = insertelement <4 x i32> %w2, i32 %m3, i64 3
  %q = getelementptr i8, ptr %a1, i32 %at
  store <4 x i32> %w3, ptr %q, align 16"""
    )
    run(body, [x, y], shared=512)
    lane, matrix, half = np.indices(y.shape)
    rows, columns = lane // 4 + 8 * (matrix % 2), 2 * (lane % 4) + half + 8 * (matrix // 2)
    assert (y == 16 * rows + columns).all()


def test_a_copy_is_not_there_before_the_wait():
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    body = (
        TID
        + at("from")
        + """  %at = mul i32 %t, 4
  %to = getelementptr i8, ptr addrspace(3) @shared, i32 %at
  call void asm sideeffect "cp.async.ca.shared.global [$0], [$1], 4;", "r,l"(ptr addrspace(3) %to, ptr %from)
  call void asm sideeffect "cp.async.commit_group;", ""()
  %v = load i32, ptr addrspace(3) %to, align 4
"""
        + at("q", "%a1")
        + "  store i32 %v, ptr %q, align 4"
    )
    run(body, [x, y], shared=128)
    assert (y != x).all()


def test_atomics_return_what_was_there():
    x, y = np.zeros(1, np.int32), np.zeros(32, np.int32)
    body = (
        TID
        + at("q", "%a1")
        + """  %v = call i32 asm sideeffect "atom.acq_rel.gpu.global.add.u32 $0, [$1], $2;", "=r,l,r"(ptr %a0, i32 1)
  store i32 %v, ptr %q, align 4"""
    )
    run(body, [x, y])
    assert x[0] == 32 and sorted(y) == list(range(32))
