"""Functions of NVIDIA's libdevice, by symbol.

    __nv_tanhf    an operation of ours   -> the elementwise table, in its accurate form
    __nv_fadd_rz  one instruction        -> an intrinsic
    __nv_j0f      anything else          -> a call, whose definition is linked later (`libdevice`)

So only what has no shorter way needs the library on the user's machine.
"""

from __future__ import annotations

import re

from tilewright.backends.llvm import elementwise as shared
from tilewright.backends.llvm import foreign
from tilewright.backends.llvm.types import F32, T, V, const
from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.emit.rounded import rounded
from tilewright.ir.types import element_type, ir_name
from tilewright.ops.math_extern import ExternElementwiseOp, math_name

_MODES = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}
_KINDS = {"float": "f", "double": "d", "int": "i", "uint": "ui", "ll": "ll", "ull": "ull"}
_DIRECTED = re.compile(r"__nv_([fd])(add|mul|div|rcp|sqrt)_(r[nzdu])")
_FUSED = re.compile(r"__nv_fma(f?)_(r[nzdu])")
_CONVERSION = re.compile(r"__nv_(float|double|u?int|u?ll)2(float|double|u?int|u?ll)_(r[nzdu])")
_NAMED = {
    "fabsf": "fabs.f32", "fabs": "fabs.f64", "popc": "ctpop.i32", "brev": "bitreverse.i32", "brevll": "bitreverse.i64",
    "byte_perm": "nvvm.prmt", "saturatef": "nvvm.saturate.f", "mulhi": "nvvm.mulhi.i", "umulhi": "nvvm.mulhi.ui",
    "mul64hi": "nvvm.mulhi.ll", "umul64hi": "nvvm.mulhi.ull", "mul24": "nvvm.mul24.i", "umul24": "nvvm.mul24.ui",
    "sad": "nvvm.sad.i", "usad": "nvvm.sad.ui", "fmaf": "fma.f32", "fma": "fma.f64",
}  # fmt: skip
_ROUNDED = {"__nv_fdiv_rn": "precise_divf", "__nv_frcp_rn": "precise_divf", "__nv_fsqrt_rn": "precise_sqrt"}


def instruction_of(symbol: str) -> str | None:
    """The intrinsic that does just what a function of libdevice does, if there is one."""
    if found := _DIRECTED.fullmatch(symbol):
        return f"llvm.nvvm.{found[2]}.{_MODES[found[3]]}.{found[1]}"
    if found := _FUSED.fullmatch(symbol):
        return f"llvm.nvvm.fma.{_MODES[found[2]]}.{found[1] or 'd'}"
    if found := _CONVERSION.fullmatch(symbol):
        return f"llvm.nvvm.{_KINDS[found[1]]}2{_KINDS[found[2]]}.{_MODES[found[3]]}"
    name = _NAMED.get(symbol.removeprefix("__nv_"))
    return f"llvm.{name}" if name else None


def _compute(k: Kernel, symbol: str, result: T, args: tuple[V, ...], own: str | None) -> V:
    """One element.

    Args:
        k: the kernel.
        symbol: of the function.
        result: type of the result.
        args: operands.
        own: the entry of the elementwise table that computes it, if there is one.
    """
    if own is not None:
        return shared.emit(k.f, own, *args)
    if symbol == "__nv_fast_tanhf":  # libdevice has it since CUDA 13.1 only
        return k.f.call("llvm.tanh.f32", result, args, flags="afn")
    if symbol == "__nv_byte_perm":  # prmt would take a fourth bit of each selector, to spread a sign
        args = (*args[:2], k.f.and_(args[2], 0x7777))
    return k.f.call(instruction_of(symbol) or symbol, result, args)


@emits(ExternElementwiseOp)
def emit_extern(k: Kernel, op: ExternElementwiseOp) -> None:
    """A function of the library on every register."""
    symbol, tiles = op.attr_values()["symbol"], [k.tile(operand) for operand in op.operands]
    kinds = {ir_name(element_type(value.type)) for value in (*op.operands, *op.results)}
    own = math_name(symbol) if kinds in ({"f32"}, {"f64"}) else None
    count, result = max(map(len, tiles)), k.element(op.results[0])
    if not symbol.startswith("__nv_"):
        taken = ", ".join(k.element(operand).text for operand in op.operands)
        foreign.check(symbol, f"{result.text} ({taken})", getattr(k.options, "libraries", ()))
    columns = list(zip(*(tile if len(tile) == count else tile * count for tile in tiles), strict=True))
    entry = _ROUNDED.get(symbol) if k.inline_only else None
    if entry is not None:
        rows = [(const(F32, 1.0), *row) for row in columns] if symbol == "__nv_frcp_rn" else columns
        k.set_like(op.results[0], rounded(k, entry, rows))
        return
    k.set_like(op.results[0], [_compute(k, symbol, result, args, own) for args in columns])


__all__ = ["instruction_of"]
