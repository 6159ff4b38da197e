"""Programs of a plain grid as a loop: blocks stay on their multiprocessors, and run one program after the other.

::

    x = program_id(0)              for turn in range(programs of the block):
    ... a program ...       ->         x = (block + turn * blocks) % num_programs(0)
                                       ... a program ...

Alone that brings little. Divided between roles (`roles`) the loop loads what the next program multiplies while this one
stores its results, and no program waits for its own start: what a block for each program pays every time.

The launch starts as many blocks as run at a time, and hands the grid on (`device/stub.py`). Whose loops may take
different times keeps its blocks, which multiprocessors take as they become free; and so do programs that may wait for
each other, since those that one block runs come one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, Region
from xdsl.traits import IsTerminator, MemoryEffectKind

from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit
from tilewright.analysis.uniform import is_invariant
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import MOST_REGISTERS, Arch
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.pace import product_cycles
from tilewright.backends.nvidia.tgir.ops import LaidOutOp, ProgramCountOp, ProgramPlaceOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import tile_words
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import describe_op
from tilewright.ir.effect_traits import effects, is_atomic, is_without_effects
from tilewright.ir.types import i32
from tilewright.ir.walk import every, walk
from tilewright.ops.control import ForOp, WhileOp, YieldOp
from tilewright.ops.descriptor import MakeTensorDescOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import is_volatile
from tilewright.ops.program import AssumeOp, GetProgramIdOp, GridOp
from tilewright.passes.rewriting import erase, move_before, replace


def why_in_order(function: FuncOp) -> No | None:
    """Why programs of a kernel cannot start in any order: one may wait for an earlier one; None if they can.

    Args:
        function: a kernel, all calls inlined.
    """
    for op in walk(function):
        if is_atomic(op) or is_volatile(op):
            return No("programs may wait for earlier ones", op)
        if isinstance(op, WhileOp):
            return No("programs may wait for earlier ones in a loop by a condition", op)
    return None


def plan_persistence(
    function: FuncOp, loops: Sequence[ForOp], shared_bytes: int, options: CudaOptions, arch: Arch
) -> Answer[int]:
    """Whether blocks run the programs of a kernel one after the other; the number is that of cycles of an iteration.

    Args:
        function: a kernel in laid-out tile IR.
        loops: with products, one after the other, under nothing else.
        shared_bytes: shared memory of a block without.
        options: compile options.
        arch: what the target has.
    """
    no = why_in_order(function) or _together(function, options)
    if no is not None:
        return no
    for loop in every(function, ForOp):
        if not all(map(is_invariant, loop.operands[:3])):
            return No("programs take different times, and blocks that are free take the next one", loop)
    dots = [op for loop in loops for op in every(loop, WarpGroupDotOp)]
    if not _alone(dots, shared_bytes, options, arch):
        return No("blocks that share a multiprocessor load and store while others multiply")
    cycles = max(1, sum(map(product_cycles, dots)))
    known = sum(map(_iterations, loops)) * cycles
    if known > tuning.PROGRAM_CYCLES * tuning.LONG_PROGRAM:
        return No(f"of its {known} cycles a program waits {tuning.PROGRAM_CYCLES}")
    return Yes(
        cycles,
        f"copies go on from program to program; a block for each would wait some {tuning.PROGRAM_CYCLES} cycles for "
        f"its first copies and last stores, beside {cycles} cycles of products in an iteration",
    )


def _together(function: FuncOp, options: CudaOptions) -> No | None:
    """Why the programs of a kernel must be blocks: it says something of them, or does what nobody knows."""
    if not options.persistent_programs:
        return No("programs are blocks for who launches the kernel", instead="persistent_programs=True")
    if options.launch_cooperative_grid or options.launch_pdl:
        return No("the launch says how blocks run: launch_cooperative_grid, launch_pdl")
    other = next(filter(_is_ordered, walk(function)), None)
    return None if other is None else No(f"{describe_op(other)} has effects beside those on its memory", other)


def _is_ordered(op: Operation) -> bool:
    """Whether an operation does something beside loading and storing: it prints, waits, or nobody knows."""
    if op.regions or isinstance(op, LaidOutOp | AssumeOp) or op.has_trait(IsTerminator):
        return False
    found = effects(op)
    return found is None or any(effect.kind is not MemoryEffectKind.READ and effect.value is None for effect in found)


def _alone(dots: Sequence[WarpGroupDotOp], shared_bytes: int, options: CudaOptions, arch: Arch) -> bool:
    """Whether a multiprocessor has room for one block of the kernel at a time, by its products and rings alone."""
    registers = min(sum(tile_words(dot.d.type) for dot in dots) + tuning.ROLE_REGISTERS, MOST_REGISTERS)
    return arch.blocks_per_multiprocessor(options.block_warps, registers, min(shared_bytes, arch.shared_limit)) < 2


def _iterations(loop: ForOp) -> int:
    """How many iterations a loop has; 0 if that is not known."""
    count = constant_of(loop.ub) if is_unit(loop) else None
    return count if isinstance(count, int) else 0


# --- rewriting ----------------------------------------------------------------------------------------------------


class Persistence:
    """The body of a kernel as a loop over programs, made at once.

    Args:
        function: the kernel, in which it is made; scalars that are the same for all programs stay in front.
        like: an operation whose place in the source the loop has.
    """

    def __init__(self, function: FuncOp, like: Operation) -> None:
        block = function.body.block
        self.before, end = list(block.ops), block.last_op
        assert end is not None
        b = Builder(end)
        self.bounds = [b.number(0), b.make(ProgramCountOp, i32), b.number(1)]
        body, last = Block(arg_types=[i32]), YieldOp.create()
        body.add_op(last)
        self.loop = ForOp.create(operands=self.bounds, result_types=[], regions=[Region(body)])
        b.insert(self.loop)
        for op in (*(bound.owner for bound in self.bounds), self.loop, last):
            assert isinstance(op, Operation)
            op.location = like.location
        indices = every(function, GetProgramIdOp)
        b = Builder(last)
        self.places = [(op, self._place(b, op)) for op in indices]
        for op in self.before:
            if op is not end and not _stays_in_front(op):
                move_before(op, last)

    def _place(self, b: Builder, index: GridOp) -> Operation:
        """What is read in place of an index of a block, with what the user promises of it."""
        made = b.effect(ProgramPlaceOp, [self.loop.body.block.args[0]], [index.results[0].type], **index.attr_values())
        made.attributes.update(index.attributes)
        made.location = index.location
        index.results[0].replace_all_uses_with(made.results[0])
        return made

    def undo(self) -> None:
        """Make programs blocks again."""
        for index, place in self.places:
            replace(place, index.results)
        for op in self.before[:-1]:
            move_before(op, self.before[-1])
        erase(self.loop)
        for bound in self.bounds:
            assert isinstance(bound.owner, Operation)
            erase(bound.owner)


def _stays_in_front(op: Operation) -> bool:
    if isinstance(op, MakeTensorDescOp):
        return True
    return bool(op.results) and not op.regions and is_without_effects(op) and all(map(is_invariant, op.results))


__all__ = ["Persistence", "plan_persistence", "why_in_order"]
