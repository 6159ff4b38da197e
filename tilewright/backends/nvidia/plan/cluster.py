"""Long rows over a cluster: a tile that one block cannot hold well is shared out to several, which reduce it together.

    %x = tt.load %p : 65536        block b of 4 holds %x[16384 * b : 16384 * (b + 1)]
    %m = tt.reduce (max) %x        each block reduces its share and sends what it found to the others
    tt.store %q, %x - %m           each block stores its share

Tiles are *shared* along one dim, of which each block has a run of coordinates, or *whole*: every block has all of them
and computes the same. What is shared spreads from the rows that are reduced to everything that is computed from or for
them, element by element. Loads, stores, arithmetic and reductions have a form for clusters; where anything else takes
part the kernel stays one block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import MOST_REGISTERS, REGISTERS, WARP, Arch
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.relations import is_uniform
from tilewright.backends.nvidia.plan.strips import parts_of
from tilewright.backends.nvidia.plan.subjects import LONG_ROWS
from tilewright.backends.nvidia.plan.team import Team, note_team
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import element_type, shape_of
from tilewright.ir.values import defining_op, is_tile, property_int
from tilewright.ir.walk import every, walk
from tilewright.layouts.padding import padded_shape
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import FuncOp, ReturnOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.memory import LoadOp, StoreOp, is_volatile
from tilewright.ops.program import AssumeOp, GridOp
from tilewright.ops.reduce import ReduceOp, ReduceReturnOp
from tilewright.ops.shape import TransOp
from tilewright.ops.spec import REGISTRY, dims_of
from tilewright.passes.dce import is_removable

_MOST_BLOCKS = 8  # of a cluster that every GPU with clusters runs (CUDA C++ Programming Guide, "Thread Block Clusters")
_SHARED_OUT = (
    LoadOp, StoreOp, ReduceOp, ReduceReturnOp, ForOp, IfOp, YieldOp, ReturnOp, FuncOp, GridOp, AssumeOp,
    SplatOp, BroadcastOp, ExpandDimsOp, TransOp, ConstantOp, MakeRangeOp,
)  # fmt: skip


def share_out_long_rows(module: ModuleOp, options: CudaOptions, arch: Arch, decisions: Decisions) -> Team:
    """Decide how many blocks run a program, and have its kernel say so.

    Args:
        module: tile IR, all calls inlined.
        options: compile options.
        arch: of the target.
        decisions: of the compilation.

    Returns:
        The threads of a program.
    """
    team = Team(options.block_warps)
    for function in FuncOp.all_of(module):
        if function.is_kernel:
            rows = [op for op in every(function, ReduceOp) if _is_long(op, options.block_warps)]
            if rows:
                found = decisions.note(LONG_ROWS, rows[0], _shared_out(function, rows, options, arch))
                if found is not None:
                    note_team(function, found)
                    team = found
    return team


def _is_long(row: ReduceOp, warps: int) -> bool:
    """Whether so many warps of one block would not hold a row well, or no block would."""
    threads = warps * WARP
    held = tuning.CLUSTER_SHARE * min(MOST_REGISTERS * threads, REGISTERS)
    return _words(row) > max(held, tuning.CLUSTER_SHARE * REGISTERS / 2)


def _words(row: ReduceOp) -> int:
    """Registers that a row takes, of all threads together."""
    each = max(1, memory_bits(element_type(row.operands[0].type)) // 32)
    return math.prod(padded_shape(_shape(row))) * each


def _shared_out(function: FuncOp, rows: Sequence[ReduceOp], options: CudaOptions, arch: Arch) -> Answer[Team]:
    """The threads of a program whose rows are shared out to the blocks of a cluster."""
    if not arch.has_clusters:
        return No("the architecture has no clusters")
    if options.launch_cooperative_grid:
        return No("launch_cooperative_grid counts blocks", instead="no launch_cooperative_grid")
    strange = next((op for op in walk(function) if not _has_form(op)), None)
    if strange is not None:
        return No(f"{describe_op(strange)} has no form for clusters", strange)
    sharing = _Sharing(function)
    stopped = sharing.spread(rows)
    if stopped is not None:
        return stopped
    if not sharing.is_held(rows):
        return No("one pass reads it, which need not keep it")
    words = max(map(_words, rows))
    blocks = 2
    while blocks < _MOST_BLOCKS and words > blocks * _THREADS * tuning.CLUSTER_REGISTERS:
        blocks *= 2
    warps, registers = tuning.CLUSTER_WARPS, words // (blocks * _THREADS)
    if registers > 2 * tuning.CLUSTER_REGISTERS:
        return No(f"it is more than {blocks} blocks of {warps} warps hold", instead="a loop over blocks of the row")
    short = next((v for v, axis in sharing.axes.items() if padded_shape(shape_of(v.type))[axis] < blocks), None)
    if short is not None:
        return No(f"{blocks} blocks share less than {blocks} elements", defining_op(short))
    what = f"{blocks} blocks of {warps} warps, {registers} registers of each thread; "
    return Yes(Team(warps, blocks, sharing.by_shape()), what + f"else one block of {options.block_warps} warps")


_THREADS = tuning.CLUSTER_WARPS * WARP


def _has_form(op: Operation) -> bool:
    """Whether the blocks of a cluster can run an operation, each on its share or all alike."""
    if is_volatile(op):
        return False
    elementwise = isinstance(op, AddPtrOp | ExternElementwiseOp) or bool(REGISTRY[op.name].elementwise)
    return isinstance(op, _SHARED_OUT) or (elementwise and not op.regions and is_removable(op))


@dataclass(slots=True)
class _Sharing:
    """Which tiles of a function the blocks share, and along which dim.

    Args:
        function: tile IR.
    """

    function: FuncOp
    axes: dict[SSAValue, int] = field(default_factory=dict)
    _ranges: set[SSAValue] = field(default_factory=set)

    def spread(self, rows: Sequence[ReduceOp]) -> No | None:
        """Share the rows along the dims in which they are reduced, of two the longer; what stands in the way, if so."""
        self._note_ranges()
        todo: list[tuple[SSAValue, int]] = []
        for row in rows:
            if _extent(row) == max(_extent(other) for other in rows if _shape(other) == _shape(row)):
                todo += [(operand, _axis(row)) for operand in row.operands]
        while todo:
            value, axis = todo.pop()
            if value in self._ranges or self.axes.get(value) == axis:
                continue
            extent = shape_of(value.type)[axis]
            if value in self.axes or extent & (extent - 1):
                reason = "it is taken along two dims" if value in self.axes else f"{extent} is no power of two"
                return No(reason, defining_op(value))
            self.axes[value] = axis
            for op, found in self._neighbours(value, axis):
                if found is None:
                    return No(f"{describe_op(op)} takes it whole", op)
                todo += found
        return self._mixed()

    def is_held(self, rows: Sequence[ReduceOp]) -> bool:
        """Whether elements are needed when something is known of all of them: tiles that meet what reductions gave."""
        found = {result for row in rows for result in row.results}
        for op in walk(self.function):
            taken = found.intersection(op.operands)
            if taken and any(operand in self.axes for operand in op.operands if operand not in taken):
                return True
            found.update(op.results if taken else ())
        return False

    def by_shape(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Of the padded shapes of shared tiles the dim."""
        return tuple(sorted({(padded_shape(shape_of(value.type)), axis) for value, axis in self.axes.items()}))

    def _mixed(self) -> No | None:
        """Layouts go by shape: no tile may be whole that has the shape of a shared one."""
        known: dict[tuple[int, ...], int] = {}
        for value, axis in self.axes.items():
            if known.setdefault(padded_shape(shape_of(value.type)), axis) != axis:
                return No("tiles of one shape are shared along two dims", defining_op(value))
        for op in walk(self.function):
            for value in op.results:
                whole = is_tile(value) and value not in self._ranges and value not in self.axes
                if whole and padded_shape(shape_of(value.type)) in known:
                    return No(f"what {describe_op(op)} gives is whole, and has the shape of a shared tile", op)
        return None

    def _note_ranges(self) -> None:
        """Find the tiles made of ranges and scalars alone, which are made as anyone wants them."""
        for op in walk(self.function):
            made = isinstance(op, (ConstantOp, MakeRangeOp, SplatOp, BroadcastOp, ExpandDimsOp, TransOp)) or (
                is_uniform(op) and not isinstance(op, (LoadOp, StoreOp))
            )
            if made and all(operand in self._ranges for operand in op.operands if is_tile(operand)):
                self._ranges.update(filter(is_tile, op.results))

    def _neighbours(self, value: SSAValue, axis: int) -> Iterator[tuple[Operation, list[tuple[SSAValue, int]] | None]]:
        """The operations that make and take a shared tile, and what they need shared; None where they cannot be."""
        owner = value.owner
        if isinstance(owner, Block):
            parent = owner.parent_op()
            assert parent is not None
            yield parent, None
            return
        parts = parts_of(value, axis)
        tiles = zip(owner.operands, parts or (), strict=bool(parts))
        yield owner, None if parts is None else [(operand, at) for operand, at in tiles if at is not None]
        for use in value.uses:
            yield use.operation, _taken(use.operation, value, axis)


def _taken(op: Operation, tile: SSAValue, axis: int) -> list[tuple[SSAValue, int]] | None:
    """What an operation needs shared that takes a tile shared along a dim; None if that cannot be said."""
    dims = dims_of(op)
    if dims is None:
        return None
    name = next(names[axis] for value, names in dims.named(op) if value is tile)
    return [(value, names.index(name)) for value, names in dims.named(op) if name in names]


def _shape(row: ReduceOp) -> tuple[int, ...]:
    return shape_of(row.operands[0].type)


def _extent(row: ReduceOp) -> int:
    return _shape(row)[_axis(row)]


def _axis(op: Operation) -> int:
    return property_int(op, "axis")


__all__ = ["share_out_long_rows"]
