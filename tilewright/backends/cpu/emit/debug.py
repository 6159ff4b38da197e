"""`tt.print` and `tt.assert`: lines through the C library, and a flag that the launch looks at.

for each element: printf("pid (x, y, z) idx (i, j)prefix value\\n")
if not all elements of the condition: failed = 1 + number of the assertion, unless one failed before; leave the kernel

What an assertion guards, an index say, must not happen when it fails. The flag is all in a function that is called,
which has no way out of its caller, and in kernels whose programs may wait for each other.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.backends.cpu.emit.chunks import element_position, for_each_chunk
from tilewright.backends.cpu.emit.context import FunctionLowering, emits
from tilewright.backends.cpu.emit.masks import Masks
from tilewright.backends.cpu.emit.scalarize import for_each_lane
from tilewright.backends.cpu.plan.lanes import chunk_asked, chunk_group
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.llvm.casts import convert
from tilewright.backends.llvm.types import I32, I64, NULL, PTR, T, V, const
from tilewright.ir.types import bit_width, element_type, ir_name, is_float, is_pointer, shape_of
from tilewright.ops.debug import AssertOp, PrintOp

_VARIADIC = T("...")


def _printf(low: FunctionLowering, text: str, args: list[V]) -> None:
    f = low.f
    f.module.declare("printf", I32, [PTR, _VARIADIC])
    operands = ", ".join([f.module.string(text).typed, *[arg.typed for arg in args]])
    f.emit(I32, f"call i32 (ptr, ...) @printf({operands})")


def _flush(low: FunctionLowering) -> None:
    low.f.call("fflush", I32, (NULL,))


def _shown(low: FunctionLowering, op: Operation, value: SSAValue, v: V) -> tuple[str, V]:
    """Conversion of printf and the widened value."""
    f = low.f
    element = element_type(value.type)
    attrs = op.attr_values()  # type: ignore[attr-defined]
    number = list(op.operands).index(value)
    if is_pointer(element):
        return "%p", v
    name = ir_name(element)
    if is_float(element):
        if name == "f64":
            return "%f", v
        return "%f", convert(f, "fp_to_fp" if name.startswith("f8") else "extf", v, name, "f64")
    signed = bool(attrs["isSigned"][number]) if number < len(attrs["isSigned"]) else True
    wide = f.cast("sext" if signed and not attrs["hex"] and name != "i1" else "zext", v, I64)
    if attrs["hex"]:
        return f"0x%0{max(2, bit_width(element) // 4)}llx", wide
    return ("%lld" if signed else "%llu"), wide


def _print_one(low: FunctionLowering, op: Operation, value: SSAValue, v: V, position: list[V]) -> None:
    form, shown = _shown(low, op, value, v)
    widths = [len(str(dim - 1)) for dim in shape_of(value.type)] if position else []
    place = f" idx ({', '.join(f'%{width}lld' for width in widths)})"
    which = f"(operand {list(op.operands).index(value)}) " if len(op.operands) > 1 else ""
    prefix = op.attr_values()["prefix"].replace("%", "%%")  # type: ignore[attr-defined]
    _printf(low, f"pid (%d, %d, %d){place}{prefix}{which}{form}\n", [*low.pids, *position, shown])


@emits(PrintOp)
def emit_print(low: FunctionLowering, step: Step) -> None:
    """Print every element of one tile."""
    (sink,) = step.sinks
    ev, op, (value,) = low.ev, sink.op, sink.roots
    assert op is not None
    chunking = chunk_group(step, ev.f.isa, ev.placed, ev.analysis)

    def one(lane: V, values: list[V]) -> None:
        _print_one(low, op, value, values[0], element_position(ev, chunking, lane))

    def chunk(values: list[V]) -> None:
        for_each_lane(ev, [ev.f.splat(values[0], ev.nest.lanes)], one)

    for_each_chunk(ev, sink, chunking, chunk)
    _flush(low)


def emit_scalar_print(low: FunctionLowering, step: Step) -> None:
    """Print a scalar, or just the prefix."""
    op = step.op
    assert op is not None
    if not op.operands:
        prefix = op.attr_values()["prefix"].replace("%", "%%")  # type: ignore[attr-defined]
        _printf(low, f"pid (%d, %d, %d){prefix}\n", list(low.pids))
    for value in [step.detail] if step.detail is not None else list(op.operands):
        _print_one(low, op, value, low.ev.scalar(value), [])
    _flush(low)


# --- assertions ---------------------------------------------------------------------------------------


def _fail_unless(low: FunctionLowering, op: Operation, holds: V) -> None:
    f, state = low.f, low.state
    message = op.attr_values()["message"]  # type: ignore[attr-defined]
    if message not in state.asserts:
        state.asserts.append(message)
    flag = f.module.variable(state.failed_symbol, I32, 1, exported=True)
    failed, go_on = f.label("failed"), f.label("holds")
    f.cond_br(holds, go_on, failed)
    f.start(failed)
    f.atomic_cas(flag, const(I32, 0), const(I32, 1 + state.asserts.index(message)), "monotonic")
    f.br(low.leave or go_on)
    f.start(go_on)


@emits(AssertOp)
def emit_assert(low: FunctionLowering, step: Step) -> None:
    """Check every element of a tile: bounds of places once for a row, equal elements once, others chunk by chunk."""
    (sink,) = step.sinks
    ev, op = low.ev, sink.op
    assert op is not None
    chunking = chunk_asked(step, ev.f.isa, ev.placed, ev.analysis)

    def chunk(values: list[V]) -> None:
        (value,) = values
        _fail_unless(low, op, ev.f.reduce("and", value))

    def begin() -> V:
        """Behind the chunks in which all elements are known to hold."""
        dim, extent, width = chunking.loops[-1]
        masks = Masks(ev, step, [chunking.index], dim)
        return masks.limit(extent, width) if masks.complete else const(I64, 0)

    for_each_chunk(ev, sink, chunking, chunk, begin)


def emit_scalar_assert(low: FunctionLowering, step: Step) -> None:
    """Check a scalar."""
    assert step.op is not None
    _fail_unless(low, step.op, low.ev.scalar(step.op.operands[0]))
