"""The loop plan of a kernel: steps in the order in which they run, groups of sinks that share a loop nest, buffers.

A *sink* consumes tile values element by element (a store, a reduction, a materialization of a value to scratch). A
*group* is one loop nest over the iteration space of its sinks; everything lazy that they need is computed inside it.
`render` prints the plan for people:

    for program
      group 0 [1024]: %9 = reduce axis 0
      group 1 [1024]: %13 = reduce axis 0; materialize %12 -> scratch 0
      group 2 [1024]: store
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.distinct import Condition
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import bit_width, element_type, ir_name, scalar_type, shape_of
from tilewright.ir.values import defining_op
from tilewright.ops.check import CheckOp
from tilewright.ops.debug import AssertOp, PrintOp
from tilewright.ops.memory import StoreOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp


@dataclass(eq=False, slots=True)
class Buffer:
    """A tile in the scratch of the running thread.

    Args:
        shape: extents.
        elem: IR name of the elements as they are kept ("f32"; "i1" takes a byte).
        strides: elements from one to the next along each dim.
        size: bytes.
        offset: where in the arena; set by `scratch.allocate`.
        label: name in the rendered plan.
    """

    shape: tuple[int, ...]
    elem: str
    strides: tuple[int, ...]
    size: int
    offset: int = -1
    label: str = ""

    def viewed(self, shape: tuple[int, ...]) -> Buffer:
        """The same memory, which must be row-major and have its place, as a tile of another shape."""
        return replace(dense_buffer(shape, self.elem), offset=self.offset)


def memory_bytes(elem: str) -> int:
    """Bytes of an element in memory."""
    return 8 if elem == "ptr" else max(1, bit_width(scalar_type(elem)) // 8)


def dense_buffer(shape: tuple[int, ...], elem: str, fastest: int = -1) -> Buffer:
    """A buffer without gaps: row-major, but that elements along the dim `fastest` are neighbours."""
    order = list(range(len(shape)))
    if order:
        order.append(order.pop(fastest))
    strides = [1] * len(shape)
    for place, dim in enumerate(order):
        strides[dim] = math.prod(shape[d] for d in order[place + 1 :])
    return Buffer(shape, elem, tuple(strides), math.prod(shape) * memory_bytes(elem))


def tile_buffer(type_: Attribute, fastest: int = -1) -> Buffer:
    """A buffer for a tile of an IR type."""
    return dense_buffer(shape_of(type_), ir_name(element_type(type_)), fastest)


@dataclass(eq=False, slots=True)
class Sink:
    """A consumer of tile values inside a loop nest.

    Args:
        shape: iteration space.
        roots: values wanted at every index of the iteration space (scalars may be among them).
        op: the operation, if the sink stands for one.
        axis: dim that is reduced or scanned.
        targets: where results go: one buffer per result, None for scalars and for what nobody reads there. The
            materialization of a reshape fills a row-major buffer of another shape than the iteration space.
    """

    label: ClassVar[str]
    shape: tuple[int, ...]
    roots: list[SSAValue]
    op: Operation | None = None
    axis: int = -1
    targets: list[Buffer | None] = field(default_factory=list)

    @property
    def values(self) -> list[SSAValue]:
        """The roots that are computed as values, not as addresses."""
        return self.roots


@dataclass(eq=False, slots=True)
class StoreSink(Sink):
    """Writes to memory; the first root is where."""

    label = "store"
    op: StoreOp

    @property
    def values(self) -> list[SSAValue]:
        return self.roots[1:]


@dataclass(eq=False, slots=True)
class ReduceSink(Sink):
    """Combines along `axis`."""

    label = "reduce"
    op: ReduceOp


@dataclass(eq=False, slots=True)
class ScanSink(Sink):
    """Combines along `axis`, and keeps what came before each element; the stores of that go along with it."""

    label = "scan"
    op: ScanOp


class MaterializeSink(Sink):
    """Writes its only root to scratch."""

    label = "materialize"


@dataclass(eq=False, slots=True, kw_only=True)
class CopySink(Sink):
    """Copies what is in scratch at `source`."""

    label = "copy"
    source: Buffer


@dataclass(eq=False, slots=True)
class OwnSink(Sink):
    """An operation that is alone in its nest, made by the emitter of its class."""

    label = ""
    op: Operation


@dataclass(eq=False, slots=True)
class Step:
    """Something that runs at one place of a block: one of the classes below, or an operation with a region or a call.

    Args:
        position: place in program order, to order steps that do not depend on each other.
        op: the operation; None for groups that only materialize.
        sinks: what a group consumes.
        needs: values that must be available (beside the roots of the sinks).
        writes: whether memory that others can see may change.
        reads: whether such memory is read by the step itself (not by the lazy loads it evaluates).
        after: steps that must come first for reasons other than values and memory.
        bodies: plans of nested regions.
        detail: what its emitter needs.
        prefetched: rows of the next program that a group asks for (`ahead.RowPrefetch`).
    """

    position: float
    op: Operation | None = None
    sinks: list[Sink] = field(default_factory=list)
    needs: list[SSAValue] = field(default_factory=list)
    writes: bool = False
    reads: bool = False
    after: list[Step] = field(default_factory=list)
    bodies: list[BlockPlan] = field(default_factory=list)
    detail: Any = None
    prefetched: list[Any] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sinks[0].shape if self.sinks else ()

    @property
    def changes_memory(self) -> bool:
        """Whether a load gives something else after it: prints and assertions are only ordered among the writers."""
        return self.writes and not isinstance(self.op, (AssertOp, CheckOp, PrintOp))

    @property
    def scans(self) -> bool:
        """Whether it is a scan, with the stores of what it computes."""
        return bool(self.sinks) and isinstance(self.sinks[0], ScanSink)

    @property
    def stores(self) -> list[StoreSink]:
        return [sink for sink in self.sinks if isinstance(sink, StoreSink)]

    @property
    def axis(self) -> int:
        """Reduced dim of the group, -1 if nothing is reduced."""
        return max([sink.axis for sink in self.sinks], default=-1)

    @property
    def place(self) -> Operation | None:
        """The operation for which a group runs first of all; None for a copy of a buffer that a loop carries."""
        first = self.sinks[0]
        return self.op or first.op or (defining_op(first.roots[0]) if first.roots else None)

    def computed(self, placed: dict[SSAValue, Buffer]) -> list[SSAValue]:
        """Values that the group itself writes to their place, and so cannot read there."""
        materializations = [sink for sink in self.sinks if isinstance(sink, MaterializeSink)]
        return [sink.roots[0] for sink in materializations if placed.get(sink.roots[0]) is sink.targets[0]]

    def roots(self) -> Iterator[tuple[SSAValue, tuple[int, ...]]]:
        """Values wanted by the sinks, each with the iteration space."""
        for sink in self.sinks:
            for root in sink.roots:
                yield root, sink.shape

    def is_only(self, *kinds: type[Sink]) -> bool:
        """Whether it is a group of such sinks alone."""
        return isinstance(self, GroupStep) and all(isinstance(sink, kinds) for sink in self.sinks)


class ScalarStep(Step):
    """An operation on scalars."""


class GroupStep(Step):
    """One loop nest over the iteration space of its sinks."""


class RowsStep(Step):
    """The groups of its only body in a loop over the first dim of all of them."""

    @property
    def sums(self) -> list[Buffer]:
        """Where what groups reduce over the rows is kept."""
        sinks = [sink for step in self.bodies[0].steps for sink in step.sinks if sink.axis == 0]
        return [target for sink in sinks for target in sink.targets if target is not None]


class DotStep(Step):
    """A dot."""


class EndStep(Step):
    """The terminator."""


@dataclass(eq=False, slots=True)
class BlockPlan:
    """Steps of one block in the order in which they run.

    Args:
        block: the block.
        steps: what runs.
        placed: tile values that live in scratch from some step of this block on, and where.
        strips: the only pass of a loop's body, if the loop runs strip by strip.
    """

    block: Block
    steps: list[Step]
    placed: dict[SSAValue, Buffer] = field(default_factory=dict)
    strips: GroupStep | None = None


@dataclass(eq=False, slots=True)
class FunctionPlan:
    """The plan of one function.

    Args:
        function: the `tt.func`.
        blocks: plans of its blocks, in order.
        buffers: all buffers.
        arguments: where tile parameters are kept.
        returns: where tile results are left, by number.
        caches: packed operands of dots that are kept between programs (`pack_cache.PackCache`).
        sums: atomic sums that are kept between programs (`combining.Combining`).
        scratch_bytes: arena that the function needs.
        decisions: what planners have answered, and emitters will.
        facts: of the elements of its tiles.
        conditions: of the launches for which it is.
        otherwise: the plan for the others.
    """

    function: Any
    blocks: list[BlockPlan]
    facts: ElementFacts
    buffers: list[Buffer] = field(default_factory=list)
    arguments: dict[SSAValue, Buffer] = field(default_factory=dict)
    returns: dict[int, Buffer] = field(default_factory=dict)
    caches: list[Any] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)
    scratch_bytes: int = 0
    decisions: Decisions = field(default_factory=Decisions)
    conditions: list[Condition] = field(default_factory=list)
    otherwise: FunctionPlan | None = None


# --- text -------------------------------------------------------------------------------------------


def render(plan: FunctionPlan, names: dict[SSAValue, str] | None = None) -> str:
    """The plan as indented text."""
    lines = [f"{plan.function.sym_name.data}: {plan.scratch_bytes} bytes of scratch"]
    for number, buffer in enumerate(plan.buffers):
        buffer.label = f"s{number}"
        extents = "x".join(map(str, buffer.shape))
        lines.append(f"  s{number}: {extents}x{buffer.elem} at {buffer.offset}")
    for block in plan.blocks:
        lines.append("for program")
        _render_block(block, "  ", lines)
    text = "\n".join(lines) + "\n"
    return text if plan.otherwise is None else f"{text}where elements meet, {render(plan.otherwise)}"


def _render_block(plan: BlockPlan, indent: str, lines: list[str]) -> None:
    for step in plan.steps:
        if isinstance(step, ScalarStep):
            continue
        if isinstance(step, GroupStep):
            extents = "x".join(map(str, step.shape))
            lines.append(f"{indent}group [{extents}]: " + "; ".join(_render_sink(sink) for sink in step.sinks))
        else:
            lines.append(f"{indent}{step.op.name if step.op is not None else 'rows'}{_render_detail(step)}")
        for body in step.bodies:
            _render_block(body, indent + "  ", lines)


def _render_sink(sink: Sink) -> str:
    targets = ", ".join(b.label for b in sink.targets if b is not None)
    named = [sink.op.name] if sink.op is not None and not isinstance(sink, StoreSink) else []
    what = " ".join([sink.label] * bool(sink.label) + named)
    what += f" axis {sink.axis}" if sink.axis >= 0 else ""
    return f"{what} -> {targets}" if targets else what


def _render_detail(step: Step) -> str:
    return f" {step.detail}" if step.detail is not None else ""
