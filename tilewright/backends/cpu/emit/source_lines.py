"""The source lines of accesses to memory: what a kernel was at when it reached for memory that is not there.

Only instructions that touch the caller's memory have one; LLVM then has little to carry along.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from xdsl.ir import Operation

from tilewright.backends.llvm.module import Function
from tilewright.ir.op import location_of
from tilewright.ir.traits import is_view
from tilewright.ir.values import defining_op
from tilewright.ops.memory import LoadOp


def begin(f: Function, function: Operation) -> str:
    """Let accesses of a kernel have lines; call it before any instruction. Gives the file of the kernel, or ""."""
    place = location_of(function)
    if place is not None:
        f.debug_scope(place.file, place.line)
        f.at_none()
    return f.file


def at_line_of(f: Function, op: Operation | None) -> AbstractContextManager[None]:
    """Inside, instructions are those of `op`: of its line in the kernel's own file, through calls of other files."""
    if op is None or not f.file:
        return nullcontext()
    place = location_of(op)
    while place is not None and place.file != f.file:
        place = place.caller
    return f.located(0 if place is None else place.line)


def loaded_by(op: Operation) -> Operation | None:
    """The load that an operation takes an operand from: the instruction may read memory itself."""
    for operand in reversed(op.operands):
        source = defining_op(operand)
        while source is not None and is_view(source):
            source = defining_op(source.operands[0])
        if isinstance(source, LoadOp):
            return source
    return None
