"""The table of contents of the passes over tile IR, and their runner.

Read it top down: this is the order in which a kernel is simplified before a back end sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.decompose import decompose
from tilewright.passes.fold_dots import fold_into_dots
from tilewright.passes.fp_contraction import contract_floats
from tilewright.passes.index_sets import split_index_sets
from tilewright.passes.inline import inline_calls
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.loop_exits import move_exits_to_tests
from tilewright.passes.mask_bounds import compare_places_with_bounds
from tilewright.passes.masks import simplify_masks
from tilewright.passes.selections import select_in_functions
from tilewright.passes.structure import structure_branches
from tilewright.passes.unit_dims import drop_unit_dims
from tilewright.passes.unit_loops import count_marked_loops, normalize_loops
from tilewright.passes.unreachable import drop_unreachable_blocks
from tilewright.passes.while_to_for import convert_while_to_for


@dataclass(frozen=True, slots=True)
class Pass:
    """A named rewrite of a module; `run` says whether it changed anything."""

    name: str
    run: Callable[[ModuleOp], bool]


UNREACHABLE = Pass("unreachable", drop_unreachable_blocks)
STRUCTURE = Pass("structure", structure_branches)
INLINE = Pass("inline", inline_calls)
STEPS = Pass("steps", count_marked_loops)
FP_CONTRACTION = Pass("fp_contraction", contract_floats)
DECOMPOSE = Pass("decompose", decompose)
DECOMPOSE_ALL = Pass("decompose_all", lambda module: decompose(module, lambda maker: False))
LOOP_EXITS = Pass("loop_exits", move_exits_to_tests)
SELECTIONS = Pass("selections", select_in_functions)
CANONICALIZE = Pass("canonicalize", canonicalize)
MASKS = Pass("masks", simplify_masks)
MASK_BOUNDS = Pass("mask_bounds", compare_places_with_bounds)
CSE = Pass("cse", eliminate_common_subexpressions)
WHILE_TO_FOR = Pass("while_to_for", convert_while_to_for)
INDEX_SETS = Pass("index_sets", split_index_sets)
UNIT_LOOPS = Pass("unit_loops", normalize_loops)
FOLD_DOTS = Pass("fold_dots", fold_into_dots)
UNIT_DIMS = Pass("unit_dims", drop_unit_dims)
LICM = Pass("licm", hoist_loop_invariants)
DCE = Pass("dce", eliminate_dead_code)

SIMPLIFY: tuple[Pass, ...] = (
    UNREACHABLE,
    STRUCTURE,
    INLINE,
    STEPS,  # behind calls, which tell the sign of a step
    FP_CONTRACTION,  # before anything moves: it goes by what is written
    DECOMPOSE,
    LOOP_EXITS,
    SELECTIONS,
    CANONICALIZE,
    UNIT_DIMS,
    MASKS,
    MASK_BOUNDS,
    CSE,
    WHILE_TO_FOR,
    INDEX_SETS,
    UNIT_LOOPS,  # behind all that makes loops or moves their ends
    FOLD_DOTS,
    LICM,
    DCE,  # last: the other passes leave dead operations behind for it
)
# Enough to see what a kernel does to memory: calls, what constants decide, what nobody uses. A third of the time.
RESOLVE: tuple[Pass, ...] = (UNREACHABLE, STRUCTURE, INLINE, STEPS, DECOMPOSE, CANONICALIZE, DCE)
# Of a text nobody knows whether its arguments are what it says: no launch describes them to a copy engine.
SIMPLIFY_TEXT: tuple[Pass, ...] = tuple(DECOMPOSE_ALL if step is DECOMPOSE else step for step in SIMPLIFY)


def passes_for(fuses: bool, passes: Sequence[Pass] = SIMPLIFY) -> Sequence[Pass]:
    """`passes`, without contraction unless the options and the target fuse products with sums."""
    return passes if fuses else [step for step in passes if step is not FP_CONTRACTION]


def run_passes(
    module: ModuleOp,
    passes: Sequence[Pass] = SIMPLIFY,
    after: Callable[[Pass, ModuleOp], None] | None = None,
    told: Callable[[str, ModuleOp, bool], None] | None = None,
) -> ModuleOp:
    """Run `passes` in order on `module`, in place.

    Args:
        module: tile IR.
        passes: what to run.
        after: called after each pass that changed the module (verification).
        told: called after each pass with its name, the module, and whether it changed that.
    """
    for step in passes:
        changed = step.run(module)
        if changed and after is not None:
            after(step, module)
        if told is not None:
            told(step.name, module, changed)
    return module
