"""Steps of single elements: arithmetic on scalars, their loads and stores, the place of the program in the grid."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu.emit import atomic, check, debug, memory
from tilewright.backends.cpu.emit.context import FunctionLowering
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.steps import ScalarStep, Step
from tilewright.backends.llvm.types import I64, V
from tilewright.base.errors import InternalError
from tilewright.ir.types import pointee_bytes
from tilewright.ir.values import is_tile
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp
from tilewright.ops.check import CheckOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.debug import AssertOp, PrintOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp
from tilewright.ops.shape import UnsplatOp


def emit_scalar(low: FunctionLowering, step: Step) -> None:
    """A step that computes or stores scalars."""
    op = step.op
    assert op is not None
    if op.results and op.results[0] in low.ev.scalars:
        return
    handler = _SCALARS.get(type(op))
    if handler is not None:
        value = handler(low, step)
    elif isinstance(op, (ConstantOp, PoisonOp)):
        return
    else:
        value = _elementwise(low, op)
    if value is not None and op.results:
        low.ev.scalars[op.results[0]] = value


def _elementwise(low: FunctionLowering, op: Operation) -> V:
    if isinstance(op, ExternElementwiseOp):
        return low.ev._extern(op, op.results[0], ())
    return low.ev.apply(op, [low.ev.scalar(operand) for operand in op.operands])


def _addptr(low: FunctionLowering, step: Step) -> V:
    op = step.op
    assert op is not None
    pointer, offset = (low.ev.scalar(operand) for operand in op.operands)
    wide = low.f.cast("sext", offset, I64)
    return low.f.gep(pointer, low.f.mul(wide, pointee_bytes(op.results[0].type)))


def _unsplat(low: FunctionLowering, step: Step) -> V:
    op = step.op
    assert op is not None
    low.ev.enter(Nest())
    source = op.operands[0]
    return low.ev.eval(source, ((),) * len(source.type.get_shape()))  # type: ignore[attr-defined]


def _program_id(low: FunctionLowering, step: Step) -> V:
    assert step.op is not None
    return low.pids[step.op.attr_values()["axis"]]  # type: ignore[attr-defined]


def _num_programs(low: FunctionLowering, step: Step) -> V:
    assert step.op is not None
    return low.grid[step.op.attr_values()["axis"]]  # type: ignore[attr-defined]


def hoist_invariants(low: FunctionLowering) -> None:
    """Emit the scalar steps of the first block that no program can tell apart."""
    known: set[SSAValue] = set(low.plan.blocks[0].block.args)
    for step in low.plan.blocks[0].steps:
        op = step.op
        if not isinstance(step, ScalarStep) or op is None or step.writes or step.reads or not op.results:
            continue
        if isinstance(op, (GetProgramIdOp, UnsplatOp)) or is_tile(op.results[0]):
            continue
        if all(operand in known or constant_of(operand) is not None for operand in op.operands):
            emit_scalar(low, step)
            known.add(op.results[0])


_SCALARS: dict[type[Operation], Callable[[FunctionLowering, Step], V | None]] = {
    LoadOp: lambda low, step: memory.scalar_load(low.ev, _op(step)),
    StoreOp: lambda low, step: memory.scalar_store(low.ev, _op(step)),
    AddPtrOp: _addptr,
    UnsplatOp: _unsplat,
    GetProgramIdOp: _program_id,
    GetNumProgramsOp: _num_programs,
    AtomicRMWOp: atomic.emit_scalar_atomic,
    AtomicCASOp: atomic.emit_scalar_atomic,
    AtomicLoadOp: atomic.emit_scalar_atomic,
    AtomicStoreOp: atomic.emit_scalar_atomic,
    PrintOp: debug.emit_scalar_print,
    AssertOp: debug.emit_scalar_assert,
    CheckOp: check.emit_scalar_check,
}


def _op(step: Step) -> Operation:
    if step.op is None:
        raise InternalError("a scalar step without an operation")
    return step.op
