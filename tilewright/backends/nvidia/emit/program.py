"""Where a program stands in the grid.

A kernel whose blocks run one program after the other (`plan/persistence.py`) is told the grid by three parameters; its
own grid is a row of blocks.
"""

from __future__ import annotations

from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.tgir.ops import ProgramCountOp, ProgramPlaceOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp, GridOp


@emits(GetProgramIdOp)
def emit_program_id(k: Kernel, op: GridOp) -> None:
    """Index of the block in the grid; a cluster is one program."""
    _read(k, op, "clusterid" if k.team.blocks > 1 else "ctaid")


@emits(GetNumProgramsOp)
def emit_num_programs(k: Kernel, op: GridOp) -> None:
    """The size of the grid."""
    if k.grid:
        k.set(op.results[0], k.grid[int(op.attr_values()["axis"])])
    else:
        _read(k, op, "nclusterid" if k.team.blocks > 1 else "nctaid")


def _read(k: Kernel, op: GridOp, register: str) -> None:
    axis = int(op.attr_values()["axis"])
    k.set(op.results[0], k.f.special_register(f"{register}.{'xyz'[axis]}"))


@emits(ProgramCountOp)
def emit_program_count(k: Kernel, op: ProgramCountOp) -> None:
    """Every so many programs as there are blocks, from the number of the block on; there are no more blocks."""
    f, (x, y, z) = k.f, k.grid
    behind = f.sub(f.sub(f.mul(f.mul(x, y), z), 1), f.special_register("ctaid.x"))
    k.set(op.result, f.add(f.op("udiv", behind, f.special_register("nctaid.x")), 1))


@emits(ProgramPlaceOp)
def emit_program_place(k: Kernel, op: ProgramPlaceOp) -> None:
    """Programs are counted along x first, as blocks are."""
    f, axis = k.f, int(op.attr_values()["axis"])
    x, y, _ = k.grid
    number = f.add(f.mul(k.scalar(op.turn), f.special_register("nctaid.x")), f.special_register("ctaid.x"))
    if axis:
        number = f.op("udiv", number, x if axis == 1 else f.mul(x, y))
    k.set(op.result, number if axis == 2 else f.op("urem", number, y if axis else x))
