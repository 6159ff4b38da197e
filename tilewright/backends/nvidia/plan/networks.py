"""Layouts of networks that sort: most of the elements that are compared lie in one thread.

A step of such a network compares elements whose places differ in one bit; how many steps a bit has is counted. Bits
with the most become registers, then lanes, the others warps. A pair in one thread is exchanged without a shuffle, and
compared once instead of once for each of its ends. What is sorted is converted to that layout and back, where that is
less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.analysis.along import chosen_of_two
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.plan.relations import is_access, is_ragged, is_uniform
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.layouts.linear import LinearLayout, log2
from tilewright.layouts.tile import reshape_tile
from tilewright.ops.function import FuncOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.shape import ReshapeOp

_CONVERSIONS = 4  # of a network that moves places along with values: both of them, there and back


@dataclass(frozen=True, slots=True)
class _Step:
    """One end of each pair of a tile.

    Args:
        pairs: a reshape of the tile with the two ends along one dim, of which a reduction picks one.
        bit: in which the places of both ends differ.
    """

    pairs: ReshapeOp
    bit: int


def network_layouts(
    function: FuncOp, num_warps: int, usual: Callable[[SSAValue], LinearLayout]
) -> dict[SSAValue, LinearLayout]:
    """The layouts of tiles that networks sort, and of their pairs.

    Args:
        function: tile IR.
        num_warps: warps of a block.
        usual: the layout that a tile would have otherwise.
    """
    networks: dict[tuple[int, ...], list[_Step]] = {}
    for step in _steps(function):
        networks.setdefault(tuple(shape_of(step.pairs.src.type)), []).append(step)
    made: dict[SSAValue, LinearLayout] = {}
    for steps in networks.values():
        held = usual(steps[0].pairs.src)
        layout = _suited(steps, held, num_warps)
        if layout is not None and _is_worth(steps, held, layout):
            made |= {value: layout for step in steps for value in _casts(step.pairs.src)}
            made |= {step.pairs.result: reshape_tile(layout, tuple(shape_of(step.pairs.result.type))) for step in steps}
    return made


def _steps(function: FuncOp) -> Iterator[_Step]:
    for op in every(function, ReduceOp):
        found = chosen_of_two(op)
        if found is None:
            continue
        shaped = defining_op(_casts(found[0])[-1])
        if not isinstance(shaped, ReshapeOp) or is_ragged(shaped):
            continue
        sizes = shape_of(found[0].type)
        if all(not size & size - 1 for size in sizes):
            yield _Step(shaped, sum(map(log2, sizes[int(op.attr_values()["axis"]) + 1 :])))


def _casts(value: SSAValue) -> list[SSAValue]:
    """A tile, and those that it is made of one by one, element by element."""
    found = [value]
    while (op := defining_op(found[-1])) is not None and is_uniform(op) and len(op.operands) == 1 and not is_access(op):
        found.append(op.operands[0])
    return found


def _suited(steps: list[_Step], held: LinearLayout, num_warps: int) -> LinearLayout | None:
    """The bits with most steps in registers; None where there are no registers for them."""
    sizes = held.out_sizes
    width, counts = sum(map(log2, sizes.values())), Counter(step.bit for step in steps)
    lanes, warps = log2(WARP), log2(num_warps)
    if width <= lanes + warps:
        return None
    bits = [1 << bit for bit in sorted(range(width), key=lambda bit: (-counts[bit], bit))]
    ends = width - warps - lanes, width - warps
    groups = {"register": bits[: ends[0]], "lane": bits[ends[0] : ends[1]], "warp": bits[ends[1] :]}
    flat = {dim: [(bit,) for bit in groups.get(dim, ())] for dim in held.in_sizes}
    return reshape_tile(LinearLayout.from_bases(flat, {"dim0": 1 << width}), tuple(sizes.values()))


def _is_worth(steps: list[_Step], held: LinearLayout, layout: LinearLayout) -> bool:
    """Whether the shuffles saved, which move bytes as fast as shared memory does, cost more than to convert."""
    exchanged = {step.pairs: step.bit for step in steps}
    saved = sum(_is_exchanged(held, bit) - _is_exchanged(layout, bit) for bit in exchanged.values())
    return saved > 2 * _CONVERSIONS  # each moves a tile into shared memory and out of it


def _is_exchanged(layout: LinearLayout, bit: int) -> bool:
    """Whether a difference in one bit of the flat place leads to another thread."""
    flat = reshape_tile(layout, (1 << sum(map(log2, layout.out_sizes.values())),))
    return 1 << bit not in flat.columns_of("register")
