"""How a tile gets from one distributed layout to another: registers, warp shuffles or shared memory.

The question is linear: a plan stays inside a thread (a warp) if ``source(y) = destination(x)`` has a solution y with
the lane and warp (the warp) of x for every x. Where both shuffles and shared memory will do, the cheaper is taken.
"""

from __future__ import annotations

import functools

from tilewright.base.errors import UnsupportedError
from tilewright.layouts.exchange import SharedPlan, plan_shared
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shuffle import WarpPlan, plan_warp

POSITION = ("register", "lane", "warp", "block")


@functools.lru_cache(maxsize=4096)
def plan_conversion(
    source: LinearLayout,
    destination: LinearLayout,
    element_bits: int,
    scratch_limit: int | None = None,
    load_matrix: bool = True,
    store_matrix: bool = False,
) -> WarpPlan | SharedPlan:
    """The cheapest way to convert; `plan.kind` is "register", "shuffle" or "shared", `plan.cost` its price.

    Args:
        source, destination: layouts of one tile over the same lanes, warps and blocks.
        element_bits: bits of an element; fewer than 8 count as 8.
        scratch_limit, load_matrix, store_matrix: see `plan_shared`.

    Raises:
        LayoutError: the layouts are not of one tile and one launch.
        UnsupportedError: elements would have to move between the blocks of a cluster.
    """
    source, destination = _checked(source, destination)
    element_bits = max(8, element_bits)
    warp = plan_warp(source, destination, element_bits)
    if warp is not None and warp.kind == "register":
        return warp
    shared = plan_shared(source, destination, element_bits, scratch_limit, load_matrix, store_matrix)
    plans = [plan for plan in (warp, shared) if plan is not None]
    if not plans:
        raise UnsupportedError(
            "this conversion moves elements between the blocks of a cluster", hint="use num_ctas=1 for this kernel"
        )
    return min(plans, key=lambda plan: plan.cost)


def is_free(source: LinearLayout, destination: LinearLayout) -> bool:
    """Whether a conversion only renames registers."""
    plan = plan_warp(*_checked(source, destination), 32)
    return plan is not None and plan.registers is not None


def _checked(source: LinearLayout, destination: LinearLayout) -> tuple[LinearLayout, LinearLayout]:
    sizes = [{dim: layout.in_sizes.get(dim, 1) for dim in POSITION[1:]} for layout in (source, destination)]
    if source.out_sizes != destination.out_sizes or sizes[0] != sizes[1]:
        raise LayoutError(f"no conversion between layouts of different tiles or launches:\n{source}\n{destination}")
    if not (source.is_surjective() and destination.is_surjective()):
        raise LayoutError(f"a layout does not cover its tile:\n{source}\n{destination}")
    return _positions(source), _positions(destination)


def _positions(layout: LinearLayout) -> LinearLayout:
    if tuple(layout.in_sizes) == POSITION:
        return layout
    missing = [dim for dim in POSITION if dim not in layout.in_sizes]
    for dim in missing:
        layout = layout * LinearLayout.zeros(1, dim, next(iter(layout.out_sizes)))
    return layout.transpose(ins=POSITION)
