"""Tile IR to laid-out tile IR, ready for emission: the table of contents of the NVIDIA passes.

::

    tile IR --inline all--> --sums of products--> --operands in place--> --reductions behind loops-->
            --carried numbers--> --choose descriptors--> --assign layouts--> --load ahead-->
            --pipeline loops--> --order memory, barriers--> laid-out tile IR
"""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, ModuleOp

from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.assign import lay_out
from tilewright.backends.nvidia.plan.barriers import place_barriers
from tilewright.backends.nvidia.plan.conversions import note_conversions
from tilewright.backends.nvidia.plan.descriptors import choose_descriptors
from tilewright.backends.nvidia.plan.dots import plan_dot
from tilewright.backends.nvidia.plan.loads_ahead import load_ahead
from tilewright.backends.nvidia.plan.locks import order_locks
from tilewright.backends.nvidia.plan.operands_in_place import load_operands_in_place
from tilewright.backends.nvidia.plan.ordering import order_memory
from tilewright.backends.nvidia.plan.pipeliner import pipeline_loops
from tilewright.backends.nvidia.plan.reduced_behind import reduce_behind_loops
from tilewright.backends.nvidia.plan.subjects import CLUSTER
from tilewright.base.decision import Answer, No
from tilewright.base.target import Target
from tilewright.ir.decisions import Decisions
from tilewright.ops.function import FuncOp
from tilewright.passes.carried import compute_carried
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.inline import inline_calls
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.mask_bounds import compare_places_with_bounds
from tilewright.passes.summed_products import multiply_for_sums

_EXACT_ENOUGH = "tf32x3"  # of sums of f32: within 3e-7 of the sum of magnitudes, as sums in f32 are


def lay_out_module(
    module: ModuleOp, options: CudaOptions, target: Target, decisions: Decisions | None = None
) -> ModuleOp:
    """Laid-out tile IR of a simplified module, which is consumed.

    Args:
        module: tile IR after `passes.pipeline`.
        options: compile options.
        target: a CUDA target.
        decisions: what the planners answer is kept there, if it is given.
    """
    arch, decisions = arch_of(target), Decisions() if decisions is None else decisions
    _note_cluster(module, options, decisions)
    _inline_everything(module)
    multiply_for_sums(module, precision=_EXACT_ENOUGH)
    module = load_operands_in_place(module, decisions)
    reduce_behind_loops(module, options.block_warps, decisions)
    if compute_carried(module):
        compare_places_with_bounds(module)
        eliminate_dead_code(module)
    order_locks(module)
    choose_descriptors(module, arch, decisions)
    module = lay_out(module, options.block_warps, lambda op: plan_dot(op, options.block_warps, arch, decisions))
    load_ahead(module, decisions)
    pipeline_loops(module, options.num_stages, arch, decisions)
    hoist_loop_invariants(module)
    eliminate_common_subexpressions(module)
    eliminate_dead_code(module)
    order_memory(module, decisions)
    place_barriers(module, decisions)
    note_conversions(module, decisions)
    return module


def _note_cluster(module: ModuleOp, options: CudaOptions, decisions: Decisions) -> None:
    if options.num_ctas > 1:
        for op in module.ops:
            if isinstance(op, FuncOp) and op.is_kernel:
                decisions.note(CLUSTER, op, _shared_out(options))


def _shared_out(options: CudaOptions) -> Answer[int]:
    """How many blocks share a program."""
    return No(f"it is one block of {options.block_warps} warps", instead="num_ctas=1, and num_warps as is fastest")


def _inline_everything(module: ModuleOp) -> None:
    """Functions marked `noinline` too: a call would have to pass tiles through memory."""
    for op in module.ops:
        if isinstance(op, FuncOp):
            op.attributes["noinline"] = BoolAttr.from_bool(False)
    inline_calls(module)
