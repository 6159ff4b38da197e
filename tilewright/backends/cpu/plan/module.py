"""The plan of a whole module: the `loops` stage."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.apart import sum_apart
from tilewright.backends.cpu.plan.beside import store_beside
from tilewright.backends.cpu.plan.blocked_trips import add_up_in_blocks
from tilewright.backends.cpu.plan.computed_rows import sum_computed_rows
from tilewright.backends.cpu.plan.dims_at_once import reduce_dims_at_once
from tilewright.backends.cpu.plan.outer_products import multiply_outer_products
from tilewright.backends.cpu.plan.planner import plan_function
from tilewright.backends.cpu.plan.ragged import rewrite_ragged_cats
from tilewright.backends.cpu.plan.reciprocal import divide_rows_once
from tilewright.backends.cpu.plan.reduced_in_trips import reduce_in_trips
from tilewright.backends.cpu.plan.short_axes import add_up_slices
from tilewright.backends.cpu.plan.short_loops import write_out_short_loops
from tilewright.backends.cpu.plan.steps import FunctionPlan, render
from tilewright.backends.cpu.plan.summed_rows import multiply_summed_rows
from tilewright.backends.cpu.plan.turned import turn_products
from tilewright.backends.cpu.plan.whole_rows import take_whole_rows
from tilewright.backends.cpu.plan.widened import multiply_narrow
from tilewright.backends.cpu.plan.wrapped import leave_out_unread_rows
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.ir.decisions import Decisions
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import OrIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.reduce import ReduceOp
from tilewright.passes.accumulate import accumulate_in_products
from tilewright.passes.carried_offsets import make_offsets_scalar
from tilewright.passes.derived import derive_carried
from tilewright.passes.either_way import leave_branches
from tilewright.passes.handed_on import load_where_used
from tilewright.passes.masks import choose_inside
from tilewright.passes.nested import nest_loops
from tilewright.passes.rolled import roll_products
from tilewright.passes.summed_products import multiply_for_sums


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
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    functions.sort(key=lambda function: not function.is_kernel)
    plans = {}
    for function in functions:
        decisions = Decisions()
        kinds = {type(op) for op in walk(function)}
        if OrIOp in kinds:
            choose_inside(function)
        if ForOp in kinds:
            nest_loops(function, decisions)
            derive_carried(function)
            write_out_short_loops(function, decisions)
        leave_out_unread_rows(function, decisions)
        multiply_for_sums(function, tuning.SUMMED_SIZE)
        make_offsets_scalar(function, decisions)
        leave_branches(function, decisions)
        load_where_used(function, decisions)
        if ForOp in kinds:
            multiply_outer_products(function, decisions)
        whole = take_whole_rows(function, decisions) if ForOp in kinds else set()
        if ForOp in kinds and add_up_in_blocks(function, decisions, but=whole):
            multiply_for_sums(function, tuning.SUMMED_SIZE)
            accumulate_in_products(function)
        multiply_summed_rows(function, decisions)
        if ForOp in kinds:
            reduce_in_trips(function, decisions)
        if ReduceOp in kinds:
            reduce_dims_at_once(function, decisions)
        sum_apart(function, isa, decisions)
        roll_products(function, decisions)
        if DotOp in kinds:
            multiply_narrow(function)
            sum_computed_rows(function, decisions)
        turn_products(function, decisions)
        divide_rows_once(function, decisions)
        rewrite_ragged_cats(function)
        if ReduceOp in kinds:
            add_up_slices(function, decisions)
        store_beside(function, decisions)
        plans[function.symbol] = plan_function(function, isa, decisions)
    return LoopModule(module, plans)
