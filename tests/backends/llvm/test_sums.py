"""Long chains of integer arithmetic: same values, with the constants carried to the end."""

from __future__ import annotations

import ctypes
import random
import re

import pytest

from tilewright.backends.llvm.codegen import compile_object, load
from tilewright.backends.llvm.features import host
from tilewright.backends.llvm.module import Module
from tilewright.backends.llvm.sums import SHORT
from tilewright.backends.llvm.types import I64, V


def _link(f, kind: int, x: V, n: V, number: int) -> V:
    if kind < 4:
        return (f.add, f.sub)[kind & 1](*((x, n) if kind < 2 else (n, x)))
    if kind < 6:
        return f.add(x, number) if kind == 4 else f.sub(number, x)
    return f.mul(x, number) if kind == 6 else f.shl(x, number & 3) if kind == 7 else f.xor(x, n)


def _chain(f, x: V, n: V, rng: random.Random, length: int) -> V:
    """A chain of every form that sums are known of, and of one that they are not."""
    for _ in range(length):
        kind, number = rng.randrange(9), rng.choice((-7, -1, 2, 3, 1 << 40))
        x = _link(f, kind, x, n, number)
    return x


def _python(x: int, n: int, rng: random.Random, length: int) -> int:
    for _ in range(length):
        kind, number = rng.randrange(9), rng.choice((-7, -1, 2, 3, 1 << 40))
        x = (x + n, x - n, n + x, n - x, x + number, number - x, x * number, x << (number & 3), x ^ n)[kind]
        x = (x + (1 << 63)) % (1 << 64) - (1 << 63)
    return x


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_keeps_its_value(seed: int) -> None:
    module = Module(host())
    f = module.function("chain", I64, (I64, I64), linkage="", attrs="")
    f.ret(_chain(f, *f.args, random.Random(seed), 300))
    library = load(compile_object(module.render(), host()), ["chain"])
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(library.address("chain"))
    for x, n in ((0, 0), (1, -1), (12345, 678), (-(1 << 62), 3)):
        assert run(x, n) == _python(x, n, random.Random(seed), 300)


def _text(links: int) -> str:
    module = Module(host())
    f = module.function("chain", I64, (I64, I64), linkage="", attrs="")
    x, n = f.args
    for number in range(links):
        x = f.add(f.add(f.mul(x, 3), n), number + 1)
    f.ret(x)
    return module.render()


def test_constants_stay_out_of_a_long_chain() -> None:
    """A product takes the sum without its constant, so that LLVM need not move it there."""
    lines = [re.sub(r"\s+", " ", line) for line in _text(100).splitlines()]
    constants = {line.split(" = ")[0].strip() for line in lines if re.search(r"add i64 %\w+, -?\d+", line)}
    used = [line for line in lines[3 * SHORT :] if re.search(r"(mul|add) i64 (%\w+)", line)]
    assert not any(re.search(r"i64 (%\w+)", line).group(1) in constants for line in used)


def test_a_short_chain_is_emitted_as_it_is() -> None:
    assert _text(SHORT // 3).count("add i64") == 2 * (SHORT // 3)
