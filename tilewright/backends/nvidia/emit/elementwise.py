"""Elementwise operations on a GPU: register by register, through the shared table of `backends/llvm`.

`_NATIVE` replaces entries of that table where the hardware has something better, as Triton does: approximate division,
square roots and powers of two on float, arithmetic on half and bfloat. `ACCURACY` states what that costs. Conversions,
which work on pairs of registers, are in `conversions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Operation

from tilewright.backends.llvm import elementwise as shared
from tilewright.backends.llvm.casts import CAST_NAMES
from tilewright.backends.llvm.minifloat import narrow, widen
from tilewright.backends.llvm.types import I32, I64, V, const
from tilewright.backends.nvidia.emit.context import Kernel, emits
from tilewright.backends.nvidia.emit.conversions import convert
from tilewright.backends.nvidia.emit.remainder import remainder
from tilewright.backends.nvidia.emit.rounded import ROUNDED, rounded
from tilewright.ir.op import TileOp
from tilewright.ir.values import operands_of
from tilewright.ops import families
from tilewright.ops.spec import REGISTRY

assert families.FAMILIES, "the registry is full once the families are imported"

ACCURACY: dict[tuple[str, str], float] = {
    ("divf", "f32"): 2, ("divf", "f16"): 1, ("divf", "bf16"): 1,
    ("exp", "f32"): 64, ("exp2", "f32"): 2, ("sqrt", "f32"): 1, ("rsqrt", "f32"): 2,
    ("tanh", "f32"): 4, ("sinh", "f32"): 4, ("cosh", "f32"): 4, ("erf", "f32"): 2,
}  # fmt: skip
"""Largest error in units in the last place of (entry, element type), where it is not that of the shared table.

