"""Tile instructions in software, so that AMX code is tested on machines without AMX.

`soften` replaces the intrinsics in a module's text by calls of functions over eight 1 KB buffers, written in LLVM IR.
One thread only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import BF16, F32, I8, I32, I64, PTR, VOID, V, const, zero

_NAMES = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps", "tdpbssd")


def soften(text: str, machine: CpuFeatures) -> str:
    """The module with every tile instruction done in software, for `machine`."""
    lines = [line for line in text.splitlines() if not (line.startswith("declare") and _uses_tiles(line))]
    text = "\n".join(lines)
    for name in _NAMES:
        text = text.replace(f"@llvm.x86.{name}(", f"@soft.{name}(")
    return text + "\n" + _definitions(machine)


def _uses_tiles(line: str) -> bool:
    return any(f"@llvm.x86.{name}(" in line for name in _NAMES)


def _definitions(machine: CpuFeatures) -> str:
    module = Module(machine)
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
    """C[m][n] += sum over words k and parts p of A[m][k][p] * B[k][n][p].

    TDPBF16PS keeps one fused sum for each part, takes subnormal numbers as zero, and adds the two sums before C (Intel
    64 Architecture Software Developer's Manual, volume 2, TDPBF16PS).
    """
    f = module.function(f"soft.{name}", VOID, (I8, I8, I8))
    c, a, b = (tile(f, number) for number in f.args)
    acc_t, part_t = (F32, BF16) if unit == 2 else (I32, I8)

    def part(base: V, row: V, column: V, p: int) -> V:
        word = f.add(f.mul(row, 16), column)
        value = f.load(part_t, f.gep(base, f.add(f.mul(word, 4), p * part_t.bytes)))
        return _flushed(f, f.cast("fpext", value, F32)) if unit == 2 else f.cast("sext", value, I32)

    def added(x: V, y: V) -> V:
        return _flushed(f, f.fadd(_flushed(f, x), _flushed(f, y))) if unit == 2 else f.add(x, y)

    with f.loop(0, 16) as m, f.loop(0, 16) as n:
        at = f.gep(c, f.add(f.mul(m.index, 64), f.mul(n.index, 4)))
        with f.loop(0, 16, init=[zero(acc_t)] * unit) as k:
            sums = []
            for p, total in enumerate(k.values):
                left, right = part(a, m.index, k.index, p), part(b, k.index, n.index, p)
                product = f.fma(left, right, total) if unit == 2 else f.add(total, f.mul(left, right))
                sums.append(_flushed(f, product) if unit == 2 else product)
            k.next(*sums)
        f.store(added(f.load(acc_t, at), functools.reduce(added, k.results)), at)
    f.ret()


def _flushed(f: Function, value: V) -> V:
    """f32 with subnormal numbers as zero."""
    return f.select(f.fcmp("olt", f.intrinsic("fabs", value), const(F32, 2.0**-126)), zero(F32), value)
