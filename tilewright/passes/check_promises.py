"""Checks of what a user promises: `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy`, `tl.assume`.

    multiple_of      the first element of each contiguous run is a multiple of the number
    max_contiguous   each element of an aligned run is the first one of the run and its place in it
    max_constancy    each element of an aligned run is the first one of the run
    assume           the condition holds

Runs are as long as the promises about the same value say, or as the analysis finds: a multiple is promised of their
first elements (`ops/facts.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.axis import axis_facts
from tilewright.ir.types import (
    element_type,
    i1,
    i32,
    i64,
    is_integer,
    is_pointer,
    pointee_bytes,
    shape_of,
    with_element,
)
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import every
from tilewright.ops.casts import PtrToIntOp
from tilewright.ops.elementwise import CmpIOp, RemSIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.promise import PromiseOp
from tilewright.passes.check_code import Code
from tilewright.passes.rewriting import erase

NewSite = Callable[[PromiseOp, str], int]
"""Gives the number of a new check, by what was promised, in words."""


def promises_of(kernel: FuncOp) -> list[PromiseOp]:
    """What the user of a kernel promises, in order."""
    return every(kernel, PromiseOp)


def check_promises(kernel: FuncOp, new_code: Callable[[PromiseOp], Code], new_site: NewSite) -> None:
    """Put checks in the place of all promises."""
    promises = promises_of(kernel)
    if not promises:
        return
    facts = axis_facts(kernel)
    runs = {op.value: facts[op.value].contiguity for op in promises}
    for op in promises:
        kind, numbers = _said(op)
        if kind == "max_contiguous":
            runs[op.value] = tuple(map(max, runs[op.value], numbers))
    for op in promises:
        kind, numbers = _said(op)
        code = new_code(op)
        if kind == "assume":
            _check_condition(code, op.value, new_site(op, "assume(...)"))
        else:
            value, unit = _as_integers(code, op.value)
            site = new_site(op, f"{kind}(..., {numbers[0] if len(numbers) == 1 else list(numbers)})")
            if kind == "multiple_of":
                _check_multiples(code, value, numbers, runs[op.value], site)
            elif is_tile(value):
                _check_runs(code, value, numbers, unit if kind == "max_contiguous" else 0, site)
        erase(op)


def _said(op: PromiseOp) -> tuple[str, tuple[int, ...]]:
    attrs = op.attr_values()
    return attrs["kind"], tuple(attrs["numbers"])


def _as_integers(code: Code, value: SSAValue) -> tuple[SSAValue, int]:
    """Integers of 64 bits, and by how much neighbours differ in a contiguous run: addresses count bytes."""
    if not is_pointer(element_type(value.type)):
        return code.wide(value), 1
    return code.cast(PtrToIntOp, value, i64), pointee_bytes(value.type)


def _check_condition(code: Code, holds: SSAValue, site: int) -> None:
    """A scalar condition; what it compares is shown."""
    test = defining_op(holds)
    shown: list[SSAValue] = []
    if isinstance(test, CmpIOp) and is_integer(element_type(test.operands[0].type)):
        unsigned = str(test.attr_values()["predicate"]).startswith("u")
        shown = [code.wide(operand, unsigned) for operand in test.operands]
    code.check(site, holds, shown)


def _check_multiples(code: Code, value: SSAValue, numbers: Sequence[int], runs: Sequence[int], site: int) -> None:
    """The first elements of runs, along all dims, are multiples."""
    number = math.lcm(*numbers)
    zero = code.number(0, value.type)
    holds = code.compare("eq", code.op(RemSIOp, value, code.number(number, value.type)), zero)
    shape = shape_of(value.type)
    for dim, extent in enumerate(shape):
        run = min(runs[dim], extent)
        if run > 1:
            place = code.op(RemSIOp, code.place(shape, dim), code.number(run, with_element(value.type, i32)))
            holds = code.either(holds, code.compare("ne", place, code.number(0, place.type)))
    code.check(site, holds, [value])


def _check_runs(code: Code, value: SSAValue, numbers: Sequence[int], unit: int, site: int) -> None:
    """Elements of aligned runs grow by `unit`."""
    shape = shape_of(value.type)
    holds, expected = code.number(True, with_element(value.type, i1)), value
    for dim, extent in enumerate(shape):
        run = min(numbers[dim], extent)
        if run <= 1:
            continue
        place = code.place(shape, dim)
        within = code.op(RemSIOp, place, code.number(run, place.type))
        first = code.make(GatherOp, value.type, value, code.sub(place, within), axis=dim, efficient_layout=None)
        wanted = code.add(first, code.mul(code.wide(within), code.number(unit, value.type))) if unit else first
        same = code.compare("eq", value, wanted)
        expected = code.choose(same, expected, wanted)
        holds = code.both(holds, same)
    code.check(site, holds, [value, expected])
