"""Checks of the 32-bit arithmetic from which addresses, masks and bounds of loops are made: no sum or product wraps.

A plan adds offsets in 64 bits, so an index that wraps may read the right element on one machine and a wrong one on
another. Arithmetic that reaches no address (hashes, random numbers) may wrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly
from tilewright.analysis.flow import sources_of
from tilewright.analysis.index import identity, whole
from tilewright.base.order import reached
from tilewright.ir.types import element_type, i32, is_integer, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddIOp, MulIOp, SubIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.check_bounds import Corners, corners_of
from tilewright.passes.check_code import Code

_CHECKED = (AddIOp, SubIOp, MulIOp)


def arithmetic_below(values: Iterable[SSAValue]) -> list[Operation]:
    """The sums, differences and products of 32 bits that some values are made of, through what loops carry."""
    made = (defining_op(value) for value in reached(values, _made_of))
    return [op for op in made if isinstance(op, _CHECKED) and element_type(op.results[0].type) == i32]


def _made_of(value: SSAValue) -> Sequence[SSAValue]:
    carried, op = sources_of(value), defining_op(value)
    if carried is not None:
        return carried
    return () if op is None or op.regions or isinstance(op, LoadOp) else op.operands


def bounds_of_loops(ops: Iterable[Operation]) -> list[SSAValue]:
    """First, last and step of loops."""
    return [value for op in ops if isinstance(op, ForOp) for value in op.operands[:3]]


def check_arithmetic(code: Code, op: Operation, site: int, analysis: AffineAnalysis) -> None:
    """Behind an operation: it gives in 32 bits what it gives in 64. Of what is affine the corners say it for a tile."""
    forms = _affine(op, analysis) if is_tile(op.results[0]) else None
    if forms is None:
        a, b = (code.wide(operand) for operand in op.operands)
        exact = code.op(type(op), a, b)
        code.check(site, code.compare("eq", exact, code.wide(op.results[0])), [exact])
        return
    shape = shape_of(op.results[0].type)
    result, *operands = [corners_of(code, form, shape) for form in forms]
    low, high = _in_range(code, result)
    holds = code.both(low, high)
    for corners in operands:  # where one has wrapped already, that is told
        holds = code.either(holds, code.negated(code.both(*_in_range(code, corners))))
    shown, place = result.place(code, code.negated(low))
    code.check(site, holds, [shown, code.number(0), *place])


def _affine(op: Operation, analysis: AffineAnalysis) -> list[Form] | None:
    """The result of an operation and its operands, without wrapping; None if they are not affine."""
    shape = shape_of(op.results[0].type)
    a, b = operands = [analysis.integer(operand, identity(shape)) for operand in op.operands]
    if isinstance(op, MulIOp):
        if not (a.uniform or b.uniform):
            return None
        result = a.times(b.constant) if b.uniform else b.times(a.constant)
    else:
        result = a.plus(b, Poly.of(-1) if isinstance(op, SubIOp) else None)
    dims = {whole(dim, extent) for dim, extent in enumerate(shape)}
    forms = [result, *(form for form in operands if not form.uniform)]
    if any(form.residual or not dims >= form.coords.keys() for form in forms):
        return None
    known = [poly for form in forms for poly in (form.constant, *form.coords.values())]
    return forms if all(is_integer(value.type) for poly in known for value in poly.atoms()) else None


def _in_range(code: Code, corners: Corners) -> tuple[SSAValue, SSAValue]:
    """Whether no value is below what 32 bits hold, and none above."""
    least, most = code.number(-(1 << 31)), code.number((1 << 31) - 1)
    return code.compare("sge", corners.least, least), code.compare("sle", corners.most, most)
