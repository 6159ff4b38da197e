"""Checks of the 32-bit arithmetic from which addresses, masks and bounds of loops are made: no sum or product wraps.

A plan adds offsets in 64 bits, so an index that wraps may read the right element on one machine and a wrong one on
another. Arithmetic that reaches no address (hashes, random numbers) may wrap.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.flow import sources_of
from tilewright.ir.types import element_type, i32
from tilewright.ir.values import defining_op
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddIOp, MulIOp, SubIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.check_code import Code

_CHECKED = (AddIOp, SubIOp, MulIOp)


def arithmetic_below(values: Iterable[SSAValue]) -> list[Operation]:
    """The sums, differences and products of 32 bits that some values are made of, through what loops carry."""
    todo, seen, found = list(values), set[SSAValue](), list[Operation]()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        carried = sources_of(value)
        if carried is not None:
            todo += carried
            continue
        op = defining_op(value)
        if op is None or op.regions or isinstance(op, LoadOp):
            continue
        if isinstance(op, _CHECKED) and element_type(value.type) == i32:
            found.append(op)
        todo += op.operands
    return found


def bounds_of_loops(ops: Iterable[Operation]) -> list[SSAValue]:
    """First, last and step of loops."""
    return [value for op in ops if isinstance(op, ForOp) for value in op.operands[:3]]


def check_arithmetic(code: Code, op: Operation, site: int) -> None:
    """Behind an operation: it gives in 32 bits what it gives in 64."""
    a, b = (code.wide(operand) for operand in op.operands)
    exact = code.op(type(op), a, b)
    code.check(site, code.compare("eq", exact, code.wide(op.results[0])), [exact])
