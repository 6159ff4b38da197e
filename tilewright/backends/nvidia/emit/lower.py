"""Laid-out tile IR to the LLVM IR of one kernel.

define ptx_kernel void @name(i64 pointer, i32 scalar, ..., [tensor maps], [grid], [log]) "nvvm.reqntid"="128" {
  thread, lane, warp
  the function's operations, each by the emitter of its family
}
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.types import I8, I32, I64, PTR, T, V
from tilewright.backends.nvidia.arch import WARP, arch_of, features_of, registers_of_a_thread
from tilewright.backends.nvidia.device.tensormap import MAP_ALIGNMENT, MAP_BYTES, Recipe
from tilewright.backends.nvidia.emit import bulk, cluster, families, reduce
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.backends.nvidia.emit.module import NvModule
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.allocate import allocate
from tilewright.backends.nvidia.plan.team import Team, team_of
from tilewright.backends.nvidia.plan.tma import recipe_of
from tilewright.backends.nvidia.tgir.facts import axis_facts
from tilewright.backends.nvidia.tgir.ops import EnterRoleOp, ProgramCountOp, WarpGroupDotOp
from tilewright.base.errors import InternalError
from tilewright.base.target import Target
from tilewright.ir.decisions import Decisions
from tilewright.ir.op import location_of
from tilewright.ir.types import ir_name, is_pointer
from tilewright.ir.walk import contains, every, walk
from tilewright.ops.debug import AssertOp
from tilewright.ops.descriptor import MakeTensorDescOp
from tilewright.ops.function import FuncOp, ReturnOp

assert families.LOADED
_EXCHANGE_ALIGNMENT = 16
_TENSOR_MAP = f'byval([{MAP_BYTES} x i8]) align {MAP_ALIGNMENT} "nvvm.grid_constant"'


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel as LLVM IR, and what its launch needs to know.

    Args:
        llvm: text of the module.
        symbol: of the kernel.
        shared_bytes: dynamic shared memory of a block.
        num_warps: warps of a block.
        asserts: texts of `tl.device_assert`, by number.
        needs_log: a last parameter takes the buffer to which assertions write.
        cluster: blocks of a cluster.
        tensor_maps: what describes the tensor maps that follow the parameters (see `tensormap.encode`).
        persistent: blocks run one program after the other, and sizes of the grid follow the tensor maps.
        decisions: what is told of accesses and reductions.
    """

    llvm: str
    symbol: str
    shared_bytes: int
    num_warps: int
    asserts: tuple[str, ...] = ()
    needs_log: bool = False
    cluster: int = 1
    tensor_maps: tuple[Recipe, ...] = ()
    persistent: bool = False
    decisions: Decisions = field(default_factory=Decisions)

    def facts(self) -> dict[str, Any]:
        """What the metadata of the compiled kernel say of it.

        `takes_all` is false where the values of a launch may suit no tensor map of pointers.
        """
        return {
            "symbol": self.symbol, "shared": self.shared_bytes, "block_warps": self.num_warps, "cluster": self.cluster,
            "asserts": list(self.asserts), "needs_log": self.needs_log, "tensor_maps": list(self.tensor_maps),
            "takes_all": not any(recipe["from_pointers"] for recipe in self.tensor_maps),
            "persistent": self.persistent,
        }  # fmt: skip


