"""Where a program stands in the grid.

A kernel whose blocks run one program after the other (`plan/persistence.py`) is told the grid by three parameters; its
own grid is a row of blocks.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.llvm.types import I32, I64
from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.tgir.ops import ProgramPlaceOp, ProgramRangeOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp, GridOp


@emits(GetProgramIdOp, GetNumProgramsOp)
def emit_grid(k: Kernel, op: Operation) -> None:
    """Index of the block in the grid, or the size of the grid; a cluster is one program."""
    assert isinstance(op, GridOp)
    axis = int(op.attr_values()["axis"])
    if k.grid and isinstance(op, GetNumProgramsOp):
        k.set(op.results[0], k.grid[axis])
        return
    register = "ctaid" if isinstance(op, GetProgramIdOp) else "nctaid"
    if k.team.blocks > 1:
        register = register.replace("cta", "cluster")
    k.set(op.results[0], k.f.special_register(f"{register}.{'xyz'[axis]}"))


@emits(ProgramRangeOp)
def emit_program_range(k: Kernel, op: Operation) -> None:
    """Every so many programs as there are blocks, from the number of the block on."""
    assert isinstance(op, ProgramRangeOp)
    x, y, z = (k.f.cast("zext", size, I64) for size in k.grid)
    k.set(op.first, k.f.cast("zext", k.f.special_register("ctaid.x"), I64))
    k.set(op.end, k.f.mul(k.f.mul(x, y), z))
    k.set(op.step, k.f.cast("zext", k.f.special_register("nctaid.x"), I64))


@emits(ProgramPlaceOp)
def emit_program_place(k: Kernel, op: Operation) -> None:
    """Programs are counted along x first, as blocks are."""
    assert isinstance(op, ProgramPlaceOp)
    f, axis, number = k.f, int(op.attr_values()["axis"]), k.scalar(op.number)
    x, y, _ = (f.cast("zext", size, I64) for size in k.grid)
    if axis:
        number = f.op("udiv", number, x if axis == 1 else f.mul(x, y))
    if axis < 2:
        number = f.op("urem", number, y if axis else x)
    k.set(op.result, f.cast("trunc", number, I32))
