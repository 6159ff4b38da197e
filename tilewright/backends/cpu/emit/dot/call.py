"""The calls that a lowering emits: packers and products, with their parameters explained once.

Sizes and strides are `V` of type i64 or Python integers, strides in bytes. Nothing is written outside what a plan's
buffer sizes say, and nothing is read outside the valid extents of a source.
"""

from __future__ import annotations

from typing import Literal

from tilewright.backends.cpu.emit.dot.amx import emit_amx_dot
from tilewright.backends.cpu.emit.dot.micro import emit_dot
from tilewright.backends.cpu.emit.dot.pack import Order, emit_pack
from tilewright.backends.cpu.plan.dot import DotPlan
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, I64, VOID, V, const

Size = V | int
Part = tuple[V, V]


def _i64(value: Size) -> V:
    return value if isinstance(value, V) else const(I64, value)


def _i1(value: V | bool) -> V:
    return value if isinstance(value, V) else const(I1, int(value))


def pack(
    f: Function,
    plan: DotPlan,
    operand: Literal["a", "b"],
    order: Order,
    dst: V,
    dst_stride: Size,
    src: V,
    strides: tuple[Size, Size],
    valid: tuple[Size, Size],
    words: Size,
    *,
    first: Size = 0,
    plane_bytes: Size = 0,
) -> None:
    """Pack K words `first` to `first + words` of an operand, zero outside the valid extents.

    `mn` are the rows of A (all `plan.a_rows` of them), the columns of B (of all panels).

    Args:
        f: where the call goes.
        plan: the dot.
        operand: which one.
        order: `"k"` if K has unit stride, `"mn"` if `mn` has, else `"any"` (element by element, slow).
        dst: the packed buffer.
        dst_stride: bytes between packed rows of A, between panels of B (`plan.a_row_bytes`, `plan.b_panel_bytes`).
        src: element (0, 0) of this piece of the source.
        strides: bytes from one element of the source to the next along (mn, K).
        valid: elements of the piece that exist along (mn, K); 0 or less for none.
        words: K words to write, for instance `plan.steps(k)`.
        first: K word of the buffer where the piece goes.
        plane_bytes: distance of the planes (`plan.a_plane_bytes`, `plan.b_plane_bytes`) where there are several.
    """
    args = (dst, dst_stride, src, *strides, *valid, first, words, plane_bytes)
    f.call(emit_pack(f.module, plan, operand, order), VOID, [_i64(arg) for arg in args])


def dot(
    f: Function,
    plan: DotPlan,
    acc: V,
    acc_stride: Size,
    a: V,
    a_stride: Size,
    b: V,
    panel_bytes: Size,
    words: Size,
    fresh: V | bool,
    *,
    first: Size = 0,
    a_plane_bytes: Size = 0,
    b_plane_bytes: Size = 0,
    part: Part | None = None,
) -> None:
    """`acc = a * b` (`fresh`) or `acc += a * b`, over `words` K words.

    Args:
        f: where the call goes.
        plan: the dot.
        acc, acc_stride: accumulator (`plan.acc`, `acc_rows` x `acc_columns`) and its row stride.
        a, a_stride: packed A at the first K word wanted, or row-major memory if `plan.a_in_place`; row stride.
        b, panel_bytes: packed B from its start, and its panel stride.
        words: K words to multiply; on AMX a multiple of `plan.k_block // plan.unit`.
        fresh: `i1`, whether the accumulator's old value is ignored.
        first: K word of packed B to start at.
        a_plane_bytes, b_plane_bytes: distances of the planes where `plan.planes` is more than 1.
        part: rows and columns that are wanted; others of the accumulator are undefined. None for all.
    """
    args = [acc, _i64(acc_stride), a, _i64(a_stride), b, _i64(panel_bytes), _i64(first), _i64(words), _i1(fresh)]
    if plan.is_amx:
        name = emit_amx_dot(f.module, plan)
        args += [_i64(a_plane_bytes), _i64(b_plane_bytes)]
    else:
        name = emit_dot(f.module, plan, "packed", part=part is not None)
        args += part or ()
    f.call(name, VOID, args)


def dot_in_place(
    f: Function,
    plan: DotPlan,
    acc: V,
    acc_stride: Size,
    a: V,
    a_stride: Size,
    b: V,
    b_stride: Size,
    columns: Size,
    words: Size,
    fresh: V | bool,
    *,
    cut: bool,
    part: Part | None = None,
) -> None:
    """`acc = a * b` (`fresh`) or `acc += a * b`, with B row-major where it lies (`plan.b_in_place`).

    Args:
        f, plan, acc, acc_stride, a, a_stride, words, fresh, part: as of `dot`.
        b, b_stride: element (0, 0), and bytes between rows; `words` of them exist.
        columns: of B that exist; the others count as zero.
        cut: whether there may be fewer than `plan.n`.
    """
    args = [acc, _i64(acc_stride), a, _i64(a_stride), b, _i64(b_stride), _i64(columns), _i64(words), _i1(fresh)]
    args += part or ()
    f.call(emit_dot(f.module, plan, "cut" if cut else "whole", part=part is not None), VOID, args)
