"""Addresses and masks made of quotients, remainders and bits of an index: the elements, and that nothing is gathered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

B, ITERATIONS = 128, 3
_TYPES = {"x": "*fp32", "out": "*fp32", "n": "i32"}


def quotient(i: Any) -> Any:
    return i // 4


def remainder(i: Any) -> Any:
    return i % 16


def low_bits(i: Any) -> Any:
    return i & 7


def high_bits(i: Any) -> Any:
    return i & -8


def shifted(i: Any) -> Any:
    return (i >> 3) + 2 * (i >> 5)


def partner(i: Any) -> Any:
    return i ^ 1


def far_partner(i: Any) -> Any:
    return i ^ 37


def pairs_of_pairs(i: Any) -> Any:
    return (i % 2) * 2 + (i // 2) % 2 + i - i % 4


def of_a_product(i: Any) -> Any:
    return (3 * i) // 2


def turned_square(i: Any) -> Any:
    return i // 64 * 64 + i % 8 * 8 + i // 8 % 8


def odd_divisor(i: Any) -> Any:
    return i // 6 + i % 6


def of_a_partner(i: Any) -> Any:
    return (i ^ 5) // 2 + (i ^ 12) % 8


def displaced(i: Any) -> Any:
    return (i + 3) // 4 + (i + 8) % 16


PLACES = [
    quotient, remainder, low_bits, high_bits, shifted, partner, far_partner, pairs_of_pairs, of_a_product,
    turned_square, odd_divisor, of_a_partner, displaced,
]  # fmt: skip


def kernel_of(place: Callable[[Any], Any]) -> Any:
    """A kernel that reads `x` at `place` of every index, masked by what it reads, in each iteration of a loop."""
    where = tilewright.jit(place)

    @tilewright.jit
    def kernel(x, out, n, B: tl.constexpr, ITERATIONS: tl.constexpr):
        for iteration in range(ITERATIONS):
            i = (tl.program_id(0) * ITERATIONS + iteration) * B + tl.arange(0, B)
            at = where(i)
            tl.store(out + i, tl.load(x + at, at < n, -1.0))
        r, c = tl.arange(0, 4)[:, None], tl.arange(0, B // 4)[None, :]
        e = (tl.num_programs(0) * ITERATIONS + tl.program_id(0)) * B + r * (B // 4) + c
        tl.store(out + e, tl.load(x + where(r * (B // 4) + c)))

    return kernel


@pytest.mark.parametrize("family", ["avx512", "avx2"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_places(place: Callable[[Any], Any], family: str) -> None:
    made = Compiled(built_ir(kernel_of(place), _TYPES, B=B, ITERATIONS=ITERATIONS), isa=FAMILIES[family].isa)
    x, out = np.arange(2000, dtype=np.float32), np.zeros(8 * B, np.float32)
    at = place(np.arange(6 * B))
    for n in (2000, 301, 16, 5, 0):
        made((2,), x, out, n)
        np.testing.assert_array_equal(out[: 6 * B], np.where(at < n, at, -1), err_msg=f"{n}")
        np.testing.assert_array_equal(out[6 * B :], np.tile(place(np.arange(B)), 2))


@tilewright.jit
def below_zero(x, out, n, B: tl.constexpr):
    """Quotients and remainders go towards zero, as in C; shifts and bits go down."""
    i = tl.arange(0, B) - n
    tl.store(out + tl.arange(0, B), tl.load(x + i // 4 + 100) + 1000 * tl.load(x + i % 4 + 100))
    tl.store(out + B + tl.arange(0, B), tl.load(x + (i >> 2) + 100) + 1000 * tl.load(x + (i & 3) + 100))


def test_indices_below_zero() -> None:
    made = Compiled(built_ir(below_zero, _TYPES, B=B))
    x, out = np.arange(-100, 100, dtype=np.float32), np.zeros(2 * B, np.float32)
    for n in (64, 61, 0):
        made((1,), x, out, n)
        i = np.arange(B) - n
        towards_zero = np.sign(i) * (abs(i) // 4)
        np.testing.assert_array_equal(out[:B], towards_zero + 1000 * (i - 4 * towards_zero))
        np.testing.assert_array_equal(out[B:], (i >> 2) + 1000 * (i & 3))


@tilewright.jit
def pairs_exchanged(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + (i ^ 1)) + tl.load(x + i // 2) + tl.load(x + i % 64))


def test_nothing_is_gathered() -> None:
    text = Compiled(built_ir(pairs_exchanged, _TYPES, B=B), isa=FAMILIES["avx512"].isa).program.llvm
    assert "gather" not in text
