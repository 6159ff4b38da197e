"""The calls that a lowering emits: packers and products, with their parameters explained once.

Sizes and strides are `V` of type i64 or Python integers, strides in bytes. Nothing is written outside what a plan's
buffer sizes say, and nothing is read outside the valid extents of a source.
"""

from __future__ import annotations

from tilewright.backends.cpu.emit.dot.amx import emit_amx_dot
from tilewright.backends.cpu.emit.dot.micro import emit_dot
from tilewright.backends.cpu.emit.dot.pack import Order, emit_pack
from tilewright.backends.cpu.plan.dot import DotPlan
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, I64, VOID, V, const
from tilewright.base.errors import InternalError

Size = V | int


def _i64(value: Size) -> V:
    return value if isinstance(value, V) else const(I64, value)


def _i1(value: V | bool) -> V:
    return value if isinstance(value, V) else const(I1, int(value))


def pack_a(
    f: Function,
    plan: DotPlan,
    order: Order,
    dst: V,
    row_bytes: Size,
    src: V,
    m_stride: Size,
    k_stride: Size,
    m_valid: Size,
    k_valid: Size,
    words: Size,
    *,
    first: Size = 0,
    plane_bytes: Size = 0,
) -> None:
    """Pack A: K words `first` to `first + words` of `plan.a_rows` rows, zero outside the valid extents.

    Args:
        f: where the call goes.
        plan: the dot.
        order: `"k"` if `k_stride` is one element, `"mn"` if `m_stride` is, else `"any"` (element by element, slow).
        dst: the packed buffer.
        row_bytes: stride of packed rows, for instance `plan.a_row_bytes(capacity)`.
        src, m_stride, k_stride: element (0, 0) of this piece of the source and its byte strides.
        m_valid, k_valid: rows and K elements of the piece that exist (0 or less: none).
        words: K words to write per row, for instance `plan.steps(k)`.
        first: K word of the buffer where the piece goes.
        plane_bytes: distance of the planes (`plan.a_plane_bytes(capacity)`) where `plan.planes` is more than 1.
    """
    args = (dst, row_bytes, src, m_stride, k_stride, m_valid, k_valid, first, words, plane_bytes)
    f.call(emit_pack(f.module, plan, "a", order), VOID, [_i64(arg) for arg in args])


def pack_b(
    f: Function,
    plan: DotPlan,
    order: Order,
    dst: V,
    panel_bytes: Size,
    src: V,
    k_stride: Size,
    n_stride: Size,
    k_valid: Size,
    n_valid: Size,
    words: Size,
    *,
    first: Size = 0,
    plane_bytes: Size = 0,
) -> None:
    """Pack B: K words `first` to `first + words` of all panels, zero outside the valid extents.

    Args:
        f: where the call goes.
        plan: the dot.
        order: `"mn"` if `n_stride` is one element (row-major B), `"k"` if `k_stride` is (transposed B), else `"any"`.
        dst: the packed buffer.
        panel_bytes: stride of panels, `plan.b_panel_bytes(capacity)`.
        src, k_stride, n_stride: element (0, 0) of this piece of the source and its byte strides.
        k_valid, n_valid: K elements and columns of the piece that exist (0 or less: none).
        words: K words to write, for instance `plan.steps(k)`.
        first: K word of the buffer where the piece goes.
        plane_bytes: distance of the planes (`plan.b_plane_bytes(capacity)`) where `plan.planes` is more than 1.
    """
    args = (dst, panel_bytes, src, n_stride, k_stride, n_valid, k_valid, first, words, plane_bytes)
    f.call(emit_pack(f.module, plan, "b", order), VOID, [_i64(arg) for arg in args])


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
    """
    args = [acc, _i64(acc_stride), a, _i64(a_stride), b, _i64(panel_bytes), _i64(first), _i64(words), _i1(fresh)]
    if plan.is_amx:
        name = emit_amx_dot(f.module, plan)
        args += [_i64(a_plane_bytes), _i64(b_plane_bytes)]
    else:
        name = emit_dot(f.module, plan)
    f.call(name, VOID, args)


def dot_strided(
    f: Function,
    plan: DotPlan,
    acc: V,
    acc_stride: Size,
    a: V,
    a_stride: Size,
    b: V,
    b_stride: Size,
    words: Size,
    fresh: V | bool,
) -> None:
    """As `dot`, with B row-major in memory (row stride `b_stride`, unit N stride), without packing.

    Faster than packing for one dot of up to about 32 rows (measured on Zen 5: 1.4x at 16 rows, 2x at 1 to 4), equal at
    64, slower when packed panels are used again.

    Raises:
        InternalError: not `plan.b_in_place`.
    """
    if not plan.b_in_place:
        raise InternalError(f"the plan {plan.name} needs packed B")
    args = [acc, _i64(acc_stride), a, _i64(a_stride), b, _i64(b_stride), _i64(0), _i64(words), _i1(fresh)]
    f.call(emit_dot(f.module, plan, b_in_place=True), VOID, args)
