"""The plan of a whole module: the `loops` stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tilewright.analysis.recurrences import note_loops
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.interleaved_stores import merge_interleaved_stores
from tilewright.backends.cpu.plan.loop_distribution import distribute_loops
from tilewright.backends.cpu.plan.narrow_dots import narrow_dots
from tilewright.backends.cpu.plan.planner import plan_function
from tilewright.backends.cpu.plan.ragged import rewrite_ragged_cats
from tilewright.backends.cpu.plan.reciprocal import divide_rows_once
from tilewright.backends.cpu.plan.reduction_order import order_reductions
from tilewright.backends.cpu.plan.row_dots_to_sums import lower_row_dots_to_sums
from tilewright.backends.cpu.plan.single_trips import version_long_rows, version_single_trips
from tilewright.backends.cpu.plan.steps import FunctionPlan, render
from tilewright.backends.cpu.plan.swap_operands import swap_dot_operands
from tilewright.backends.cpu.plan.unroll_loops import unroll_short_loops
from tilewright.backends.cpu.plan.unroll_reductions import unroll_reductions
from tilewright.backends.cpu.plan.wrapped_indices import leave_out_unread_rows
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.ir.decisions import Decisions
from tilewright.ir.walk import walk
from tilewright.loops.chosen_extremes import raise_chosen_extremes
from tilewright.loops.dot_loops import normalize_dot_loops
from tilewright.loops.reduction_loops import Rows, normalize_reduction_loops
from tilewright.loops.scaled_sums import take_numbers_out_of_sums
from tilewright.loops.sink_prefetched_loads import sink_prefetched_loads
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AndIOp, DivFOp, MaxSIOp, MinSIOp, OrIOp, RemSIOp, SelectOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.shape import CatOp
from tilewright.passes.address_sums import add_places_once
from tilewright.passes.carried_offsets import make_offsets_scalar
from tilewright.passes.delinearize import delinearize_loops
from tilewright.passes.fold_dots import fold_into_dots
from tilewright.passes.if_conversion import convert_branches
from tilewright.passes.induction_variables import rematerialize_carried
from tilewright.passes.masks import choose_inside, count_inside
from tilewright.passes.sums_to_dots import raise_sums_to_dots

_ROWS = Rows(
    along=tuning.LONG_ROW,
    across=tuning.ROWS_ACROSS,
    depth=tuning.SUMMED_DEPTH,
    most=tuning.ELEMENTS_ACROSS,
    matrix=tuning.SUMMED_SIZE,
)

_Rewrite = Callable[[FuncOp, Decisions], bool]  # says whether it changed anything


def _rewrites(isa: CpuFeatures) -> tuple[tuple[tuple[type[Operation], ...], _Rewrite], ...]:
    """The table of contents: what is rewritten, in this order, where there are operations of which classes."""
    return (
        ((OrIOp,), lambda function, _: choose_inside(function)),
        ((AndIOp,), lambda function, _: count_inside(function)),
        ((ForOp,), delinearize_loops),
        ((ForOp,), lambda function, _: rematerialize_carried(function)),
        ((ForOp,), unroll_short_loops),
        ((RemSIOp, MinSIOp, MaxSIOp, SelectOp), leave_out_unread_rows),
        ((ReduceOp,), lambda function, _: _raise_sums_to_dots(function)),
        ((ForOp, WhileOp), make_offsets_scalar),
        ((IfOp,), convert_branches),
        ((ForOp,), version_single_trips),
        ((ForOp,), sink_prefetched_loads),
        ((ForOp,), lambda function, _: take_numbers_out_of_sums(function)),
        ((ForOp,), lambda function, _: raise_chosen_extremes(function)),
        ((ForOp, ReduceOp), lambda function, decisions: normalize_reduction_loops(function, decisions, _ROWS)),
        ((ForOp,), version_long_rows),
        ((DotOp,), lambda function, decisions: distribute_loops(function, isa, decisions)),
        ((DotOp,), normalize_dot_loops),
        ((DotOp,), lambda function, decisions: narrow_dots(function, isa, decisions)),
        ((DotOp,), lower_row_dots_to_sums),
        ((DotOp,), swap_dot_operands),
        ((DivFOp,), divide_rows_once),
        ((CatOp,), lambda function, _: rewrite_ragged_cats(function)),
        ((LoadOp,), lambda function, _: add_places_once(function)),
        ((ReduceOp,), order_reductions),
        ((ReduceOp,), unroll_reductions),
        ((StoreOp,), merge_interleaved_stores),
    )


def _raise_sums_to_dots(function: FuncOp) -> bool:
    """Rewrite sums that are dots, and add them to what they are added to."""
    return raise_sums_to_dots(function, tuning.SUMMED_SIZE) and (fold_into_dots(function) or True)


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
        for classes, rewrite in _rewrites(isa):
            if not kinds.isdisjoint(classes) and rewrite(function, decisions):
                kinds = {type(op) for op in walk(function)}
        note_loops(function, decisions)
        plans[function.symbol] = plan_function(function, isa, decisions)
    return LoopModule(module, plans)
