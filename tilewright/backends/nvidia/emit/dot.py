"""`tt.dot`: mma.sync on fragments, and multiply-adds for everything else.

A product is straight-line code over its steps of K, and long ones of multiply-adds are a loop of such:

    for each step:  take the slices of a and b, from registers or from shared memory
        for each m, n:  d[m, n] = mma(a[m], b[n], d[m, n])          (or one multiply-add per element)

Elements beyond the true K are zeros in both operands. f32 operands may be split into several narrower parts whose
products are added, the small ones apart (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores",
2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Attribute

from tilewright.backends.llvm.casts import convert
from tilewright.backends.llvm.types import BF16, F16, F32, I16, I32, T, V, const, zero
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.emit.context import Buffer, Kernel, Tile, emits
from tilewright.backends.nvidia.emit.conversions import to_tf32
from tilewright.backends.nvidia.emit.memory import pack
from tilewright.backends.nvidia.emit.operand import Operand
from tilewright.backends.nvidia.plan.dots import STEP_BYTES, is_fma, precision, takes_fp8
from tilewright.backends.nvidia.plan.operands import operand_layout, operand_type
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.ir.types import element_type, ir_name
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.dot import DotOp

Place = tuple[int, ...]


@emits(DotOp)
def emit_dot(k: Kernel, op: DotOp) -> None:
    """A product; the layouts say which instruction it is planned for."""
    c = widened(k, op.c.type, k.tile(op.c))
    made = _multiply_adds(k, op, c) if is_fma(operand_layout(op, 0)) else _tensor_cores(k, op, c)
    k.set(op.d, narrowed(k, op.d.type, made))


def widened(k: Kernel, type_: Attribute, registers: Sequence[V]) -> Tile:
    """An accumulator as the type in which it is summed: f32 for f16."""
    if ir_name(element_type(type_)) != "f16":
        return list(registers)
    return [const(F32, float(v.const)) if v.const is not None else k.f.cast("fpext", v, F32) for v in registers]


def narrowed(k: Kernel, type_: Attribute, registers: Sequence[V]) -> Tile:
    """The inverse of `widened`, rounding once."""
    if ir_name(element_type(type_)) != "f16":
        return list(registers)
    return [k.f.cast("fptrunc", v, F16) for v in registers]


def places(layout: LinearLayout) -> list[Place]:
    """Coordinates of every register of the first thread; those of other threads differ by what the thread adds."""
    points = layout.array(register=np.arange(layout.in_sizes["register"]))
    return list(
        zip(*(np.broadcast_to(points[name], layout.in_sizes["register"]).tolist() for name in layout.out_sizes))
    )


# --- multiply-adds ----------------------------------------------------------------------------------------------

_SLICE_BYTES = 16  # of K that the widest load takes


def _multiply_adds(k: Kernel, op: DotOp, c: Tile) -> Tile:
    step = max(1, _SLICE_BYTES // max(1, k.element(op.c).bytes))
    a, b = (Operand.of(k, op, index, step) for index in (0, 1))
    at, made = places(layout_of(op.c)), list(c)
    owned = {place: i for i, place in reversed(list(enumerate(at)))}  # copies are made once
    size = _part(a, b, len(owned))
    if size == a.depth:
        _add_products(k, op, (a, b), owned, made)
    else:
        registers = list(owned.values())
        first = [made[i] for i in registers]
        with k.f.loop(const(I32, 0), a.depth // size, init=first, unroll=False) as loop:
            for i, value in zip(registers, loop.values, strict=True):
                made[i] = value
            _add_products(k, op, [x.part(loop.index, size) for x in (a, b)], owned, made)
            loop.next(*[made[i] for i in registers])
        for i, value in zip(registers, loop.results, strict=True):
            made[i] = value
    return [made[owned[place]] for place in at]


def _part(a: Operand, b: Operand, sums: int) -> int:
    """How much of K is straight-line code, of operands with which a thread computes so many sums."""
    size = a.depth
    if isinstance(a.value, Buffer) and isinstance(b.value, Buffer) and not a.depth & (a.depth - 1):
        while size > max(a.step, b.step) and size * sums > tuning.MULTIPLY_ADDS:
            size //= 2
    return size


def _add_products(k: Kernel, op: DotOp, operands: Sequence[Operand], owned: Mapping[Place, int], made: Tile) -> None:
    """Add the products along K to `made`, of which `owned` says which register is whose."""
    names, working = [ir_name(operand_type(value)[1]) for value in (op.a, op.b)], made[0].type
    depth, step = operands[0].depth, operands[0].step
    for first in range(0, depth, step):
        left, right = (
            {place: _as_working(k, v, name, working) for place, v in zip(places(x.layout), x.slice(first), strict=True)}
            for x, name in zip(operands, names, strict=True)
        )
        for i in range(min(step, depth - first)):
            for (*batch, m, n), register in owned.items():
                made[register] = _multiply_add(k, left[*batch, m, i], right[*batch, i, n], made[register])


def _as_working(k: Kernel, value: V, name: str, working: T) -> V:
    if not working.is_float:
        return k.f.cast("sext", value, working)
    return value if value.type is working else convert(k.f, "fp_to_fp", value, name, "f32")


def _multiply_add(k: Kernel, a: V, b: V, c: V) -> V:
    return k.f.fma(a, b, c) if c.type.is_float else k.f.add(k.f.mul(a, b), c)


# --- mma.sync ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Instruction:
    """An mma.sync.

    Args:
        intrinsic: its name for LLVM.
        word: type in which LLVM takes 32 bits of an operand.
        bits: of an operand's element.
    """

    intrinsic: str
    word: T
    bits: int

    @property
    def per_word(self) -> int:
        return 32 // self.bits

    @property
    def depth(self) -> int:
        """Elements of K."""
        return STEP_BYTES * 8 // self.bits


_MMA = {
    "f16": _Instruction("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", F16.vec(2), 16),
    "bf16": _Instruction("llvm.nvvm.mma.m16n8k16.row.col.bf16", I32, 16),
    "tf32": _Instruction("llvm.nvvm.mma.m16n8k8.row.col.tf32", I32, 32),
    "i8": _Instruction("llvm.nvvm.mma.m16n8k32.row.col.s8", I32, 8),
}
FP8 = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
# Which parts of the operands are multiplied, the least products first. Part i is 2**-8 (tf32: 2**-11) of part i - 1.
_PRODUCTS = {
    "tf32x3": ((1, 0), (0, 1), (0, 0)),
    "bf16x3": ((1, 0), (0, 1), (0, 0)),
    "bf16x6": ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)),
}
_ONE_PRODUCT = ((0, 0),)

Words = list[V]
Fragments = dict[Place, Words]  # by batch and row (column) of the first element


def _tensor_cores(k: Kernel, op: DotOp, c: Tile) -> Tile:
    instruction, element = _instruction(k, op)
    products = _PRODUCTS.get(precision(op), _ONE_PRODUCT) if _name(op, 0) == "f32" else _ONE_PRODUCT
    count = 1 + max(i for i, _ in products)
    operands = [Operand.of(k, op, index, instruction.depth) for index in (0, 1)]
    made, small = list(c), [zero(c[0].type)] * len(c)
    for first in range(0, operands[0].depth, instruction.depth):
        a, b = (
            [_operand(k, x, index, part, instruction) for part in _parts(k, x, x.slice(first), element, count)]
            for index, x in enumerate(operands)
        )
        for i, j in products[:-1]:
            _step(k, op, small, a[i], b[j], instruction)
        _step(k, op, made, a[0], b[0], instruction)
    if len(products) == 1:
        return made
    # Infinities leave NaNs in the small parts, and would meet their zeros.
    clean = [k.f.select(k.f.fcmp("uno", v, v), const(F32, 0.0), v) for v in small]
    return [k.f.fadd(v, s) for v, s in zip(made, clean, strict=True)]


def _name(op: DotOp, index: int) -> str:
    return ir_name(operand_type(op.operands[index])[1])


def _instruction(k: Kernel, op: DotOp) -> tuple[_Instruction, str]:
    """The instruction, and the element type that its operands are brought to."""
    names = [_name(op, index) for index in (0, 1)]
    if names[0] == "f32":
        name = "bf16" if precision(op).startswith("bf16") else "tf32"
        return _MMA[name], name
    if not names[0].startswith("f8"):
        return _MMA[names[0]], names[0]
    if not takes_fp8(names, k.arch):
        return _MMA["f16"], "f16"
    kinds = ".".join(FP8[name] for name in names)
    return _Instruction(f"llvm.nvvm.mma.m16n8k32.row.col.f32.{kinds}.f32", I32, 8), "f8"


def _step(k: Kernel, op: DotOp, made: Tile, a: Fragments, b: Fragments, instruction: _Instruction) -> None:
    """One step of K, for all fragments of the accumulator: registers 4 i to 4 i + 3."""
    at = places(layout_of(op.c))
    seen: dict[Place, int] = {}
    for i in range(0, len(made), 4):
        if at[i] in seen:  # a copy of another fragment
            made[i : i + 4] = made[seen[at[i]] : seen[at[i]] + 4]
            continue
        seen[at[i]] = i
        *batch, m, n = at[i]
        t = made[i].type
        result = k.f.call(instruction.intrinsic, _four(t), (*a[*batch, m], *b[*batch, n], *made[i : i + 4]))
        made[i : i + 4] = [k.f.extract_value(result, j, t) for j in range(4)]


def _four(t: T) -> T:
    return T(f"{{ {', '.join([t.text] * 4)} }}")


def _operand(k: Kernel, operand: Operand, index: int, elements: Tile, instruction: _Instruction) -> Fragments:
    """The fragments of a slice of operand A (`index` 0, 4 words each) or B (2 words).

    Neighbouring registers are a word along K; then, for A, come the rows 8 below, and last the upper half of the
    step's K, which is all zeros where the tile has only half of a step.
    """
    at, per_word = places(operand.layout), instruction.per_word
    whole = (4, 2)[index] * per_word
    held = whole // 2 if operand.step < instruction.depth else whole
    found: Fragments = {}
    for start in range(0, len(elements), held):
        place = tuple(c for axis, c in enumerate(at[start]) if axis != operand.axis)
        if place not in found:
            words = [_word(k, elements[i : i + per_word], instruction) for i in range(start, start + held, per_word)]
            found[place] = words + [zero(instruction.word)] * ((whole - held) // per_word)
    return found


def _word(k: Kernel, elements: Sequence[V], instruction: _Instruction) -> V:
    return k.f.cast("bitcast", pack(k, elements)[0], instruction.word)


# --- elements ---------------------------------------------------------------------------------------------------


def _parts(k: Kernel, operand: Operand, registers: Tile, element: str, count: int) -> list[Tile]:
    """The elements of an operand as `element`, in `count` parts, each the rest of those before."""
    if element == "bf16" and operand.element == "f32":
        parts = [_as_bf16(k, v, count) for v in registers]
    elif element == "tf32":
        parts = [_as_tf32(k, v, count) for v in registers]
    elif element == "f16" and operand.element != "f16":
        parts = [[convert(k.f, "fp_to_fp", v, operand.element, "f16")] for v in registers]
    else:
        return [registers]
    return [[part[i] for part in parts] for i in range(count)]


def _as_tf32(k: Kernel, value: V, count: int) -> list[V]:
    """tf32 values whose sum is `value`: all but the last are cut off, exactly, the last is rounded."""
    f, parts = k.f, []
    for _ in range(count - 1):
        cut = f.cast("bitcast", f.and_(f.cast("bitcast", value, I32), 0xFFFFE000), F32)
        parts.append(cut)
        value = f.fsub(value, cut)
    return [*parts, f.cast("bitcast", to_tf32(k, value), F32)]


def _as_bf16(k: Kernel, value: V, count: int) -> list[V]:
    """bf16 values whose sum is `value`, as `_as_tf32`."""
    f, parts = k.f, []
    for _ in range(count - 1):
        bits = f.and_(f.cast("bitcast", value, I32), 0xFFFF0000)
        parts.append(f.cast("bitcast", f.cast("trunc", f.lshr(bits, 16), I16), BF16))
        value = f.fsub(value, f.cast("bitcast", bits, F32))
    return [*parts, f.cast("fptrunc", value, BF16)]


__all__ = ["FP8", "emit_dot", "narrowed", "places", "widened"]
