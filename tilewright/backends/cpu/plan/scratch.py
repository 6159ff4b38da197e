"""Scratch: when each buffer is alive, and where in the arena it lies.

Steps are numbered in the order in which they run; a buffer lives from the first step that touches it to the last. One
that is touched inside a loop but was written before it, or that carries a tile around it, lives as long as the loop.
Buffers whose lives do not meet share memory (first fit by size).
One that is touched in one loop over rows alone keeps one row.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Collection, Iterator, Mapping

from xdsl.ir import SSAValue

from tilewright.backends.cpu.plan.demand import Demands
from tilewright.backends.cpu.plan.dot_operands import ScratchOperand
from tilewright.backends.cpu.plan.dot_step import DotDetail
from tilewright.backends.cpu.plan.steps import BlockPlan, Buffer, CopySink, FunctionPlan, RowsStep, Step
from tilewright.ir.values import is_tile
from tilewright.ops.control import ControlOp, ForOp, IfOp, WhileOp
from tilewright.ops.function import CallOp

_ALIGN = 64


def allocate(plan: FunctionPlan) -> None:
    """Give every buffer of the plan an offset, and the plan its size."""
    lives = _Lives()
    lives.demands.place(plan.arguments)
    for buffer in (*plan.arguments.values(), *plan.returns.values()):
        lives.touch(buffer, 0)
    whole = len(plan.blocks) > 1
    for block in plan.blocks:
        lives.block(block)
    for buffer in plan.returns.values():
        lives.touch(buffer, lives.now + 1)
    kept = [buffer for cache in plan.caches for buffer in (cache.panels, cache.state)]
    for buffer in (*kept, *(sums.kept for sums in plan.sums)):  # from program to program
        lives.touch(buffer, 0)
        lives.touch(buffer, lives.now + 1)
    spans = lives.spans
    _keep_one_row(spans, lives.rows if not whole else [])
    if whole:  # control may go back: everything lives throughout
        spans = dict.fromkeys(spans, (0, lives.now))
    plan.buffers = [buffer for buffer in plan.buffers if buffer in spans]
    taken = _Taken([spans[buffer] for buffer in plan.buffers])
    for buffer in sorted(plan.buffers, key=lambda b: -b.size):
        buffer.offset = offset = taken.room(spans[buffer], _rounded(buffer.size))
        taken.add(spans[buffer], (offset, offset + _rounded(buffer.size)))
    plan.scratch_bytes = max([b.offset + _rounded(b.size) for b in plan.buffers], default=0)


class _Taken:
    """Which bytes of the arena are taken, and when: asked for a span of steps, it looks at what is alive then alone.

    Args:
        spans: first and last step of everything that will ask.
    """

    def __init__(self, spans: Collection[tuple[int, int]]) -> None:
        self.firsts = sorted({first for first, _ in spans})
        self.alive: list[list[tuple[int, int]]] = [[] for _ in self.firsts]  # at each of them
        self.begun: list[list[tuple[int, int]]] = [[] for _ in self.firsts]  # there

    def room(self, span: tuple[int, int], size: int) -> int:
        """The first place of `size` bytes that is free throughout a span."""
        begin, end = self._of(span)
        clashes = sorted([*self.alive[begin], *itertools.chain.from_iterable(self.begun[begin + 1 : end])])
        offset = 0
        for low, high in clashes:
            if low - offset >= size:
                break
            offset = max(offset, high)
        return offset

    def add(self, span: tuple[int, int], taken: tuple[int, int]) -> None:
        """Take bytes throughout a span."""
        begin, end = self._of(span)
        self.begun[begin].append(taken)
        for alive in self.alive[begin:end]:
            alive.append(taken)

    def _of(self, span: tuple[int, int]) -> tuple[int, int]:
        first, last = span
        return bisect.bisect_left(self.firsts, first), bisect.bisect_right(self.firsts, last)


def _keep_one_row(spans: Mapping[Buffer, tuple[int, int]], rows: Collection[int]) -> None:
    """Let what lives in one loop over rows have the room of one row."""
    for buffer, (first, last) in spans.items():
        if first == last and first in rows and buffer.strides[0] * buffer.shape[0] == math.prod(buffer.shape):
            buffer.strides, buffer.size = (0, *buffer.strides[1:]), buffer.size // buffer.shape[0]


def _rounded(size: int) -> int:
    """Whole lines, and an odd number of them, so that equal tiles do not fall on the same cache sets."""
    lines = -(-size // _ALIGN)
    return (lines | 1) * _ALIGN if lines > 8 else lines * _ALIGN


class _Lives:
    """First and last step that touches each buffer."""

    def __init__(self) -> None:
        self.now = 0
        self.spans: dict[Buffer, tuple[int, int]] = {}
        self.rows: list[int] = []  # steps that are loops over rows
        self.demands = Demands()

    def touch(self, buffer: Buffer, at: int) -> None:
        first, last = self.spans.get(buffer, (at, at))
        self.spans[buffer] = (min(first, at), max(last, at))

    def block(self, plan: BlockPlan) -> None:
        """Walk the steps of a block."""
        self.demands.place(plan.placed)
        for step in plan.steps:
            self.now += 1
            parts = step.bodies[0].steps if isinstance(step, RowsStep) else [step]
            for buffer in [buffer for part in parts for buffer in self._touched(part)]:
                self.touch(buffer, self.now)
            if isinstance(step, RowsStep):
                self.rows.append(self.now)
                for buffer in step.sums:  # are whole behind the loop
                    self.touch(buffer, self.now + 1)
            elif step.bodies:
                self._regions(step)

    def _regions(self, step: Step) -> None:
        begin = self.now
        op = step.op
        assert op is not None
        if isinstance(step.op, ForOp):
            self._bind(op.regions[0].block.args[1:], step.detail)
        elif isinstance(step.op, WhileOp):
            self._bind(op.regions[0].block.args, step.detail)
            passed = {n: self.demands.placed[r] for n, r in enumerate(op.results) if is_tile(r)}
            self._bind(op.regions[1].block.args, passed)
        before = dict(self.spans)
        for body in step.bodies:
            self.block(body)
            self.demands.drop(body.placed)
        self.now += 1
        if isinstance(step.op, IfOp):
            return
        for buffer, (first, last) in list(self.spans.items()):
            carried = buffer in step.detail.values()
            if carried or (buffer in before and last > begin):
                self.spans[buffer] = (min(first, begin), self.now)

    def _bind(self, arguments: object, buffers: dict[int, Buffer]) -> None:
        self.demands.place({arguments[number]: buffer for number, buffer in buffers.items()})  # type: ignore[index]

    def _touched(self, step: Step) -> Iterator[Buffer]:
        """Buffers that a step reads or writes (not those inside its regions)."""
        for sink in step.sinks:
            yield from (buffer for buffer in sink.targets if buffer is not None)
            if isinstance(sink, CopySink):
                yield sink.source
        values: list[SSAValue] = [root for root, _ in step.roots()]
        if not step.bodies:
            values += step.needs
        leaves: set[SSAValue] = set()
        with self.demands.computing(step):
            for value in values:
                leaves |= self.demands.leaves(value)
        yield from (self.demands.placed[leaf] for leaf in leaves if is_tile(leaf))
        if isinstance(step.detail, DotDetail):
            detail = step.detail
            yield detail.acc
            yield from (o.buffer for o in (detail.a, detail.b) if isinstance(o, ScratchOperand))
            yield from detail.packed.values()
        elif isinstance(step.detail, dict):
            yield from step.detail.values()
        if step.op is not None and isinstance(step.op, CallOp | ControlOp):
            yield from (self.demands.placed[r] for r in step.op.results if r in self.demands.placed)
