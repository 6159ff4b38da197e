"""Which operations are recomputed where their result is wanted, and at which indices they want their operands.

A tile value is never computed as a whole: consumers ask for it at an index. `operand_indices` says which operands, at
which indices, one element of a result comes from; planner, affine analysis and evaluator all walk through it. Every
other operation on tiles (`reduce`, `dot`, `store`, ragged reshapes, ...) is a step of its own with a loop nest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.backends.cpu.plan.index import ZERO, Index, bits_of, constant, cut, keeps_bits, normal, reshape
from tilewright.backends.llvm.casts import CAST_NAMES
from tilewright.backends.llvm.elementwise import TABLE
from tilewright.ir.traits import View
from tilewright.ir.types import bit_width, element_type, is_integer, shape_of
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp
from tilewright.ops.spec import REGISTRY

# Operations with lanes of their own making in `evaluator`, beside views and the tables.
_SPECIAL = frozenset({ConstantOp, MakeRangeOp, PoisonOp, AddPtrOp, LoadOp, GatherOp, ExternElementwiseOp})


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
    return type(op) in _RULES or type(op) in _SPECIAL or bool(_elementwise(type(op)))


def is_ragged(op: Operation) -> bool:
    """Whether `op` is a reshape that has no index for its operand, so that its result must be in scratch."""
    return isinstance(op, ReshapeOp) and not keeps_bits(shape_of(op.operands[0].type), shape_of(op.results[0].type))


def owner_of(value: SSAValue) -> Operation | None:
    """The operation that defines a value; None for block arguments."""
    return value.owner if isinstance(value, OpResult) else None


def is_tile(value: SSAValue) -> bool:
    """Whether `value` has a shape; scalars have none."""
    return bool(shape_of(value.type))


def property_int(op: Operation, name: str) -> int:
    """An integer property as a number."""
    return int(op.properties[name].value.data)  # type: ignore[attr-defined]


# --- constants --------------------------------------------------------------------------------------


def constant_of(value: SSAValue) -> int | float | None:
    """The number that every element of `value` is, when its definition says so."""
    op = owner_of(value)
    if op is None:
        return None
    if isinstance(op, SplatOp):
        return constant_of(op.operands[0])
    if not isinstance(op, ConstantOp):
        return None
    return _number(op.properties["value"])


def _number(attribute: Any) -> int | float | None:
    if isinstance(attribute, (IntegerAttr, FloatAttr)):
        return attribute.value.data
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        data = attribute.data.data
        if attribute.is_splat() or len(data) == attribute.type.element_count() == 1:
            values = attribute.get_values()
            return values[0]
    return None


def constant_elements(op: Operation) -> list[int | float]:
    """The elements of a constant tile, in row-major order."""
    return list(op.properties["value"].get_values())  # type: ignore[attr-defined]


# --- operands ------------------------------------------------------------------------------------------


def operand_indices(value: SSAValue, index: Index) -> list[tuple[SSAValue, Index]]:
    """Operands of the lazy operation that defines `value`, each with the index at which it is wanted.

    For join and cat both sides are given; the evaluator picks by the bit of the index that tells them apart. For
    gather, the source is not among them.
    """
    op = value.owner
    assert isinstance(op, Operation)
    if isinstance(op, GatherOp):
        return [(op.operands[1], index)]
    rule = _RULES.get(type(op))
    if rule is not None:
        return list(zip(op.operands, rule(op, value, index), strict=False))
    return [(operand, index if is_tile(operand) else ()) for operand in op.operands]


def _expand_dims(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    axis = property_int(op, "axis")
    return [index[:axis] + index[axis + 1 :]]


def _broadcast(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    shape = shape_of(op.operands[0].type)
    return [tuple([ZERO if n == 1 else c for c, n in zip(index, shape, strict=True)])]


def _trans(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    order = list(op.properties["order"].get_values())  # type: ignore[attr-defined]
    source = [ZERO] * len(order)
    for position, dim in enumerate(order):
        source[int(dim)] = index[position]
    return [tuple(source)]


def _reshape(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    return [reshape(index, shape_of(op.operands[0].type), shape_of(value.type))]


def _split(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    return [(*index, constant(1 if value is op.results[1] else 0))]


def _cat(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    below = bits_of(shape_of(value.type)[0]) - 1
    inner = (normal(cut(index[0], 0, below)), *index[1:])
    return [inner, inner]


def side_bit(op: Operation, value: SSAValue, index: Index) -> Index:
    """The coordinate (as an index of one dim) that is 0 on the left side of a join or cat and 1 on the right."""
    if isinstance(op, JoinOp):
        return (index[-1],)
    return (normal(cut(index[0], bits_of(shape_of(value.type)[0]) - 1, 1)),)


_RULES: dict[type[Operation], Callable[[Operation, SSAValue, Index], list[Index]]] = {
    SplatOp: lambda op, value, index: [()],
    ExpandDimsOp: _expand_dims,
    BroadcastOp: _broadcast,
    TransOp: _trans,
    ReshapeOp: _reshape,
    JoinOp: lambda op, value, index: [index[:-1], index[:-1]],
    SplitOp: _split,
    CatOp: _cat,
    LoadOp: lambda op, value, index: [index] * len(op.operands),
}


# --- costs -----------------------------------------------------------------------------------------------

# Rough cost of one element, in element-wise float operations.
_COSTS: dict[type[Operation], float] = {
    ConstantOp: 0.0, MakeRangeOp: 0.0, PoisonOp: 0.0, AddPtrOp: 0.0, LoadOp: 1.0, GatherOp: 8.0,
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
