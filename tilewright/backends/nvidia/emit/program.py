"""Where a program stands in the grid, and promises that only the optimiser uses."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp, GridOp


@emits(GetProgramIdOp, GetNumProgramsOp)
def emit_grid(k: Kernel, op: Operation) -> None:
    """Index of the block in the grid, or the size of the grid; a cluster is one program."""
    assert isinstance(op, GridOp)
    register = "ctaid" if isinstance(op, GetProgramIdOp) else "nctaid"
    if k.team.blocks > 1:
        register = register.replace("cta", "cluster")
    axis = op.attr_values()["axis"]
    k.set(op.results[0], k.f.special_register(f"{register}.{'xyz'[int(axis)]}"))