Figures of the PTX ISA for `div.full.f32`, `ex2.approx`, `rcp.approx`, `sqrt.approx` and `rsqrt.approx`. `exp`
multiplies by log2 e in float, which costs half a unit per unit of |x| up to the overflow at 88. Powers of two below
2^-126 become 0. Functions made of an accurate exponential take it from `ex2.approx` too, on arguments below 1
(docs/decisions/numerics.md#exponentials-on-gpus); tanh, whose argument's rounding it can bear, takes the plain
instruction.
"""

Native = Callable[..., V]


def compute(k: Kernel, name: str, *args: V, **attributes: Any) -> V:
    """Entry `name` of the elementwise table on scalars of one thread, in the form that suits the hardware.

    Args:
        k: the kernel.
        name: as in the shared table.
        args: operands of one type.
        attributes: of the operation, such as `predicate`.
    """
    forms, type_ = _NATIVE.get(name, {}), args[-1].type
    native = forms.get(type_.elem)
    if native is not None:
        return native(k, *args, **attributes)
    if type_.elem in ("half", "bfloat") and "float" in forms:
        wide = forms["float"](k, *[widen(k.f, arg) for arg in args], **attributes)
        return narrow(k.f, wide, type_)
    return shared.emit(k.f, name, *args, **attributes)


def _attributes(op: TileOp) -> dict[str, Any]:
    """Attributes that an entry of the table takes."""
    values = op.attr_values()
    if "propagateNan" in values:
        return {"propagate_nan": values["propagateNan"] != "none"}
    return {"predicate": values["predicate"]} if "predicate" in values else {}


def _emit(k: Kernel, op: TileOp) -> None:
    """Every register of the result from the same register of the operands; a scalar operand serves all of them.

    Registers that are known to be equal are computed once: those of equal operands, and those in one run of equal
    elements, as of a mask whose bound is a multiple of the vectors of a thread.
    """
    name = REGISTRY[op.name].elementwise
    tiles = [k.tile(operand) for operand in operands_of(op)]
    if name in CAST_NAMES:
        k.set_like(op.results[0], convert(k, op, name, tiles[0]))
        return
    count, attributes = max(map(len, tiles)), _attributes(op)
    columns = [tile if len(tile) == count else tile * count for tile in tiles]
    rows = list(zip(*columns, strict=True))
    equal = k.equal_registers(op.results[0])
    places = equal if equal is not None else range(count)
    keys = [tuple([arg.ref for arg in rows[place]]) for place in places]
    distinct = dict(zip(keys, (rows[place] for place in places), strict=True))
    made = dict(zip(distinct, _computed(k, name, list(distinct.values()), attributes), strict=True))
    k.set_like(op.results[0], _cut(k, op, [made[key] for key in keys]))


def _computed(k: Kernel, name: str, rows: Sequence[tuple[V, ...]], attributes: dict[str, Any]) -> list[V]:
    """The entry on every row of operands; two values of 16 bits take one instruction where the hardware has it."""
    type_ = rows[0][-1].type
    if k.inline_only and name in ROUNDED:
        return rounded(k, name, rows)
    paired = name in _PAIRED and type_.elem in _NATIVE[name] and type_.elem in ("half", "bfloat")
    even = len(rows) - len(rows) % 2 if paired else 0
    found: list[V] = []
    for low, high in zip(rows[:even:2], rows[1:even:2], strict=True):
        pairs = [k.f.vector(values) for values in zip(low, high, strict=True)]
        found += k.f.elements(compute(k, name, *pairs, **attributes))
    return found + [compute(k, name, *row, **attributes) for row in rows[even:]]


_LONGEST = 48  # operations on integers in a row
_MOVES = {I32: ("mov.b32 $0, $1;", "=r,r"), I64: ("mov.b64 $0, $1;", "=l,l")}


def _cut(k: Kernel, op: Operation, registers: list[V]) -> list[V]:
    """The registers, behind a move that LLVM does not look through where a long chain of integer arithmetic ends there.

    LLVM moves constants from one end of a chain of products and sums to the other, link by link: a time that grows with
    the cube of the length.
    """
    move = _MOVES.get(registers[0].type)
    if move is None:
        return registers
    length = 1 + max((k.chains.get(operand, 0) for operand in op.operands), default=0)
    k.chains[op.results[0]] = length % _LONGEST
    if length < _LONGEST:
        return registers
    made = {v.ref: k.f.ptx(*move, (v,), (v.type,), effect=False)[0] for v in registers if v.const is None}
    return [made.get(v.ref, v) for v in registers]


for _spec in REGISTRY.values():
    if _spec.elementwise:
        emits(_spec.op)(_emit)


# --- what the hardware does better ----------------------------------------------------------------------------


def _sum(opcode: str) -> Native:
    """A sum; one of a reduction may take in the products that it adds."""
    return lambda k, a, b: k.f.op(opcode, a, b, "contract" if k.contracts else "")


def _product(k: Kernel, a: V, b: V) -> V:
    return k.f.op("fmul", a, b, "contract" if k.options.enable_fp_fusion else "")


def _intrinsic(name: str) -> Native:
    """`llvm.<name>` of LLVM, overloaded on the type."""
    return lambda k, *args: k.f.intrinsic(name, *args)


def _nvvm(name: str) -> Native:
    """`llvm.nvvm.<name>`, one instruction on floats."""
    return lambda k, *args: k.f.call(f"llvm.nvvm.{name}", args[0].type, args)


def _exp(k: Kernel, x: V) -> V:
    return k.f.call("llvm.nvvm.ex2.approx.f32", x.type, (k.f.fmul(x, math.log2(math.e)),))


def _absolute_of_short(k: Kernel, x: V) -> V:
    """|x| of 16 bits through 32: ptxas 13 compares results of `abs.s16` as if |-2^15| were 2^15.

    Inline, because LLVM narrows the absolute value of an extended operand.
    """
    (wide,) = k.f.ptx("abs.s32 $0, $1;", "=r,r", (k.f.cast("sext", x, I32),), (I32,), effect=False)
    return k.f.cast("trunc", wide, x.type)


def _shift_of_long(opcode: str) -> Native:
    """A shift of 64 bits, which gives 0 from 64 on (PTX ISA, shl and shr clamp the amount, which has 32 bits).

    Inline, because LLVM 22 makes a shift by the low 32 bits of the amount of a guarded one, and drops the guard.
    """

    def emit(k: Kernel, a: V, b: V) -> V:
        if b.const is not None:
            return shared.TABLE[opcode].emit(k.f, a, b)
        amount = k.f.cast("trunc", k.f.intrinsic("umin", b, const(b.type, 64)), I32)
        text = {"shli": "shl.b64", "shrui": "shr.u64"}[opcode]
        return k.f.ptx(f"{text} $0, $1, $2;", "=l,l,r", (a, amount), (a.type,), effect=False)[0]

    return emit


def _compare(k: Kernel, a: V, b: V, *, predicate: str) -> V:
    return shared.TABLE["cmpf"].emit(k.f, a, b, predicate=predicate)


_NATIVE: dict[str, dict[str, Native]] = {
    **{name: dict.fromkeys(("half", "bfloat", "float", "double"), made)
       for name, made in (("addf", _sum("fadd")), ("subf", _sum("fsub")), ("mulf", _product))},
    **{f"{name}f": dict.fromkeys(("half", "bfloat"), _intrinsic(name))
       for name in ("maxnum", "minnum", "maximum", "minimum")},
    "absi": {"i16": _absolute_of_short},
    **{opcode: {"i64": _shift_of_long(opcode)} for opcode in ("shli", "shrui")},
    "fma": {"half": _intrinsic("fma"), "bfloat": _intrinsic("fma")},
    "cmpf": {"half": _compare},
    "divf": {"float": _nvvm("div.full")},
    "remf": {"float": remainder, "double": remainder},
    "exp": {"float": _exp},
    "exp2": {"float": _nvvm("ex2.approx.ftz.f32")},
    "sqrt": {"float": _nvvm("sqrt.approx.f")},
    "rsqrt": {"float": _nvvm("rsqrt.approx.f")},
}  # fmt: skip
"""Table entry -> LLVM element type -> ``emit(kernel, *operands, **attributes)``."""

_PAIRED = frozenset({"addf", "subf", "mulf", "fma", "maxnumf", "minnumf", "maximumf", "minimumf"})
"""Entries with an instruction for two values of 16 bits in one register (PTX ISA, half precision)."""

__all__ = ["ACCURACY", "compute"]
