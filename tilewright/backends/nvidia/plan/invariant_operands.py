"""Operands that every iteration of a loop multiplies anew are loaded once, before it.

Pure operations leave loops in `passes.licm`; a load may only where nothing in the loop writes what it reads, and it has
to be made in the first iteration, if there is one. Left inside it would have a ring of buffers and be copied again in
each iteration. What wgmma reads lies in shared memory through the loop; other tiles would hold on to registers.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.plan.dots import is_wgmma
from tilewright.backends.nvidia.plan.prefetch import loads_ahead
from tilewright.ir.types import i1
from tilewright.ir.values import is_made_inside, users_of
from tilewright.ir.walk import among, every
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import CmpIOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import TransOp
from tilewright.passes.building import Builder
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.rewriting import move_before


def load_operands_once(module: ModuleOp, num_warps: int, arch: Arch) -> bool:
    """Move such loads of a module out of its innermost loops, in place; says whether there was one.

    Args:
        module: tile IR, all calls inlined.
        num_warps: warps of a block.
        arch: what the target has.
    """
    changed = False
    for loop in every(module, ForOp):
        for load, refused in loads_ahead(loop):
            if refused is not None or any(is_made_inside(value, loop) for value in load.operands):
                continue
            dots = _products(load)
            if dots and all(is_wgmma(dot, num_warps, arch) for dot in dots):
                _hoist(load, loop)
                changed = True
    if changed:
        hoist_loop_invariants(module)  # what transposes them
    return changed


def _products(load: LoadOp) -> list[DotOp]:
    """The products that read a tile from memory as it is, or transposed; none if somebody else reads it too."""
    views = among(users_of(load.result), TransOp)
    uses = [use for value in (load.result, *(view.results[0] for view in views)) for use in value.uses]
    dots = [use.operation for use in uses if isinstance(use.operation, DotOp) and use.index < 2]
    others = [use for use in uses if use.operation not in views and use.operation not in dots]
    return [] if others else dots


def _hoist(load: LoadOp, loop: ForOp) -> None:
    move_before(load, loop)
    first, last = constant_of(loop.lb), constant_of(loop.ub)
    if first is not None and last is not None and first < last:
        return
    less = "ult" if loop.unsignedCmp is not None else "slt"
    b = Builder(load)
    mask = b.like(b.compare(less, loop.lb, loop.ub), load.result)
    mask = mask if load.mask is None else b.both(load.mask, mask)
    load.operands = [load.ptr, mask, load.other or b.number(0, load.result.type)]


def _comparison(predicate: str, one: SSAValue, other: SSAValue) -> Operation:
    return CmpIOp.build_op([one, other], [i1], {"predicate": predicate})


__all__ = ["load_operands_once"]
