"""A `tt.dot` as a step of the plan: how it multiplies, where its operands come from, where its sum stays."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Operation

from tilewright.backends.cpu.plan.coalesce import Coalescing
from tilewright.backends.cpu.plan.dot import DotPlan, plan_dot
from tilewright.backends.cpu.plan.dot_operands import MemoryOperand, Operand
from tilewright.backends.cpu.plan.pack_cache import PackCache
from tilewright.backends.cpu.plan.steps import Buffer, dense_buffer
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.ir.types import element_type, ir_name, shape_of


@dataclass(eq=False, slots=True)
class DotDetail:
    """What the lowering of a dot needs.

    Args:
        a, b: operands.
        acc: accumulator, in which the result stays.
        fresh: whether the accumulator starts from zero.
        packed: scratch for the packed operands, "a" and "b".
        cache: of packed B, if it is kept between programs.
        joined: how trips of the loop around it are joined, if they are.
    """

    a: Operand
    b: Operand
    acc: Buffer
    fresh: bool
    packed: dict[str, Buffer] = field(default_factory=dict)
    cache: PackCache | None = None
    joined: Coalescing | None = None

    def __str__(self) -> str:
        a, b = (_named(operand) for operand in (self.a, self.b))
        joined = f" {self.joined.factor} trips at a time" if self.joined is not None else ""
        return f"{a} * {b} -> {self.acc.label}{' fresh' if self.fresh else ''}{' B kept' if self.cache else ''}{joined}"


def _named(operand: Operand) -> str:
    if isinstance(operand, MemoryOperand):
        return "memory"
    return f"{operand.buffer.label} filled in each trip" if operand.fill is not None else operand.buffer.label


def accumulator(isa: CpuFeatures, dot: Operation) -> Buffer:
    """A buffer of the shape, element type and padding that the plan of a dot wants of its accumulator."""
    plan = dot_plan(isa, dot)
    shape = shape_of(dot.results[0].type)
    made = dense_buffer((*shape[:-2], plan.acc_rows, plan.acc_columns), plan.acc)
    made.shape = shape
    return made


def dot_plan(isa: CpuFeatures, dot: Operation) -> DotPlan:
    """The plan of a `tt.dot` on its own."""
    a, b = dot.operands[0].type, dot.operands[1].type
    a_elem, b_elem, acc_elem = (ir_name(element_type(t)) for t in (a, b, dot.results[0].type))
    precision = dot.attr_values()["inputPrecision"]  # type: ignore[attr-defined]
    return plan_dot(isa, shape_of(a)[-2], shape_of(b)[-1], shape_of(a)[-1], a_elem, b_elem, acc_elem, precision)
