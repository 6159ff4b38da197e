"""A `tt.dot` as a step of the plan: how it multiplies, where its operands come from, where its sum stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from xdsl.ir import Operation

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.matrices import MemoryOperand, strip_views
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot import DotPlan, plan_dot
from tilewright.backends.cpu.plan.dot_operands import Operand, ScratchOperand
from tilewright.backends.cpu.plan.k_strip_mining import KStrips
from tilewright.backends.cpu.plan.pack_cache import PackCache, plan_cache
from tilewright.backends.cpu.plan.steps import Buffer, DotStep, GroupStep, Step, dense_buffer, memory_bytes
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.ir.values import defining_op
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, AddIOp


@dataclass(eq=False, slots=True)
class DotDetail:
    """What the lowering of a dot needs.

    Args:
        a, b: operands.
        acc: accumulator, in which the result stays.
        fresh: whether the accumulator starts from zero.
        packed: scratch for the packed operands, "a" and "b".
        kept: of packed operands that are kept between programs, "a" and "b".
        joined: how iterations of the loop around it are joined, if they are.
        in_place: whether B is read where it lies, where it exists.
        dead: dims of the result, rows (0) or columns (1), past whose bounds nobody looks.
        direct: the tensor that the sums may be written to (`straight.DirectStore`).
        afresh: whether the accumulator starts from zero in the first iteration of the loop whose iterations are joined.
    """

    a: Operand
    b: Operand
    acc: Buffer
    fresh: bool
    packed: dict[str, Buffer] = field(default_factory=dict)
    kept: dict[str, PackCache] = field(default_factory=dict)
    joined: KStrips | None = None
    in_place: bool = False
    dead: set[int] = field(default_factory=set)
    afresh: bool = False
    direct: Any = None

    @property
    def fills(self) -> list[Step]:
        """Groups that compute operands where they are packed."""
        operands = [operand for operand in (self.a, self.b) if isinstance(operand, ScratchOperand)]
        return [operand.fill for operand in operands if operand.fill is not None]

    def __str__(self) -> str:
        a, b = (_named(operand) for operand in (self.a, self.b))
        joined = f" {self.joined.factor} iterations at a time" if self.joined is not None else ""
        kept = "".join(f" {name.upper()} kept" for name in self.kept)
        return (
            f"{a} * {b} -> {self.acc.label}{' fresh' if self.fresh else ' afresh' if self.afresh else ''}{kept}{joined}"
        )


def _named(operand: Operand) -> str:
    if isinstance(operand, MemoryOperand):
        return "memory"
    return f"{operand.buffer.label} filled in each iteration" if operand.fill is not None else operand.buffer.label


def a_in_place(plan: DotPlan, a: Operand) -> bool:
    """Whether A is read where it lies, wherever all of it exists: it runs along K and needs no conversion."""
    if not plan.a_in_place or plan.k != plan.padded_k(plan.k):
        return False
    if isinstance(a, MemoryOperand):
        return a.strides[1] == Poly.of(memory_bytes(a.elem))
    return a.fill is None and a.strides[-1] == memory_bytes(a.buffer.elem)


def b_in_place(plan: DotPlan, b: Operand, *, masks: bool) -> Answer[None]:
    """Whether B is read where it lies, wherever its rows exist: packing it would cost more than it gives.

    Args:
        plan: of the product.
        b: its right operand.
        masks: whether the target loads some lanes of a vector as quickly as all of them.
    """
    if not plan.b_in_place:
        return No("operand b is converted where it is packed")
    size = memory_bytes(b.elem if isinstance(b, MemoryOperand) else b.buffer.elem)
    unit = b.strides[1] == Poly.of(size) if isinstance(b, MemoryOperand) else b.strides[-1] == size
    if not unit:
        return No("columns of operand b do not lie side by side")
    if isinstance(b, ScratchOperand) and b.fill is not None:
        return No("operand b is computed where it is packed")
    passes = -(-plan.m // plan.mr)  # all of B is read for each block of rows
    if passes > tuning.PASSES_IN_PLACE:
        return No(f"operand b is read {passes} times, from packed panels faster")
    if isinstance(b, MemoryOperand) and not masks and (b.bounds[1] or plan.tail_columns):
        return No("columns of operand b that do not exist would be tested for one by one")
    return Yes(None, "operand b is read where it lies")


def rows_exist(b: Operand) -> bool:
    """Whether all rows of B are known to exist; else it has to be packed where some are masked."""
    return isinstance(b, ScratchOperand) or not (b.bounds[0] or b.conditions)


def is_ready(isa: CpuFeatures, dot: Operation, name: Literal["a", "b"], operand: Operand | None) -> bool:
    """Whether an operand of a dot that is not joined need not be computed before: it is kept once packed."""
    if operand is None or isinstance(operand, MemoryOperand):
        return operand is not None
    plan, value = dot_plan(isa, dot), dot.operands[0 if name == "a" else 1]
    source, _ = strip_views(value)
    if plan.thin or any(len(list(part.uses)) > 1 for part in (value, source)):
        return False
    size = plan.a_bytes(plan.k) if name == "a" else plan.b_bytes(plan.k)
    return isinstance(plan_cache(name, value, dot, size, joined=False), Yes)


def accumulator(isa: CpuFeatures, dot: Operation) -> Buffer:
    """A buffer of the shape, element type and padding that the plan of a dot wants of its accumulator."""
    plan = dot_plan(isa, dot)
    shape = shape_of(dot.results[0].type)
    made = dense_buffer((*shape[:-2], plan.acc_rows, plan.acc_columns), plan.acc)
    made.shape = shape
    return made


def extended(isa: CpuFeatures, dot: Operation, made: Buffer | None) -> Buffer | None:
    """The accumulator of the product before, where this one alone adds to that: it goes on in its place.

    Args:
        isa: the target.
        dot: of a block.
        made: where the tile is that it adds to, if it has a place.
    """
    tile = dot.operands[2]
    before = defining_op(tile)
    if made is None or not isinstance(before, DotOp) or before.parent is not dot.parent or len(list(tile.uses)) != 1:
        return None
    wanted = accumulator(isa, dot)
    alike = (made.shape, made.elem, made.strides, made.size) == (wanted.shape, wanted.elem, wanted.strides, wanted.size)
    return made if alike else None


def dot_plan(isa: CpuFeatures, dot: Operation, kinds: Sequence[str] = ()) -> DotPlan:
    """The plan of a `tt.dot` on its own, or of one whose operands have other types (`kinds`)."""
    a, b = dot.operands[0].type, dot.operands[1].type
    *own, acc_elem = (ir_name(element_type(t)) for t in (a, b, dot.results[0].type))
    a_elem, b_elem = kinds or own
    precision = dot.attr_values()["inputPrecision"]  # type: ignore[attr-defined]
    return plan_dot(isa, shape_of(a)[-2], shape_of(b)[-1], shape_of(a)[-1], a_elem, b_elem, acc_elem, precision)


def accumulates(dot: Operation, fresh: bool, first: Step | None) -> Answer[None]:
    """Whether a dot of a loop adds to the tile that the loop carries."""
    if first is not None:
        return No("what it adds to is computed to another place first", defining_op(dot.operands[2]))
    if not fresh:
        return Yes(None, "it adds to what the loop carries")
    adds = (use.operation for use in dot.results[0].uses if isinstance(use.operation, (AddFOp, AddIOp)))
    user = next(adds, None)
    if user is None:
        return No("it starts from zero in each iteration")
    return No("it starts from zero, and its result is added afterwards", user, "acc = tl.dot(a, b, acc)")


def accumulating_dot(loop: Operation, number: int) -> Operation | None:
    """The dot whose result a loop carries as its tile `number`, or a loop in it does."""
    while True:
        last = loop.regions[0].block.last_op
        assert last is not None
        value = last.operands[number]
        op = defining_op(value)
        if not isinstance(op, ForOp):
            return op if isinstance(op, DotOp) else None
        loop, number = op, value.index  # type: ignore[attr-defined]


def begin_afresh(order: list[Step]) -> None:
    """Let products of joined iterations begin with zero themselves, instead of adding to a tile that was filled with
    zeros.

    Args:
        order: the steps of a block; passes that have nothing to fill any more are taken out.
    """
    for loop in [step for step in order if isinstance(step.op, ForOp)]:
        detail = joined_dot(loop)
        if detail is None:
            continue
        assert loop.op is not None
        number = next((n for n, buffer in loop.detail.items() if buffer is detail.acc), None)
        first = None if number is None else loop.op.operands[3 + number]
        if first is None or constant_of(first) != 0:
            continue
        for step in order:
            step.sinks = [sink for sink in step.sinks if sink.roots != [first] or sink.targets != [detail.acc]]
        order[:] = [step for step in order if step.sinks or not isinstance(step, GroupStep)]
        detail.afresh = True


def joined_dot(loop: Step) -> DotDetail | None:
    """The product that a planned loop makes of several iterations at a time, if it does."""
    steps = loop.bodies[0].steps
    return next((step.detail for step in steps if isinstance(step, DotStep) and step.detail.joined is not None), None)
