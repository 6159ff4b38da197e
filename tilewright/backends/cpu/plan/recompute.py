"""Which operations are recomputed where their result is wanted, and what that costs.

A tile value is never computed as a whole: consumers ask for it at an index (`analysis/elements.py`). Every other
operation on tiles (`reduce`, `dot`, `store`, ragged reshapes, ...) is a step of its own with a loop nest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from tilewright.backends.cpu.plan.reciprocal import DivideByRowOp
from tilewright.backends.llvm.casts import CAST_NAMES
from tilewright.backends.llvm.elementwise import TABLE
from tilewright.ir.traits import View
from tilewright.ir.types import bit_width, element_type, is_integer
from tilewright.ir.values import uses_behind
from tilewright.ops.constant import ConstantOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.spec import REGISTRY

# Operations with lanes of their own making in `evaluator`, beside views and the tables.
_SPECIAL = frozenset(
    {ConstantOp, MakeRangeOp, PoisonOp, AddPtrOp, LoadOp, GatherOp, ExternElementwiseOp, DivideByRowOp}
)


def table_name(op: Operation) -> str | None:
    """Entry of the elementwise table that computes `op`, if there is one."""
    key = _elementwise(type(op))
    return key if key in TABLE else None


def cast_name(op: Operation) -> str | None:
    """Conversion that computes `op`, if it is one."""
    key = _elementwise(type(op))
    return key if key in CAST_NAMES else None


@functools.cache
def _elementwise(kind: type[Operation]) -> str:
    return REGISTRY[kind.name].elementwise if kind.name in REGISTRY else ""


def is_lazy(op: Operation) -> bool:
    """Whether results of `op` are recomputed where they are wanted."""
    return is_lazy_kind(type(op))


@functools.cache
def is_lazy_kind(kind: type[Operation]) -> bool:
    """Whether results of operations of a class are recomputed where they are wanted."""
    return kind in _SPECIAL or kind.has_trait(View) or bool(_elementwise(kind))


# --- costs -----------------------------------------------------------------------------------------------

# Rough cost of one element, in element-wise float operations.
_COSTS: dict[type[Operation], float] = {
    ConstantOp: 0.0, MakeRangeOp: 0.0, PoisonOp: 0.0, AddPtrOp: 0.0, LoadOp: 1.0, GatherOp: 8.0,
    DivideByRowOp: 1.0,
}  # fmt: skip
_CHEAP_FLOAT = frozenset(
    {"addf", "subf", "mulf", "negf", "minnumf", "maxnumf", "minimumf", "maximumf", "cmpf", "select", "clampf"}
    | {"absf", "fma", "floor", "ceil"}
)
_HEAVY = {"divf": 4, "sqrt": 5, "precise_sqrt": 5, "precise_divf": 4, "rsqrt": 8, "remf": 30}
_CHEAP_INT = frozenset({"addi", "subi", "andi", "ori", "xori", "cmpi", "select"})
_SLOW_INT = {"divsi": 15, "divui": 15, "remsi": 15, "remui": 15, "mulhiui": 3, "muli": 1}
CAP = 1000.0


def cost_of(op: Operation) -> float:
    """Cost of computing one element of a lazy operation from its operands."""
    if type(op) in _COSTS:
        return _COSTS[type(op)]
    if op.has_trait(View):
        return 0.0
    cast = cast_name(op)
    if cast is not None:
        return _cast_cost(op, cast)
    key = table_name(op) or ""
    if key in _HEAVY:
        return _HEAVY[key]
    if is_integer(element_type(op.results[0].type)) and key not in ("cmpf",):
        return _SLOW_INT.get(key, 0.5 if key in _CHEAP_INT else 1.0)
    return 16.0 if key and key not in _CHEAP_FLOAT else 1.0


def _cast_cost(op: Operation, cast: str) -> float:
    source, target = element_type(op.operands[0].type), element_type(op.results[0].type)
    if (is_integer(source) and is_integer(target)) or cast in ("bitcast", "int_to_ptr", "ptr_to_int"):
        return 0.5
    if min(bit_width(source), bit_width(target)) == 8:
        return 10.0
    return 2.0 if cast in ("extf", "truncf", "sitofp") else 3.0


def readers_of(value: SSAValue) -> Iterator[Operation]:
    """Who reads a value, or what is computed from it where it is wanted."""
    return (use.operation for use in uses_behind([value], is_lazy))
