"""Double buffering in registers: loads of loops over rows are made an iteration before they are used.

A thread that uses what it has just loaded waits for memory in every iteration. The assembler unrolls loops, and so has
several loads under way, but moves none over a barrier, a shuffle or a store. So the loop carries what comes next:

    %t = load of the first iteration
    loop:  %t carried                      %new = load of the next iteration, if there is one
           ... body with %t for the load
           yield %new

What of the body computes addresses and masks is written once more for the iteration ahead, as for rings. A load whose
address is made of another load's result follows it: the other is made two iterations ahead, and what it brought is
there by then. An iteration and no more: a value that is handed on from iteration to iteration is moved, and a move
waits for the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.prefetch import (
    address_slice,
    order_kept,
    overwritten,
    words_of,
)
from tilewright.backends.nvidia.plan.subjects import DOUBLE_BUFFERED
from tilewright.backends.nvidia.tgir.ops import WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import layout_of, with_layout
from tilewright.base.decision import No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import i1, shape_of, tile_type
from tilewright.ir.values import users_of
from tilewright.ir.walk import among, every, walk
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.control import ForOp, LoopOp
from tilewright.ops.descriptor import DescriptorLoadOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import MulIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.passes.rewriting import erase, loop_carrying, replace

_PRODUCTS = (DotOp, WarpGroupDotOp, DescriptorLoadOp)  # loops with one of them hide what they wait for by rings
# the assembler moves no loads over them; else it has several iterations under way
_KEPT_APART = (ReduceOp, ScanOp, StoreOp)


@dataclass
class _Step:
    """Loads that are made equally far ahead.

    Args:
        loads: of one loop, in order.
        ops: what of the body computes their addresses and masks.
        carried: numbers of the carried values that these are computed from.
        iterations: how far ahead.
        values: what the loop carries for `carried`, of the iteration ahead.
        tiles: what each load brought for this iteration and those after it.
    """

    loads: list[LoadOp]
    ops: list[Operation]
    carried: list[int]
    iterations: int = 0
    values: list[SSAValue] = field(default_factory=list)
    tiles: dict[LoadOp, list[SSAValue]] = field(default_factory=dict)


def double_buffer_loads(module: ModuleOp, decisions: Decisions) -> None:
    """Have the innermost loops of a laid-out module load for later iterations, in place."""
    for function in FuncOp.all_of(module):
        for loop in every(function, ForOp):
            if any(among(loop.body.block.ops, LoadOp)) and _is_simple(loop):
                _double_buffer_loop(loop, decisions)


def _is_simple(loop: ForOp) -> bool:
    """Whether a loop is an innermost one, without products, that goes from row to row and has what keeps loads apart.

    Loops over the blocks of a row have few iterations, often one or two: a load ahead of them costs more than it hides.
    """
    inner = [op for op in walk(loop) if op is not loop]
    if _counts_blocks(loop) or any(isinstance(op, (LoopOp, *_PRODUCTS)) for op in inner):
        return False
    return any(isinstance(op, _KEPT_APART) for op in inner)


def _counts_blocks(loop: ForOp) -> bool:
    """Whether a loop goes by blocks, of a size that is known; those over strips are made with such a step.

    A block has a tile of its size: counters are multiplied by strides of rows and by the steps of an iteration, too.
    """
    step = constant_of(loop.step)
    if isinstance(step, int) and step > 1:
        return True
    users = users_of(loop.induction_var)
    sizes = [constant_of(user.operands[1]) if isinstance(user, MulIOp) else None for user in users]
    extents = {extent for load in among(loop.body.block.ops, LoadOp) for extent in shape_of(load.result.type)}
    return bool(sizes) and all(isinstance(size, int) and size > 1 and size in extents for size in sizes)


def _double_buffer_loop(loop: ForOp, decisions: Decisions) -> None:
    steps = _steps(loop, decisions)
    words = sum(words_of(load) * step.iterations for step in steps for load in step.loads)
    no = No(f"{words} registers of a thread for it are too many", instead="smaller blocks, or more warps")
    fits = words <= tuning.DOUBLE_BUFFER_WORDS
    for step in steps:
        for load in step.loads:
            decisions.note(DOUBLE_BUFFERED, load, Yes(None, f"{step.iterations} ahead") if fits else no)
    if fits and steps:
        _Rotation(loop, steps).run()


# --- which loads ------------------------------------------------------------------------------------------------------


def _steps(loop: ForOp, decisions: Decisions) -> list[_Step]:
    """The loads of a loop that can be made ahead; those of a step take addresses from those of steps before it."""
    body = loop.body.block
    left = among(body.ops, LoadOp)
    kept = order_kept(loop)
    known: set[SSAValue] = set()
    refused: dict[LoadOp, No] = {}
    steps: list[_Step] = []
    while left:
        found: dict[LoadOp, tuple[set[Operation], set[int]]] = {}
        for load in left:
            no = kept or overwritten(load, body)
            part = no or address_slice(load.operands, body, known)
            if isinstance(part, No):
                refused[load] = part
            else:
                found[load] = part
        if not found:
            break
        ops = set[Operation]().union(*(part[0] for part in found.values()))
        carried = set[int]().union(*(part[1] for part in found.values()))
        steps.append(_Step(list(found), [op for op in body.ops if op in ops], sorted(carried)))
        known |= {load.result for load in found}
        left = [load for load in left if load not in found]
    for load in left:
        decisions.note(DOUBLE_BUFFERED, load, refused[load])
    for number, step in enumerate(steps):
        step.iterations = len(steps) - number
    return steps


# --- the loop ---------------------------------------------------------------------------------------------------------


class _Rotation:
    """Rewrites one loop.

    Args:
        loop: the loop.
        steps: what it loads ahead.
    """

    def __init__(self, loop: ForOp, steps: Sequence[_Step]) -> None:
        self.loop, self.steps = loop, steps
        self.body = loop.body.block
        end = self.body.last_op
        assert end is not None
        self.end = end

    def run(self) -> None:
        """Replace the loop."""
        outside = Builder(self.loop)
        for step in self.steps:
            self._prologue(outside, step)
        reaches = [
            outside.mul(self.loop.step, outside.number(step.iterations, self.loop.step.type)) for step in self.steps
        ]
        self._carry(outside)
        first = self.body.first_op
        assert first is not None
        yielded: list[SSAValue] = []
        b, counter = Builder(first), self.body.args[0]
        made: list[list[SSAValue]] = []
        for step, reach in zip(self.steps, reaches, strict=True):
            valid = b.compare("ugt", b.sub(self.loop.ub, counter), reach)
            tiles, step.values = self._load(b, step, step.values, b.add(counter, reach), valid, step.iterations)
            made.append(tiles)
        for step, tiles in zip(self.steps, made, strict=True):
            for load, tile in zip(step.loads, tiles, strict=True):
                now, *later = step.tiles[load]
                yielded += [*later, tile]
                load.result.replace_all_uses_with(now)
            yielded += step.values
        self.end.operands = [*self.end.operands, *yielded]
        for step in reversed(self.steps):
            for load in reversed(step.loads):
                erase(load)

    def _prologue(self, b: Builder, step: _Step) -> None:
        """Loads of the first iterations, if there are so many."""
        loop, step.values = self.loop, [self.loop.iter_args[i] for i in step.carried]
        runs = b.compare("ult" if loop.unsignedCmp is not None else "slt", loop.lb, loop.ub)
        length, counter = b.sub(loop.ub, loop.lb), loop.lb
        step.tiles = {load: [] for load in step.loads}
        for iteration in range(step.iterations):
            valid = runs
            if iteration:
                valid = b.both(runs, b.compare("ult", b.sub(counter, loop.lb), length))
            tiles, step.values = self._load(b, step, step.values, counter, valid, iteration)
            for load, tile in zip(step.loads, tiles, strict=True):
                step.tiles[load].append(tile)
            counter = b.add(counter, loop.step)

    def _load(
        self, b: Builder, step: _Step, values: Sequence[SSAValue], counter: SSAValue, valid: SSAValue, iteration: int
    ) -> tuple[list[SSAValue], list[SSAValue]]:
        """What an iteration loads.

        Args:
            b: where.
            step: which loads.
            values: what the iteration has for the carried values of the addresses.
            counter: of the iteration.
            valid: whether there is such an iteration.
            iteration: its number among those of which tiles of the steps before are at hand.

        Returns:
            What is loaded, and the carried values of the iteration after it.
        """
        arguments = [self.body.args[i + 1] for i in step.carried]
        known: dict[SSAValue, SSAValue] = {self.body.args[0]: counter, **dict(zip(arguments, values, strict=True))}
        for earlier in self.steps[: self.steps.index(step)]:
            known.update({load.result: tiles[iteration] for load, tiles in earlier.tiles.items()})
        b.clone(step.ops, known)
        tiles = [_loaded(b, load, known, valid) for load in step.loads]
        return tiles, [known.get(self.end.operands[i], self.end.operands[i]) for i in step.carried]

    def _carry(self, outside: Builder) -> None:
        """Make the loop carry tiles and what addresses are computed from; steps then know the arguments."""
        old = self.loop
        extra: list[SSAValue] = []
        for step in self.steps:
            extra += [tile for load in step.loads for tile in step.tiles[load]] + step.values
        arguments = iter([self.body.insert_arg(value.type, len(self.body.args)) for value in extra])
        for step in self.steps:
            step.tiles = {load: [next(arguments) for _ in tiles] for load, tiles in step.tiles.items()}
            step.values = [next(arguments) for _ in step.values]
        made = loop_carrying(old, [*old.iter_args, *extra])
        replace(old, made.results[: len(old.results)])
        self.loop = made


def _loaded(b: Builder, load: LoadOp, known: dict[SSAValue, SSAValue], valid: SSAValue) -> SSAValue:
    """The load of another iteration, if there is such an iteration."""
    pointer, *masked = (known.get(value, value) for value in load.operands)
    mask = valid
    if shape_of(pointer.type):
        mask = b.make(SplatOp, with_layout(tile_type(shape_of(pointer.type), i1), layout_of(pointer)), valid)
    if masked:
        mask = b.both(masked[0], mask)
    made = LoadOp.create(
        operands=[pointer, mask, *masked[1:]], result_types=[load.result.type], properties=load.properties.copy()
    )
    made.location = load.location
    return b.insert(made).results[0]


__all__ = ["double_buffer_loads"]
