"""The plan of a whole module: the `loops` stage."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tilewright.analysis.recurrences import note_loops
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.interleaved_stores import merge_interleaved_stores
from tilewright.backends.cpu.plan.loop_distribution import distribute_loops
from tilewright.backends.cpu.plan.narrow_dots import narrow_dots
from tilewright.backends.cpu.plan.planner import plan_function
from tilewright.backends.cpu.plan.ragged import rewrite_ragged_cats
from tilewright.backends.cpu.plan.reciprocal import divide_rows_once
from tilewright.backends.cpu.plan.row_dots_to_sums import lower_row_dots_to_sums
from tilewright.backends.cpu.plan.steps import FunctionPlan, render
from tilewright.backends.cpu.plan.swap_operands import swap_dot_operands
from tilewright.backends.cpu.plan.unroll_loops import unroll_short_loops
from tilewright.backends.cpu.plan.unroll_reductions import unroll_reductions
from tilewright.backends.cpu.plan.wrapped_indices import leave_out_unread_rows
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.ir.decisions import Decisions
from tilewright.ir.walk import walk
from tilewright.loops.dot_loops import normalize_dot_loops
from tilewright.loops.reduction_loops import Rows, normalize_reduction_loops
from tilewright.loops.scaled_sums import take_numbers_out_of_sums
from tilewright.loops.sink_prefetched_loads import sink_prefetched_loads
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import OrIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.reduce import ReduceOp
from tilewright.passes.carried_offsets import make_offsets_scalar
from tilewright.passes.delinearize import delinearize_loops
from tilewright.passes.if_conversion import convert_branches
from tilewright.passes.induction_variables import rematerialize_carried
from tilewright.passes.masks import choose_inside
from tilewright.passes.sums_to_dots import raise_sums_to_dots

_ROWS = Rows(
    along=tuning.LONG_ROW,
    longest=tuning.LONGEST_PIECE,
    across=tuning.ROWS_ACROSS,
    depth=tuning.SUMMED_DEPTH,
    most=tuning.ELEMENTS_ACROSS,
    matrix=tuning.SUMMED_SIZE,
)


@dataclass(slots=True)
class LoopModule:
    """A module with the loop plans of its functions.

    Args:
        module: tile IR, with carried offsets made scalar.
        plans: plan of each function by its symbol; the kernel's first.
    """

    module: ModuleOp
    plans: dict[str, FunctionPlan]

    @property
    def kernel(self) -> FunctionPlan:
        return next(iter(self.plans.values()))

    def render(self) -> str:
        """The plans as text for people."""
        return "\n".join(render(plan) for plan in self.plans.values())


def plan_module(module: ModuleOp, isa: CpuFeatures) -> LoopModule:
    """Plan all functions of a module (first stage)."""
    functions = sorted(FuncOp.all_of(module), key=lambda function: not function.is_kernel)
    plans = {}
    for function in functions:
        decisions = Decisions()
        kinds = {type(op) for op in walk(function)}
        raised = False
        if OrIOp in kinds:
            choose_inside(function)
        if ForOp in kinds:
            delinearize_loops(function, decisions)
            rematerialize_carried(function)
            unroll_short_loops(function, decisions)
        leave_out_unread_rows(function, decisions)
        raise_sums_to_dots(function, tuning.SUMMED_SIZE)
        make_offsets_scalar(function, decisions)
        convert_branches(function, decisions)
        sink_prefetched_loads(function, decisions)
        if ForOp in kinds:
            take_numbers_out_of_sums(function)
        if ForOp in kinds or ReduceOp in kinds:
            raised = normalize_reduction_loops(function, decisions, _ROWS)
        distribute_loops(function, isa, decisions)
        if DotOp in kinds or raised:
            normalize_dot_loops(function, decisions)
            narrow_dots(function, isa, decisions)
            lower_row_dots_to_sums(function, decisions)
        swap_dot_operands(function, decisions)
        divide_rows_once(function, decisions)
        rewrite_ragged_cats(function)
        if ReduceOp in kinds or raised:
            unroll_reductions(function, decisions)
        merge_interleaved_stores(function, decisions)
        note_loops(function, decisions)
        plans[function.symbol] = plan_function(function, isa, decisions)
    return LoopModule(module, plans)
