"""Roles: parts of a kernel that some warps of a block do alone, and the barriers by which they hand buffers on.

    warp index, uniform -> role?
        math     setmaxnreg.inc;  ...  mbarrier.try_wait full;  wgmma ...;  mbarrier.arrive empty, one lane of a warp
        copies   setmaxnreg.dec;  one thread: mbarrier.try_wait empty;  mbarrier.arrive.expect_tx full;  cp.async.bulk

Source: PTX ISA, "setmaxnreg", "mbarrier", "barrier".
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.llvm.types import I1, I32, V, const
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.emit.bulk import stage_of
from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.tgir.ops import (
    ArriveBarrierOp,
    ElectOp,
    EnterRoleOp,
    PassTurnOp,
    TakeTurnOp,
    WaitPhaseOp,
    WarpIdOp,
)

_REGISTERS_AT_MOST = 65536  # of a multiprocessor


@emits(WarpIdOp)
def emit_warp_id(k: Kernel, op: Operation) -> None:
    """The number of the warp, the same for all its lanes to the assembler as well."""
    assert isinstance(op, WarpIdOp)
    k.set(op.result, k.warp)


@emits(ElectOp)
def emit_elect(k: Kernel, op: Operation) -> None:
    """Whether this is the first thread of a warp."""
    assert isinstance(op, ElectOp)
    k.set(op.result, k.f.icmp("eq", k.thread, WARP * int(op.attr_values()["warp"])))


@emits(EnterRoleOp)
def emit_enter_role(k: Kernel, op: Operation) -> None:
    """From here on, in order of emission, barriers and the first thread are those of the role."""
    assert isinstance(op, EnterRoleOp)
    attrs = op.attr_values()
    warps, registers = int(attrs["num_warps"]), int(attrs["registers"])
    k.first = WARP * int(attrs["first_warp"])
    k.f.waiting = (int(attrs["barrier"]), WARP * warps)
    if registers:
        usual = _REGISTERS_AT_MOST // (k.block_warps * WARP)
        k.f.ptx(f"setmaxnreg.{'inc' if registers > usual else 'dec'}.sync.aligned.u32 {registers};", "~{memory}", [])


@emits(WaitPhaseOp)
def emit_wait_phase(k: Kernel, op: Operation) -> None:
    """Wait for a phase of a stage."""
    assert isinstance(op, WaitPhaseOp)
    f, place, parity = k.f, stage_of(k, k.buffer(op.barrier), k.scalar(op.stage)), k.scalar(op.parity)

    def under_way(_: list[V]) -> V:
        return f.not_(f.call("llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta", I1, (place, parity)))

    f.while_([], under_way, lambda values: values)
    f.ptx("", "~{memory}", [])  # no access may move before it


@emits(ArriveBarrierOp)
def emit_arrive(k: Kernel, op: Operation) -> None:
    """All lanes of a warp have read; one of them says so."""
    assert isinstance(op, ArriveBarrierOp)
    f = k.f
    place = stage_of(k, k.buffer(op.barrier), k.scalar(op.stage))
    f.warp_barrier()
    one = f.and_(f.icmp("eq", k.lane, 0), k.scalar(op.pred))
    f.ptx("@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b,~{memory}", [f.cast("ptrtoint", place, I32), one])


# --- turns --------------------------------------------------------------------------------------------

_GROUP = 4  # warps that multiply together


@emits(TakeTurnOp)
def emit_take_turn(k: Kernel, op: Operation) -> None:
    """Wait at the barrier of this group, at which the group before arrives."""
    assert isinstance(op, TakeTurnOp)
    f, first = k.f, int(op.attr_values()["barrier"])
    f.ptx(f"bar.sync $0, {2 * _GROUP * WARP};", "r,~{memory}", [f.add(f.lshr(k.warp, 2), first)])


@emits(PassTurnOp)
def emit_pass_turn(k: Kernel, op: Operation) -> None:
    """Arrive at the barrier of the next group."""
    assert isinstance(op, PassTurnOp)
    attrs = op.attr_values()
    f, first, groups = k.f, int(attrs["barrier"]), int(attrs["groups"])
    group = f.lshr(k.warp, 2)
    is_last = f.icmp("eq", group, groups - 1)
    following = f.select(is_last, const(I32, first), f.add(group, first + 1))
    arrives = is_last if attrs["first"] else const(I1, 1)
    f.ptx(f"@$1 bar.arrive $0, {2 * _GROUP * WARP};", "r,b,~{memory}", [following, arrives])
