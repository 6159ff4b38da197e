"""Roles: parts of a kernel that some warps of a block do alone, and the barriers by which they hand buffers on.

    warp index, uniform -> role?
        math     setmaxnreg.inc;  ...  mbarrier.try_wait full;  wgmma ...;  mbarrier.arrive empty, one lane of a warp
        copies   setmaxnreg.dec;  one thread: mbarrier.try_wait empty;  mbarrier.arrive.expect_tx full;  cp.async.bulk

Source: PTX ISA, "setmaxnreg", "mbarrier", "barrier".
"""

from __future__ import annotations

from tilewright.backends.llvm.types import I1, I32, V
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.emit.bulk import stage_of
from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.plan.crew import GROUP
from tilewright.backends.nvidia.tgir.ops import ArriveBarrierOp, ElectOp, EnterRoleOp, StaggerOp, WaitPhaseOp, WarpIdOp

_REGISTERS_AT_MOST = 65536  # of a multiprocessor


@emits(WarpIdOp)
def emit_warp_id(k: Kernel, op: WarpIdOp) -> None:
    """The number of the warp, the same for all its lanes to the assembler as well."""
    k.set(op.result, k.warp)


@emits(ElectOp)
def emit_elect(k: Kernel, op: ElectOp) -> None:
    """Whether this is the first thread of a warp."""
    k.set(op.result, k.f.icmp("eq", k.thread, WARP * int(op.attr_values()["warp"])))


@emits(EnterRoleOp)
def emit_enter_role(k: Kernel, op: EnterRoleOp) -> None:
    """From here on, in order of emission, barriers and the first thread are those of the role."""
    attrs = op.attr_values()
    warps, registers = int(attrs["num_warps"]), int(attrs["registers"])
    k.first = WARP * int(attrs["first_warp"])
    k.f.waiting = (int(attrs["barrier"]), WARP * warps)
    if registers:
        usual = _REGISTERS_AT_MOST // (k.block_warps * WARP)
        k.f.ptx(f"setmaxnreg.{'inc' if registers > usual else 'dec'}.sync.aligned.u32 {registers};", "~{memory}", [])


@emits(StaggerOp)
def emit_stagger(k: Kernel, op: StaggerOp) -> None:
    """Each group of warps waits for so many cycles more than the one before it."""
    f, begin = k.f, k.f.special_register("clock")
    group = f.lshr(f.sub(k.warp, k.first // WARP), GROUP.bit_length() - 1)
    cycles = f.mul(group, int(op.attr_values()["cycles"]))
    f.while_([], lambda _: f.icmp("ult", f.sub(f.special_register("clock"), begin), cycles), lambda values: values)


@emits(WaitPhaseOp)
def emit_wait_phase(k: Kernel, op: WaitPhaseOp) -> None:
    """Wait for a phase of a stage."""
    f, place, parity = k.f, stage_of(k, k.buffer(op.barrier), k.scalar(op.stage)), k.scalar(op.parity)

    def under_way(_: list[V]) -> V:
        return f.not_(f.call("llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta", I1, (place, parity)))

    f.while_([], under_way, lambda values: values)
    f.ptx("", "~{memory}", [])  # no access may move before it


@emits(ArriveBarrierOp)
def emit_arrive(k: Kernel, op: ArriveBarrierOp) -> None:
    """All lanes of a warp have read; one of them says so."""
    f = k.f
    place = stage_of(k, k.buffer(op.barrier), k.scalar(op.stage))
    f.warp_barrier()
    one = f.and_(f.icmp("eq", k.lane, 0), k.scalar(op.pred))
    f.ptx("@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b,~{memory}", [f.cast("ptrtoint", place, I32), one])
