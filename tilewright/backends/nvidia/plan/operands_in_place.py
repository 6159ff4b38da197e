"""Operands of products in loops are loaded where they are used, in one loop: only such loads get rings of buffers.

People load operands one iteration ahead to hide the wait for them, mask them in the last iteration only to save
comparisons, and divide the loop over K into blocks. The ring hides the wait better, and it looks at loads in the loop
of the product. The passes find out where operands lie from polynomials in scalars. So they work on a copy in which
loops carry offsets instead of tiles of pointers, and where they find nothing the kernel stays as it is.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tilewright.ir.decisions import Decisions
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import contains, walk
from tilewright.loops.dot_loops import DotSum, normalize_dot_loops
from tilewright.loops.sink_prefetched_loads import sink_prefetched_loads
from tilewright.ops.control import ForOp, IfOp
from tilewright.ops.dot import DotOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.carried_offsets import make_offsets_scalar
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.fold_dots import fold_into_dots
from tilewright.passes.if_conversion import convert_branches
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.mask_bounds import compare_places_with_bounds

_SHORTEST = 3  # products one after the other that are worth a loop with a ring


def load_operands_in_place(module: ModuleOp, decisions: Decisions) -> ModuleOp:
    """The module in which operands are loaded where products use them; `module` itself if that changes nothing."""
    if not any(_may_gain(op) for op in walk(module)):
        return module
    copy, changed = module.clone(), False
    for function in FuncOp.all_of(copy):
        make_offsets_scalar(function, Decisions())
        changed |= convert_branches(function, decisions, _is_between_dots)
        changed |= sink_prefetched_loads(function, decisions)
        changed |= normalize_dot_loops(function, decisions, _is_worth_a_loop)
    if not changed:
        return module
    fold_into_dots(copy)
    eliminate_common_subexpressions(copy)
    hoist_loop_invariants(copy)
    compare_places_with_bounds(copy)
    eliminate_dead_code(copy)
    return copy


def _may_gain(op: Operation) -> bool:
    """Whether an operation looks like one that the passes rewrite."""
    if isinstance(op, IfOp):
        return _is_between_dots(op)
    if isinstance(op, ForOp):
        ahead = any(is_tile(value) and isinstance(defining_op(value), LoadOp) for value in op.yielded)
        return (ahead or isinstance(op.parent_op(), ForOp)) and contains(op, DotOp)
    return isinstance(op, DotOp) and isinstance(op.c.owner, DotOp)


def _is_between_dots(branch: IfOp) -> bool:
    """Whether a branch is a part of an iteration that multiplies: elsewhere a branch saves what its sides load."""
    loop = branch.parent_op()
    return isinstance(loop, ForOp) and contains(loop, DotOp)


def _is_worth_a_loop(found: DotSum) -> bool:
    """Whether dots stand in loops in a loop, or in the one loop that adds them up, or are many in none.

    Sums in parts stay: tensor cores add up some types with fewer bits than the sum has, and parts are written for that.
    """
    loops = found.loops
    if found.is_in_parts:
        return False
    if not loops:
        return len(found.dots) >= _SHORTEST and isinstance(found.last.parent_op(), FuncOp)
    return len(loops) > 1 or (len(found.dots) > 1 and len(loops[0].carried) == 1)
