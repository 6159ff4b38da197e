"""Which operations are recomputed where their result is wanted, and what that costs.

A tile value is never computed as a whole: consumers ask for it at an index (`analysis/elements.py`). Every other
operation on tiles (`reduce`, `dot`, `store`, ragged reshapes, ...) is a step of its own with a loop nest.
"""

from __future__ import annotations

import functools

from xdsl.ir import Operation

from tilewright.backends.llvm.casts import CAST_NAMES
from tilewright.backends.llvm.elementwise import TABLE
from tilewright.ir.types import bit_width, element_type, is_integer
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
