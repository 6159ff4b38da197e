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
from tilewright.ir.types import bit_width, element_type, is_integer, shape_of
from tilewright.ops.spec import REGISTRY

VIEWS = frozenset(
    {"tt.splat", "tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape", "tt.join", "tt.split", "tt.cat"}
)
LEAVES = frozenset({"arith.constant", "tt.make_range", "ub.poison"})
# Operations with lanes of their own making in `evaluator`, beside the tables.
_SPECIAL = frozenset({"tt.addptr", "tt.load", "tt.gather", "tt.extern_elementwise"})


@functools.cache
def table_name(name: str) -> str | None:
    """Entry of the elementwise table that computes operation `name`, if there is one."""
    key = (REGISTRY[name].elementwise if name in REGISTRY else "") or name.rpartition(".")[2]
    return key if key in TABLE else None


@functools.cache
def cast_name(name: str) -> str | None:
    """Conversion that computes operation `name`, if it is one."""
    key = name.rpartition(".")[2]
    return key if key in CAST_NAMES and name.partition(".")[0] in ("arith", "tt") else None


@functools.cache
def is_lazy(name: str) -> bool:
    """Whether results of operation `name` are recomputed where they are wanted."""
    if name in VIEWS or name in LEAVES or name in _SPECIAL:
        return True
    return table_name(name) is not None or cast_name(name) is not None


def is_ragged(op: Operation) -> bool:
    """Whether `op` is a reshape that has no index for its operand, so that its result must be in scratch."""
    return op.name == "tt.reshape" and not keeps_bits(shape_of(op.operands[0].type), shape_of(op.results[0].type))


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
    if op.name == "tt.splat":
        return constant_of(op.operands[0])
    if op.name != "arith.constant":
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
    if op.name == "tt.gather":
        return [(op.operands[1], index)]
    rule = _RULES.get(op.name)
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
    if op.name == "tt.join":
        return (index[-1],)
    return (normal(cut(index[0], bits_of(shape_of(value.type)[0]) - 1, 1)),)


_RULES: dict[str, Callable[[Operation, SSAValue, Index], list[Index]]] = {
    "tt.splat": lambda op, value, index: [()],
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.trans": _trans,
    "tt.reshape": _reshape,
    "tt.join": lambda op, value, index: [index[:-1], index[:-1]],
    "tt.split": _split,
    "tt.cat": _cat,
    "tt.load": lambda op, value, index: [index] * len(op.operands),
}


# --- costs -----------------------------------------------------------------------------------------------

# Rough cost of one element, in element-wise float operations.
_COSTS = dict.fromkeys((*VIEWS, *LEAVES, "tt.addptr"), 0.0)
_HEAVY = {"divf": 4, "sqrt": 5, "precise_sqrt": 5, "precise_divf": 4, "rsqrt": 8, "remf": 30}
_CHEAP_INT = frozenset({"addi", "subi", "andi", "ori", "xori", "cmpi", "select"})
_SLOW_INT = {"divsi": 15, "divui": 15, "remsi": 15, "remui": 15, "mulhiui": 3, "muli": 1}
CAP = 1000.0


def cost_of(op: Operation) -> float:
    """Cost of computing one element of a lazy operation from its operands."""
    name = op.name
    if name in _COSTS:
        return _COSTS[name]
    if name == "tt.load":
        return 1.0
    if name == "tt.gather":
        return 8.0
    cast = cast_name(name)
    if cast is not None:
        return _cast_cost(op, cast)
    key = table_name(name) or ""
    if key in _HEAVY:
        return _HEAVY[key]
    if is_integer(element_type(op.results[0].type)) and key not in ("cmpf",):
        return _SLOW_INT.get(key, 0.5 if key in _CHEAP_INT else 1.0)
    return 16.0 if name.startswith("math.") and key not in ("absf", "fma", "floor", "ceil") else 1.0


def _cast_cost(op: Operation, cast: str) -> float:
    source, target = element_type(op.operands[0].type), element_type(op.results[0].type)
    if (is_integer(source) and is_integer(target)) or cast in ("bitcast", "int_to_ptr", "ptr_to_int"):
        return 0.5
    if min(bit_width(source), bit_width(target)) == 8:
        return 10.0
    return 2.0 if cast in ("extf", "truncf", "sitofp") else 3.0
