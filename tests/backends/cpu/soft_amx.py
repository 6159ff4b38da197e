"""Tile instructions in software, so that AMX code is tested on machines without AMX.

`soften` replaces the intrinsics in a module's text by calls of functions over eight 1 KB buffers, written in LLVM IR.
One thread only.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.llvm.features import host
from tilewright.backends.llvm.function import Function
from tilewright.backends.llvm.module import Module
from tilewright.backends.llvm.types import BF16, F32, I8, I32, I64, PTR, VOID, V, zero

_NAMES = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps", "tdpbssd")


def soften(text: str) -> str:
    """The module with every tile instruction done in software."""
    lines = [line for line in text.splitlines() if not (line.startswith("declare") and _uses_tiles(line))]
    text = "\n".join(lines)
    for name in _NAMES:
        text = text.replace(f"@llvm.x86.{name}(", f"@soft.{name}(")
    return text + "\n" + _definitions()


def _uses_tiles(line: str) -> bool:
    return any(f"@llvm.x86.{name}(" in line for name in _NAMES)


def _definitions() -> str:
    module = Module(host())
    tiles = module.variable("soft.tiles", I8, 8 * 1024)

    def tile(f: Function, number: V) -> V:
        return f.gep(tiles, f.mul(f.cast("zext", number, I64), 1024))

    configure = module.function("soft.ldtilecfg", VOID, (PTR,))
    # A kernel that runs before configuration would find garbage, as on the hardware it would trap.
    configure.memset(tiles, 0x7F, 8 * 1024)
    configure.ret()
    module.function("soft.tilerelease").ret()
    f = module.function("soft.tilezero", VOID, (I8,))
    f.memset(tile(f, f.args[0]), 0, 1024)
    f.ret()
    for name, is_load in (("tileloadd64", True), ("tilestored64", False)):
        f = module.function(f"soft.{name}", VOID, (I8, PTR, I64))
        registers = tile(f, f.args[0])
        with f.loop(0, 16) as row:
            here, there = f.gep(registers, f.mul(row.index, 64)), f.gep(f.args[1], f.mul(row.index, f.args[2]))
            f.memcpy(*((here, there) if is_load else (there, here)), 64)
        f.ret()
    _product(module, tile, "tdpbf16ps", 2)
    _product(module, tile, "tdpbssd", 4)
    return module.render()


def _product(module: Module, tile: Callable[[Function, V], V], name: str, unit: int) -> None:
    """C[m][n] += sum over words k and parts p of A[m][k][p] * B[k][n][p]."""
    f = module.function(f"soft.{name}", VOID, (I8, I8, I8))
    c, a, b = (tile(f, number) for number in f.args)
    acc_t, part_t = (F32, BF16) if unit == 2 else (I32, I8)

    def part(base: V, row: V, column: V, p: int) -> V:
        word = f.add(f.mul(row, 16), column)
        value = f.load(part_t, f.gep(base, f.add(f.mul(word, 4), p * part_t.bytes)))
        return f.cast("fpext" if unit == 2 else "sext", value, acc_t)

    with f.loop(0, 16) as m, f.loop(0, 16) as n:
        at = f.gep(c, f.add(f.mul(m.index, 64), f.mul(n.index, 4)))
        with f.loop(0, 16, init=[zero(acc_t)]) as k:
            total = k.values[0]
            for p in range(unit):
                left, right = part(a, m.index, k.index, p), part(b, k.index, n.index, p)
                product = f.fmul(left, right) if unit == 2 else f.mul(left, right)
                total = f.fadd(total, product) if unit == 2 else f.add(total, product)
            k.next(total)
        old = f.load(acc_t, at)
        f.store(f.fadd(old, k.results[0]) if unit == 2 else f.add(old, k.results[0]), at)
    f.ret()
