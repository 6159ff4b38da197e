"""`tt.print`, `tt.assert` and promises to the optimiser.

Lines go through the driver's `vprintf`, one per element, by the thread that owns it:

    void print(index..., value) { vprintf("pid (%d, %d, %d) idx (%3d) x: %lld\\n", {pid, index, value}); }

A failed assertion ends the whole block, so that nothing behind it runs, and leaves its number for the launcher, which
has said in the log whether everything on the GPU is to end with it (`device/assertions.py`):

    any element false? --or over all threads--> thread 0: log[0] = 1 + number unless set, log[1..3] = program;
                                                          log[4]? trap                                    return
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.backends.llvm.casts import convert
from tilewright.backends.llvm.types import I1, I32, I64, VOID, V, const
from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.emit.function import NvFunction
from tilewright.backends.nvidia.emit.module import NvModule
from tilewright.backends.nvidia.emit.publish import owner
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.errors import InternalError
from tilewright.ir.types import bit_width, element_type, ir_name, is_float, is_pointer, shape_of
from tilewright.ops.debug import AssertOp, PrintOp
from tilewright.ops.program import AssumeOp

_AXES = ("ctaid.x", "ctaid.y", "ctaid.z")


# --- printing -------------------------------------------------------------------------------------------


@emits(PrintOp)
def emit_print(k: Kernel, op: PrintOp) -> None:
    """A line for each element of each operand, or one line with the prefix alone."""
    if not op.operands:
        _call(k, f"pid (%d, %d, %d){_prefix(op)}\n", k.first_thread(), [])
    for number, value in enumerate(op.operands):
        _print_value(k, op, number, value)


def _prefix(op: PrintOp) -> str:
    return op.prefix.data.replace("%", "%%")


def _print_value(k: Kernel, op: PrintOp, number: int, value: SSAValue) -> None:
    shape, registers = shape_of(value.type), k.tile(value)
    widths = ", ".join(f"%{len(str(size - 1))}d" for size in shape)
    which = f"(operand {number}) " if len(op.operands) > 1 else ""
    own, chosen, inside, places = owner(k, value.type), [0], [const(I1, 1)], []
    if shape:
        chosen, inside = k.owned_registers(layout_of(value)), k.inside(value.type)
        places = [k.coordinates(layout_of(value), axis) for axis in range(len(shape))]
    for r in chosen:
        form, shown = _shown(k, op, number, value, registers[r])
        text = f"pid (%d, %d, %d) idx ({widths}){_prefix(op)}{which}{form}\n"
        _call(k, text, k.f.and_(own, inside[r]), [*(axis[r] for axis in places), shown])


def _shown(k: Kernel, op: PrintOp, number: int, value: SSAValue, v: V) -> tuple[str, V]:
    """Conversion of printf and the value as it takes it: 64 bits."""
    f, element, attrs = k.f, element_type(value.type), op.attr_values()
    if is_pointer(element):
        return "0x%llx", f.cast("ptrtoint", v, I64)
    name, signs = ir_name(element), attrs["isSigned"]
    if is_float(element):
        return "%f", convert(f, "fp_to_fp", v, name, "f64")
    signed = bool(signs[number]) if number < len(signs) else True
    wide = f.cast("sext" if signed and not attrs["hex"] and name != "i1" else "zext", v, I64)
    if attrs["hex"]:
        return f"0x%0{max(2, bit_width(element) // 4)}llx", wide
    return ("%lld" if signed else "%llu"), wide


def _call(k: Kernel, text: str, on: V, args: Sequence[V]) -> None:
    """Call the function of the module that prints `text`, where `on`."""
    module = k.f.module
    assert isinstance(module, NvModule)
    if text not in k.prints:
        k.prints.append(text)
        name, types = f"tilewright_print_{len(k.prints) - 1}", [arg.type for arg in args]
        _define(module.internal(name, VOID, types, "nounwind noinline"), text)
    with k.f.if_(on):
        k.f.call(f"tilewright_print_{k.prints.index(text)}", VOID, args)


def _define(f: NvFunction, text: str) -> None:
    """Program and arguments in memory as a C function finds variable arguments; then `vprintf`."""
    values = [*(f.special_register(axis) for axis in _AXES), *f.args]
    place, offset = f.alloca(I64, len(values), 8), 0
    for value in values:
        offset = -(-offset // value.type.bytes) * value.type.bytes
        f.store(value, f.gep(place, offset), value.type.bytes)
        offset += value.type.bytes
    f.call("vprintf", I32, (f.module.string(text), place))
    f.ret()


# --- assertions -----------------------------------------------------------------------------------------


@emits(AssertOp)
def emit_assert(k: Kernel, op: AssertOp) -> None:
    """End the block unless all elements hold."""
    f, condition = k.f, op.condition
    if k.log is None:
        raise InternalError("an assertion has nowhere to report to")
    message = op.message.data
    if message not in k.asserts:
        k.asserts.append(message)
    failed = const(I1, 0)
    inside = k.inside(condition.type) if shape_of(condition.type) else [const(I1, 1)]
    for holds, here in zip(k.tile(condition), inside, strict=True):
        failed = f.or_(failed, f.and_(here, f.not_(holds)))
    if shape_of(condition.type):
        failed = f.call("llvm.nvvm.barrier.cta.red.or.aligned.all", I1, (const(I32, 0), failed))
    then, end = f.label("failed"), f.label("holds")
    f.cond_br(failed, then, end)
    f.start(then)
    with f.if_(k.first_thread()):
        _report(f, k.log, 1 + k.asserts.index(message))
    f.ret()
    f.start(end)


def _report(f: NvFunction, log: V, number: int) -> None:
    """The first assertion of the grid that fails leaves its number and its program."""
    text = f"atom.relaxed.gpu.global.cas.b32 $0, [$1], 0, {number};"
    (found,) = f.ptx(text, "=r,l,~{memory}", [log], [I32])
    with f.if_(f.icmp("eq", found, 0)):
        for i, axis in enumerate(_AXES):
            f.store(f.special_register(axis), f.gep(log, 4 * (i + 1)), 4)
        (traps,) = f.ptx(
            "ld.volatile.global.b32 $0, [$1];", "=r,l,~{memory}", [f.gep(log, 4 * (len(_AXES) + 1))], [I32]
        )
        with f.if_(f.icmp("ne", traps, 0)):
            f.ptx("fence.acq_rel.sys; trap;", "~{memory}", [])  # the host sees the log first


# --- promises -------------------------------------------------------------------------------------------


@emits(AssumeOp)
def emit_assume(k: Kernel, op: Operation) -> None:
    """A condition that LLVM may rely on."""
    k.f.call("llvm.assume", VOID, (k.scalar(op.operands[0]),))
