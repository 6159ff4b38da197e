"""Printing, assertions, barriers: at run time (`device_print`, ...) and while compiling (`static_print`, ...).

`device_assert` makes code only with the option `debug`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tilewright.base import dtypes
from tilewright.base.errors import (
    CompileTimeAssertionFailure,
    LanguageTypeError,
    LanguageValueError,
    NotConstexprError,
)
from tilewright.ir.types import to_ir
from tilewright.ops.broadcast import broadcast_tensors
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.casts import cast_to
from tilewright.ops.debug import AssertOp, BarrierOp, InlineAsmOp, PrintOp
from tilewright.ops.elementwise import OrIOp, XOrIOp
from tilewright.ops.values import Operand, constexpr, tensor, unwrap


@builtin
def static_print(
    b: Emitter, *values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False
) -> None:
    """Print while the kernel is being compiled; tensors show as their type and shape.

    Args:
        values: anything.
        sep, end, file, flush: as in Python's `print`.
    """
    print(
        *(unwrap(v) for v in values),
        sep=unwrap(sep),
        end=unwrap(end),
        file=unwrap(file) or sys.stdout,
        flush=bool(unwrap(flush)),
    )


@builtin
def static_assert(b: Emitter, cond: Any, msg: Any = "") -> None:
    """Fail compilation unless `cond` holds.

    Args:
        cond: a compile-time bool.
        msg: text of the failure.

    Raises:
        CompileTimeAssertionFailure: it does not hold.
        NotConstexprError: `cond` is known at run time only.
    """
    value = unwrap(cond)
    if isinstance(value, tensor):
        raise NotConstexprError(
            f"static_assert condition could not be determined statically: it is a tensor of type {value.type}",
            hint="check a run-time value with tl.device_assert",
        )
    if not value:
        raise CompileTimeAssertionFailure(str(unwrap(msg)) or "static_assert does not hold")


def _prefix(prefix: Any, has_values: bool) -> str:
    """The text before values, which ends with ": " and, unless it is empty, starts with a space."""
    text = unwrap(prefix)
    if not isinstance(text, str) or not text.isascii():
        raise LanguageValueError(
            f"device_print prefix must be an ASCII string known at compile time, got {text!r}",
            hint='write a text ahead of the value: print("x", x)',
        )
    if has_values:
        text = f"{text.removesuffix(' ').removesuffix(':')}: "
    return f" {text}" if len(text) > 2 and not text.startswith(" ") else text


@builtin
def device_print(b: Emitter, prefix: Any, *args: Any, hex: Any = False) -> None:
    """Print values when the kernel runs, once per program.

    Args:
        prefix: ASCII text known at compile time.
        args: tensors or numbers.
        hex: print bits in hexadecimal.
    """
    if any(isinstance(unwrap(arg), str) for arg in args):
        raise LanguageTypeError(
            "only the first argument of print is a text", hint="print once for each text, with its values behind it"
        )
    values = [to_tensor(b, arg) for arg in args]
    for value in values:
        if not isinstance(value.dtype, dtypes.dtype) and not value.dtype.is_ptr():
            raise LanguageTypeError(f"cannot print a value of type {value.type}")
    signs = [int(isinstance(v.dtype, dtypes.dtype) and v.dtype.is_int_signed()) for v in values]
    attrs = {"prefix": _prefix(prefix, bool(values)), "hex": bool(unwrap(hex)), "isSigned": signs}
    b.op(PrintOp, [v.handle for v in values], attrs=attrs)


@builtin
def device_assert(b: Emitter, cond: Operand, msg: Any = "", mask: Operand | None = None) -> None:
    """Fail the launch unless `cond` holds everywhere; makes no code without the option `debug`.

    Args:
        cond: bool tensor or constant.
        msg: text of the failure, known at compile time.
        mask: lanes that are checked.
    """
    if not b.options.debug:
        return
    message = unwrap(msg)
    if not isinstance(message, str):
        raise LanguageTypeError(f"the message of device_assert must be a string known at compile time, got {message!r}")
    checked = cast_to(b, to_tensor(b, cond), dtypes.int1)
    if unwrap(mask) is not None:
        checked, lanes = broadcast_tensors(b, checked, cast_to(b, to_tensor(b, mask), dtypes.int1))
        unchecked = b.emit(XOrIOp, lanes.type, lanes, b.constant(True, lanes.type))
        checked = b.emit(OrIOp, checked.type, checked, unchecked)
    b.emit_void(AssertOp, checked, message=message)


@builtin
def debug_barrier(b: Emitter) -> None:
    """All threads of the program wait for each other; a CPU program has one thread."""
    b.emit_void(BarrierOp, space="all")


def assembly(
    b: Emitter,
    text: str,
    constraints: str,
    operands: Sequence[tensor],
    results: Sequence[Any],
    *,
    pure: bool,
    pack: int,
) -> list[tensor]:
    """Assembly of the target, on tiles of one shape; `tl.inline_asm_elementwise` describes the arguments."""
    attrs = {"asm_string": text, "constraints": constraints, "pure": pure, "packed_element": pack}
    handles = b.op(InlineAsmOp, [o.handle for o in operands], attrs=attrs, result_types=[to_ir(t) for t in results])
    return [tensor(handle, type_) for handle, type_ in zip(handles, results, strict=True)]


@builtin
def expect_zero(b: Emitter, x: Operand, mask: Operand) -> tensor:
    """`x` itself; with the option `debug`, assert that it is zero where `mask` holds.

    Example:
        >>> tl.expect_zero(tl.arange(0, 4) * 0, True)
        [0 0 0 0]
    """
    value = to_tensor(b, x)
    if b.options.debug:
        zero = cast_to(b, value, dtypes.int1)
        flipped = b.emit(XOrIOp, zero.type, zero, b.constant(True, zero.type))
        device_assert.fn(b, flipped, constexpr("expected zero"), mask)
    return value