def emit_kernel(module: ModuleOp, options: CudaOptions, target: Target) -> LoweredKernel:
    """Emit the kernel of a laid-out module.

    Args:
        module: laid-out tile IR with one function, its barriers in place.
        options: compile options.
        target: a CUDA target.

    Raises:
        CompilationError: something that the target cannot do, with its place.
    """
    function = FuncOp.kernel_of(module)
    arch = arch_of(target)
    allocation = allocate(function)
    llvm = NvModule(features_of(target))
    symbol = re.sub(r"[^A-Za-z0-9_$]", "_", function.symbol)
    block = function.body.block
    needs_log = contains(function, AssertOp)
    descriptors = every(function, MakeTensorDescOp)
    parameters: list[T | tuple[T, str]] = [_parameter(argument.type) for argument in block.args]
    parameters += [(PTR, _TENSOR_MAP)] * len(descriptors)
    persistent = contains(function, ProgramCountOp)
    parameters += [I32] * 3 if persistent else []
    if needs_log:
        parameters.append(I64)
    team = team_of(function, options.block_warps)
    room = -(-allocation.total // _EXCHANGE_ALIGNMENT) * _EXCHANGE_ALIGNMENT
    sent = max((reduce.exchange_bytes_of(op, team.blocks) for op in walk(function)), default=0)
    extra = _extra_warps(function, options)
    f = llvm.kernel(symbol, parameters, _attributes(options, team, extra))
    place = location_of(function)
    if place is not None:
        f.debug_scope(place.file, place.line)
    alone = allocation.alone()
    k = Kernel(f, arch, options, axis_facts(function), allocation.offsets, alone, exchange_room=room, given_team=team)
    k.extra_warps = extra
    k.inline_only = contains(function, WarpGroupDotOp)
    k.start()
    cluster.enter(k)
    for argument, value in zip(block.args, f.args, strict=False):
        k.set(argument, _argument(k, value, argument.type))
    for descriptor, value in zip(descriptors, f.args[len(block.args) :], strict=False):
        k.set(descriptor.result, value)
    if persistent:
        first = len(block.args) + len(descriptors)
        k.grid = f.args[first : first + 3]
    if needs_log:
        k.log = f.cast("inttoptr", f.args[-1], PTR)
    k.emit_block(block)
    _check_end(block.last_op)
    bulk.leave(k)
    cluster.leave(k)
    f.ret()
    return LoweredKernel(
        llvm.render(), symbol, room + sent if sent else allocation.total, k.block_warps, tuple(k.asserts), needs_log,
        cluster=team.blocks, tensor_maps=tuple(map(recipe_of, descriptors)), persistent=persistent,
        decisions=k.decisions,
    )  # fmt: skip


def _extra_warps(function: FuncOp, options: CudaOptions) -> int:
    """Warps of roles beside those for which tiles are laid out."""
    roles = [op.attr_values() for op in every(function, EnterRoleOp)]
    ends = (int(role["first_warp"]) + int(role["num_warps"]) for role in roles)
    return max(ends, default=options.block_warps) - options.block_warps


def _attributes(options: CudaOptions, team: Team, extra_warps: int) -> str:
    threads = WARP * (team.warps + extra_warps)
    texts = [f'"nvvm.reqntid"="{threads}"']
    if team.blocks > 1:
        texts.append(f'"nvvm.cluster_dim"="{team.blocks}"')
    if options.maxnreg is not None:
        # The assembler takes it instead of what so many threads have: a higher one makes kernels that cannot start.
        texts.append(f'"nvvm.maxnreg"="{min(options.maxnreg, registers_of_a_thread(threads))}"')
    return " ".join(texts)


def _parameter(type_: Attribute) -> T:
    """Pointers are integers here: LLVM then adds no conversions between address spaces."""
    if is_pointer(type_):
        return I64
    t = storage(ir_name(type_))
    return I8 if t.bits == 1 else t


def _argument(k: Kernel, value: V, type_: Attribute) -> V:
    if is_pointer(type_):
        (opaque,) = k.f.ptx("mov.b64 $0, $1;", "=l,l", (value,), (I64,), effect=False)
        return k.f.cast("inttoptr", opaque, PTR)
    t = storage(ir_name(type_))
    return k.f.cast("trunc", value, t) if t.bits == 1 else value


def _check_end(op: Operation | None) -> None:
    if not isinstance(op, ReturnOp):
        raise InternalError(f"a kernel ends with {op.name if op else 'nothing'}")
