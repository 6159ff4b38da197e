"""Square transposes of words in vector registers, by two-operand shuffles that are one instruction each.

Splitting the concatenation of two rows into its even and odd lanes, `log2` times, transposes. It is done first inside
128-bit lanes (SHUFPS, UZP), then between them (VSHUFF32X4, VPERM2F128), so no stage needs an index register.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I64, PTR, VOID, T, V

_Unzip = Callable[[V, V, int], V]


def emit_transpose(module: Module, row: T) -> str:
    """Define (once) `transpose(src, dst, dst_stride)`: a square of dense rows of type `row` to rows `dst_stride` bytes
    apart. All of it is read before any of it is written. Gives its name.
    """
    name = f"dot.transpose.{row.suffix}"
    if module.has(name):
        return name
    f = module.function(name, VOID, (PTR, PTR, I64), attrs="nounwind noinline")
    src, dst, stride = f.args
    rows = [f.load(row, f.gep(src, i * row.bytes)) for i in range(row.lanes)]
    for i, column in enumerate(transpose(f, rows)):
        f.store(column, f.gep(dst, f.mul(stride, i)))
    f.ret()
    return name


def transpose(f: Function, rows: list[V]) -> list[V]:
    """Transpose `n` vectors of `n` lanes, `n` a power of two and a vector at least 128 bits; gives the columns."""
    n = len(rows)
    per_lane = 128 // rows[0].type.bits
    if rows[0].type.lanes != n or n < per_lane:
        raise ValueError(f"cannot transpose {n} vectors of type {rows[0].type}")

    def inside(a: V, b: V, odd: int) -> V:
        picks = range(odd, per_lane, 2)
        return f.shuffle(a, b, [side + lane + i for lane in range(0, n, per_lane) for side in (0, n) for i in picks])

    def between(a: V, b: V, odd: int) -> V:
        lanes = [*range(odd * per_lane, n, 2 * per_lane)]
        return f.shuffle(a, b, [side + lane + i for side in (0, n) for lane in lanes for i in range(per_lane)])

    groups = [_columns(rows[g : g + per_lane], inside) for g in range(0, n, per_lane)]
    blocks = [_columns([group[i] for group in groups], between) for i in range(per_lane)]
    return [blocks[column % per_lane][column // per_lane] for column in range(n)]


def _columns(rows: list[V], unzip: _Unzip) -> list[V]:
    if len(rows) == 1:
        return rows
    pairs = [*zip(rows[::2], rows[1::2], strict=True)]
    even = _columns([unzip(a, b, 0) for a, b in pairs], unzip)
    odd = _columns([unzip(a, b, 1) for a, b in pairs], unzip)
    return [column for both in zip(even, odd, strict=True) for column in both]
