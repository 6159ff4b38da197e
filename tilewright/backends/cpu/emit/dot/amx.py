"""Tile products on AMX with fixed tile registers: bf16, int8, and f32 or f16 as pairs of bf16.

    configure            LDTILECFG once per range of programs: 8 tiles of 16 rows x 64 bytes
    for rows 32, for panel of 32 columns:
        T0..T3 = C 2x2, or zero
        for 64 bytes of K:  T4, T5 = A;  T6, T7 = B;  4 TDP
        C = T0..T3
    release              TILERELEASE

Tiles of A are read where they lie in row-major memory; tiles of B are 16 words of a panel. A split operand has
three planes (`pack`): first parts are multiplied with infinities and NaN, rests without (16 TDP per 12 tile loads).
Method: Intel 64 Architecture Software Developer's Manual, volume 1, chapter 18 (tile registers, configuration).
"""

from __future__ import annotations

from tilewright.backends.cpu.plan.dot import DotPlan
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I1, I8, I64, PTR, VOID, V, const

_PARAMS = (PTR, I64, PTR, I64, PTR, I64, I64, I64, I1, I64, I64)
_ATTRS = "nounwind noinline"
_C, _A, _B = (0, 1, 2, 3), (4, 5), (6, 7)
_INSTRUCTION = {"amx-bf16": "tdpbf16ps", "amx-int8": "tdpbssd", "amx-split": "tdpbf16ps"}
_FIRST, _REST, _FINITE = range(3)  # planes of an operand
# Planes of A and of B that are multiplied, in an order that keeps one of the two in its tiles.
_SPLIT_PRODUCTS = ((_FINITE, _REST), (_REST, _REST), (_REST, _FINITE), (_FIRST, _FIRST))
_WORDS = 16  # of a tile row: 64 bytes


def configure(f: Function) -> None:
    """Emit the tile configuration: before the first AMX dot of a function that a thread runs."""
    # Palette 1, then 16-bit row sizes in bytes from offset 16 and 8-bit row counts from offset 48.
    config = [1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8]
    table = f.module.constant("dot.amx.config", I8, [const(I8, byte) for byte in config])
    f.call("llvm.x86.ldtilecfg", VOID, (table,))


def release(f: Function) -> None:
    """Emit the release of the tile registers: after the last AMX dot, on every way out."""
    f.call("llvm.x86.tilerelease", VOID, ())


def emit_amx_dot(module: Module, plan: DotPlan) -> str:
    """Define (once) the product of a whole tile; gives its name. See `call.dot` for the parameters."""
    name = f"dot.{plan.name}"
    if module.has(name):
        return name
    f = module.function(name, VOID, _PARAMS, attrs=_ATTRS)
    pairs, rest = divmod(plan.acc_rows // 16, 2)
    if pairs:
        with f.loop(0, pairs, unroll=False) as loop:
            _row_block(f, plan, f.mul(loop.index, 32), 2)
    if rest:
        _row_block(f, plan, const(I64, 32 * pairs), 1)
    f.ret()
    return name


def _row_block(f: Function, plan: DotPlan, row: V, height: int) -> None:
    """All panels of `16 * height` rows from `row`."""
    acc, acc_stride, a, a_stride, b, panel_bytes, first, words, fresh, a_plane, b_plane = f.args
    c_row = f.gep(acc, f.mul(row, acc_stride))
    a_row = f.gep(a, f.mul(row, a_stride))

    def call(panel: V, width: int) -> None:
        kernel = _micro_kernel(f.module, plan, height, width)
        b_panel = f.gep(f.gep(b, f.mul(panel, panel_bytes)), f.mul(first, 64 * width))
        c = f.gep(c_row, f.mul(panel, 64 * plan.nv))
        zero = const(I64, 0)
        f.call(kernel, VOID, (c, acc_stride, a_row, a_stride, b_panel, zero, zero, words, fresh, a_plane, b_plane))

    if plan.panels:
        with f.loop(0, plan.panels, unroll=False) as loop:
            call(loop.index, plan.nv)
    if plan.tail_vectors:
        call(const(I64, plan.panels), plan.tail_vectors)


def _micro_kernel(module: Module, plan: DotPlan, height: int, width: int) -> str:
    """Define (once) the kernel of `height` x `width` C tiles; gives its name."""
    name = f"dot.micro.{plan.family.replace('-', '')}.{height}x{width}"
    if module.has(name):
        return name
    f = module.function(name, VOID, _PARAMS, attrs=_ATTRS)
    c, c_stride, a, a_stride, b, _, _, words, fresh, a_plane, b_plane = f.args
    tiles = [(i, j, _C[2 * i + j]) for i in range(height) for j in range(width)]

    def at(i: int, j: int) -> V:
        return f.gep(f.gep(c, f.mul(c_stride, 16 * i)), 64 * j)

    f.if_else(
        fresh,
        lambda: [_tile(f, "tilezero", tile) for _, _, tile in tiles] and None,
        lambda: [_tile(f, "tileloadd64", tile, at(i, j), c_stride) for i, j, tile in tiles] and None,
    )
    b_stride = const(I64, 64 * width)
    with f.loop(0, words, _WORDS, unroll=False) as loop:
        before: tuple[int, int] | None = None
        for plane_a, plane_b in _SPLIT_PRODUCTS if plan.planes > 1 else [(_FIRST, _FIRST)]:
            if before is None or before[0] != plane_a:
                for i in range(height):
                    tile_a = f.gep(f.gep(a, f.mul(a_stride, 16 * i)), f.mul(loop.index, 4))
                    _tile(f, "tileloadd64", _A[i], f.gep(tile_a, f.mul(a_plane, plane_a)), a_stride)
            if before is None or before[1] != plane_b:
                for j in range(width):
                    tile_b = f.gep(f.gep(b, f.mul(loop.index, b_stride)), 64 * j)
                    _tile(f, "tileloadd64", _B[j], f.gep(tile_b, f.mul(b_plane, plane_b)), b_stride)
            before = plane_a, plane_b
            for i, j, tile in tiles:
                numbers = (const(I8, tile), const(I8, _A[i]), const(I8, _B[j]))
                f.call(f"llvm.x86.{_INSTRUCTION[plan.family]}", VOID, numbers)
    for i, j, tile in tiles:
        _tile(f, "tilestored64", tile, at(i, j), c_stride)
    f.ret()
    return name


def _tile(f: Function, name: str, tile: int, *operands: V) -> V:
    return f.call(f"llvm.x86.{name}", VOID, (const(I8, tile), *operands))
