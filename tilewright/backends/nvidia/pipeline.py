"""Tile IR to laid-out tile IR, ready for emission: the table of contents of the NVIDIA passes.

::

    tile IR --inline all--> --sums of products--> --operands in place-->
            --long rows over a cluster--> --chains of products turned over--> --operands that stay-->
            --large tiles in strips--> --reductions after loops--> --carried numbers-->
            --choose descriptors--> --loads of boxes--> --longest programs first-->
            --assign layouts--> --stores in slices--> --double buffer-->
            --roles--> --iterations without masks--> --pipeline loops-->
            --order memory, barriers--> laid-out tile IR
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import BoolAttr, ModuleOp

from tilewright.analysis.recurrences import note_loops
from tilewright.backends.nvidia.arch import Arch, arch_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.assign import lay_out
from tilewright.backends.nvidia.plan.barriers import place_barriers
from tilewright.backends.nvidia.plan.cluster import share_out_long_rows
from tilewright.backends.nvidia.plan.conversions import note_conversions
from tilewright.backends.nvidia.plan.descriptors import choose_descriptors
from tilewright.backends.nvidia.plan.dots import DotPlan, plan_dot
from tilewright.backends.nvidia.plan.double_buffer import double_buffer_loads
from tilewright.backends.nvidia.plan.invariant_operands import load_operands_once
from tilewright.backends.nvidia.plan.large_tiles import strip_mine_large_tiles
from tilewright.backends.nvidia.plan.locks import order_locks
from tilewright.backends.nvidia.plan.masked_iterations import divide_masked_loops
from tilewright.backends.nvidia.plan.operands_in_place import load_operands_in_place
from tilewright.backends.nvidia.plan.ordering import order_memory
from tilewright.backends.nvidia.plan.pipeliner import pipeline_loops
from tilewright.backends.nvidia.plan.program_order import start_longest_first
from tilewright.backends.nvidia.plan.reductions_out_of_loops import move_reductions_out_of_loops
from tilewright.backends.nvidia.plan.roles import split_into_roles
from tilewright.backends.nvidia.plan.slices import keep_slices_apart, store_in_slices
from tilewright.backends.nvidia.plan.subjects import CLUSTER
from tilewright.backends.nvidia.plan.team import Team
from tilewright.backends.nvidia.plan.tensor_maps import load_boxes
from tilewright.backends.nvidia.plan.turned_chains import turn_chains
from tilewright.base.decision import Answer, No
from tilewright.base.errors import InternalError
from tilewright.base.target import Target
from tilewright.ir.decisions import Decisions
from tilewright.ops.dot import DotOp
from tilewright.ops.function import FuncOp
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.induction_variables import simplify_induction_variables
from tilewright.passes.inline import inline_calls
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.mask_bounds import compare_places_with_bounds
from tilewright.passes.sums_to_dots import raise_sums_to_dots

Steps = tuple[tuple[str, Callable[[ModuleOp], Any]], ...]
_EXACT_ENOUGH = "tf32x3"  # of sums of f32: within 3e-7 of the sum of magnitudes, as sums in f32 are


def lay_out_module(
    module: ModuleOp,
    options: CudaOptions,
    target: Target,
    decisions: Decisions | None = None,
    told: Callable[[str, ModuleOp, bool], None] | None = None,
    *,
    hands_on: bool = True,
) -> ModuleOp:
    """Laid-out tile IR of a simplified module, which is consumed.

    Args:
        module: tile IR after `passes.pipeline`.
        options: compile options.
        target: a CUDA target.
        decisions: what the planners answer is kept there, if it is given.
        told: called after each pass with its name, the module, and whether it may have changed that.
        hands_on: whether what assembles the kernel lets warps hand registers on.
    """
    arch, decisions = arch_of(target), Decisions() if decisions is None else decisions
    _note_cluster(module, options, decisions)
    early: Steps = (
        ("inline", _inline_everything),
        ("sums_to_dots", lambda module: raise_sums_to_dots(module, precision=_EXACT_ENOUGH)),
        ("operands_in_place", lambda module: load_operands_in_place(module, decisions)),
    )
    module = _run(module, early, told)
    for op in FuncOp.all_of(module):
        note_loops(op, decisions)
    team = share_out_long_rows(module, options, arch, decisions)
    return _run(module, _late_steps(team, options, arch, decisions, hands_on), told)


def _late_steps(team: Team, options: CudaOptions, arch: Arch, decisions: Decisions, hands_on: bool) -> Steps:
    """What follows when it is known which threads run a program."""
    warps = team.warps
    if team.blocks > 1:
        return _cluster_steps(team, decisions)
    return (
        ("turned_chains", lambda module: turn_chains(module, warps, arch, decisions)),
        ("invariant_operands", lambda module: load_operands_once(module, warps, arch)),
        ("large_tiles", lambda module: strip_mine_large_tiles(module, warps, decisions)),
        ("reductions_out_of_loops", lambda module: move_reductions_out_of_loops(module, warps, decisions)),
        ("induction_variables", _simplify_induction_variables),
        ("locks", order_locks),
        ("descriptors", lambda module: choose_descriptors(module, arch, decisions)),
        ("tensor_maps", lambda module: load_boxes(module, options, arch, decisions)),
        ("program_order", lambda module: start_longest_first(module, decisions)),
        ("assign", lambda module: lay_out(module, team, lambda op: plan_dot(op, warps, arch, decisions))),
        ("stores_in_slices", lambda module: store_in_slices(module, decisions)),
        ("double_buffer", lambda module: double_buffer_loads(module, decisions)),
        ("roles", lambda module: split_into_roles(module, options, arch, decisions, hands_on=hands_on)),
        ("masked_iterations", divide_masked_loops),
        ("pipeliner", lambda module: pipeline_loops(module, options.num_stages, arch, decisions)),
        ("licm", hoist_loop_invariants),
        ("cse", eliminate_common_subexpressions),
        ("dce", eliminate_dead_code),
        ("ordering", lambda module: order_memory(module, decisions)),
        ("slices", lambda module: keep_slices_apart(module, warps, arch, decisions)),
        ("barriers", lambda module: place_barriers(module, decisions)),
        ("conversions", lambda module: note_conversions(module, decisions)),
    )


def _cluster_steps(team: Team, decisions: Decisions) -> Steps:
    """The same for a cluster, which has nothing but loads, stores, arithmetic and reductions."""
    return (
        ("reductions_out_of_loops", lambda module: move_reductions_out_of_loops(module, team.all_warps, decisions)),
        ("induction_variables", _simplify_induction_variables),
        ("assign", lambda module: lay_out(module, team, _no_dots)),
        ("licm", hoist_loop_invariants),
        ("cse", eliminate_common_subexpressions),
        ("dce", eliminate_dead_code),
        ("ordering", lambda module: order_memory(module, decisions)),
        ("barriers", lambda module: place_barriers(module, decisions)),
        ("conversions", lambda module: note_conversions(module, decisions)),
    )


def _no_dots(op: DotOp) -> DotPlan:
    raise InternalError("a product has no form for clusters")


def _run(module: ModuleOp, steps: Steps, told: Callable[[str, ModuleOp, bool], None] | None) -> ModuleOp:
    for name, step in steps:
        made = step(module)
        module = made if isinstance(made, ModuleOp) else module
        if told is not None:
            told(name, module, made is not False)
    return module


def _simplify_induction_variables(module: ModuleOp) -> bool:
    if not simplify_induction_variables(module):
        return False
    compare_places_with_bounds(module)
    eliminate_dead_code(module)
    return True


def _note_cluster(module: ModuleOp, options: CudaOptions, decisions: Decisions) -> None:
    if options.num_ctas > 1:
        for op in FuncOp.all_of(module):
            if op.is_kernel:
                decisions.note(CLUSTER, op, _shared_out(options))


def _shared_out(options: CudaOptions) -> Answer[int]:
    """How many blocks share a program."""
    return No(f"it is one block of {options.block_warps} warps", instead="num_ctas=1, and num_warps as is fastest")


def _inline_everything(module: ModuleOp) -> None:
    """Functions marked `noinline` too: a call would have to pass tiles through memory."""
    for op in FuncOp.all_of(module):
        op.attributes["noinline"] = BoolAttr.from_bool(False)
    inline_calls(module)
