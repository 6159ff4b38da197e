"""Prefetching across programs: the last pass over this program's row asks for the next program's.

A program that goes several times over what it loads waits for memory in its first pass alone; the others read the
caches and leave memory idle. Where the address of a load is linear in the number of the program, the next program's
row lies a known distance behind this one's, and the last pass asks for its lines:

    mean      of x[row]              reads memory
    variance  of x[row]              reads the caches
    result    from x[row] to y[row]  reads the caches, asks for x[row + 1]

Asking is a hint: it changes no value and cannot fault; what lies behind the last row is asked for in vain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Atom, Poly, expanded
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.elements import At, operand_indices, tiles_behind
from tilewright.analysis.index import Index, identity
from tilewright.analysis.uniform import is_invariant
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.steps import (
    BlockPlan,
    Buffer,
    CopySink,
    MaterializeSink,
    ReduceSink,
    RowsStep,
    ScanSink,
    Step,
    StoreSink,
)
from tilewright.backends.cpu.plan.subjects import PREFETCHED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import pointee_bytes, shape_of
from tilewright.ir.values import defining_op, property_int
from tilewright.ir.walk import among
from tilewright.ops.memory import LoadOp
from tilewright.ops.program import GetProgramIdOp

_PLAIN = (StoreSink, MaterializeSink, CopySink, ReduceSink, ScanSink)


@dataclass(slots=True)
class RowPrefetch:
    """A row that a pass asks for.

    Args:
        pointer: where this program's row lies, in the shape of the pass.
        distance: bytes from there to the next program's, in parameters of the kernel.
    """

    pointer: SSAValue
    distance: Poly


def prefetch_rows(block: BlockPlan, facts: ElementFacts, decisions: Decisions) -> None:
    """Let the last pass of a kernel ask for the rows of the next program that several passes will read.

    Args:
        block: plan of the kernel's only block; `ahead` of its last pass is set.
        facts: of the kernel.
        decisions: take an answer for every row that several passes read and the last one goes along.
    """
    passes = list(_passes(block, {}))
    if len(passes) < 2:
        return
    last, in_scratch = passes[-1]
    own = set(last.computed(in_scratch))
    analysis = AffineAnalysis(lambda value: value in in_scratch and value not in own, facts)
    # a loop would ask in every iteration for what it does not read
    near = next((steps for steps in _beside(block) if last in steps), [last])
    readers: dict[SSAValue, set[int]] = {}
    rows: dict[tuple[SSAValue, Poly], LoadOp] = {}
    for number, (step, placed) in enumerate(passes):
        for load in _loads(step, placed):
            form = analysis.pointer(load.operands[0], identity(shape_of(load.operands[0].type)))
            if form.base is not None:
                readers.setdefault(form.base, set()).add(number)
                if step in near and shape_of(load.operands[0].type) == last.shape:
                    rows.setdefault((form.base, form.offset.constant), load)
    for load in [load for (base, _), load in rows.items() if len(readers[base]) > 1][: tuning.PREFETCH_ROWS]:
        found = decisions.note(PREFETCHED, load, _row(load, analysis, block.block))
        last.prefetched += [] if found is None else [found]


def _beside(block: BlockPlan) -> Iterator[list[Step]]:
    """The steps of the kernel's block, and those of each of its loops over rows."""
    yield block.steps
    yield from (step.bodies[0].steps for step in block.steps if isinstance(step, RowsStep))


def _passes(plan: BlockPlan, outer: dict[SSAValue, Buffer]) -> Iterator[tuple[Step, dict[SSAValue, Buffer]]]:
    """The loop nests over many elements of a block and of its regions, in program order.

    Each with what lives in scratch when the block has run.
    """
    placed = outer | plan.placed
    for step in plan.steps:
        plain = step.is_only(*_PLAIN)
        if plain and math.prod(step.shape) >= tuning.PREFETCH_ELEMENTS:
            yield step, placed
        for body in step.bodies:
            yield from _passes(body, placed)


def _loads(step: Step, placed: dict[SSAValue, Buffer]) -> list[LoadOp]:
    """Loads that a group performs."""
    own = set(step.computed(placed))

    def parts(value: SSAValue, index: Index) -> list[At]:
        return operand_indices(value, index) if is_computed(value) else []

    def is_computed(value: SSAValue) -> bool:
        op = defining_op(value)
        return (value in own or value not in placed) and op is not None and is_lazy(op)

    tiles = tiles_behind([(root, identity(shape)) for root, shape in step.roots()], parts)
    return among([defining_op(value) for value, _ in tiles if is_computed(value)], LoadOp)


def _row(load: LoadOp, analysis: AffineAnalysis, block: Block) -> Answer[RowPrefetch]:
    """The row that a load reads, if the next program's lies a known distance behind it."""
    pointer = load.operands[0]
    form = analysis.pointer(pointer, identity(shape_of(pointer.type)))
    size = Poly.of(pointee_bytes(pointer.type))
    if form.base is None or form.base.owner is not block or form.offset.residual:
        return No("its addresses are not known before the program runs")
    if size not in form.offset.coords.values():
        return No("its elements do not lie side by side")
    place = expanded(form.offset.constant)
    distance = _gained(place)
    if distance is None or not all(map(_is_foreseen, place.atoms())) or not _of(block, distance):
        return No("how far away the next program's lies is not known before the program runs")
    if not distance.terms:
        return No("all programs of a row of the grid read the same elements")
    return Yes(RowPrefetch(pointer, distance), "the last pass asks for the next program's")


def _is_foreseen(value: SSAValue) -> bool:
    """Whether a scalar is another one in the next program only by the number of that program; loops count alike."""
    return defining_op(value) is None or is_invariant(value) or _is_place(value)


def _of(block: Block, poly: Poly) -> bool:
    """Whether a polynomial has just parameters of the kernel in it."""
    return all(atom.owner is block for atom in poly.atoms())


def _gained(poly: Poly) -> Poly | None:
    """What a polynomial gains from one program to the next one along x; None where it is not linear in it."""
    gained: dict[tuple[Atom, ...], int] = {}
    for monomial, coefficient in poly.terms.items():
        rest = tuple(atom for atom in monomial if not _is_place(atom.value))
        if len(rest) + 1 < len(monomial):
            return None
        if len(rest) < len(monomial):
            gained[rest] = gained.get(rest, 0) + coefficient
    return Poly(gained)


def _is_place(value: SSAValue) -> bool:
    op = defining_op(value)
    return isinstance(op, GetProgramIdOp) and property_int(op, "axis") == 0
