"""Philox against an implementation in plain integers, and the distributions drawn from it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import run

pytestmark = pytest.mark.usefixtures("backend")

N = 256


def philox_4x32(counter: tuple[int, ...], key: tuple[int, int], rounds: int = 10) -> tuple[int, ...]:
    c, (k0, k1), mask = list(counter), key, 0xFFFFFFFF
    for _ in range(rounds):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & mask, (a >> 32) ^ c[3] ^ k1, a & mask]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return tuple(c)


def philox_4x64(counter: tuple[int, ...], key: tuple[int, int], rounds: int = 10) -> tuple[int, ...]:
    c, (k0, k1), mask = list(counter), key, 2**64 - 1
    for _ in range(rounds):
        a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(b >> 64) ^ c[1] ^ k0, b & mask, (a >> 64) ^ c[3] ^ k1, a & mask]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return tuple(c)


def test_the_plain_implementation_gives_the_published_vectors() -> None:
    # Random123's known-answer tests for philox4x32_10
    assert philox_4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    ones = 0xFFFFFFFF
    assert philox_4x32((ones,) * 4, (ones, ones)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


def randint_kernel(out, seed, first, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, first + i)
    tl.store(out + i, a)
    tl.store(out + N + i, b)
    tl.store(out + 2 * N + i, c)
    tl.store(out + 3 * N + i, d)
    tl.store(out + 4 * N + i, tl.randint(seed, first + i))


@pytest.mark.parametrize("seed", [0, 42, -3, 2**40 + 5])
@pytest.mark.parametrize("first", [0, 1000, 2**33 + 7])
def test_randint_is_philox_of_offset_and_seed(seed: int, first: int) -> None:
    out = np.zeros((5, N), np.uint32)
    run(randint_kernel, out, seed, first, N=N)
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    wanted = [philox_4x32(((first + i) & 0xFFFFFFFF, (first + i) >> 32, 0, 0), key) for i in range(N)]
    np.testing.assert_array_equal(out[:4].T, np.array(wanted, np.uint32))
    np.testing.assert_array_equal(out[4], out[0])


def philox64_kernel(out, seed, N: tl.constexpr):
    i = tl.arange(0, N).to(tl.uint64)
    a, b, c, d = tl.philox(seed, i, i * 3, i + 7, i * i)
    tl.store(out + tl.arange(0, N), a)
    tl.store(out + N + tl.arange(0, N), b)
    tl.store(out + 2 * N + tl.arange(0, N), c)
    tl.store(out + 3 * N + tl.arange(0, N), d)


def test_philox_of_64_bit_counters() -> None:
    out = np.zeros((4, 16), np.uint64)
    run(philox64_kernel, out, 12345, N=16)
    wanted = [philox_4x64((i, 3 * i, i + 7, i * i), (12345, 0)) for i in range(16)]
    np.testing.assert_array_equal(out.T, np.array(wanted, np.uint64))


def uniform_kernel(uniform, normal, four, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(uniform + i, tl.rand(seed, i))
    tl.store(normal + i, tl.randn(seed, i))
    a, b, c, d = tl.randn4x(seed, i)
    tl.store(four + i, a)
    tl.store(four + N + i, b)
    tl.store(four + 2 * N + i, c)
    tl.store(four + 3 * N + i, d)


def test_rand_maps_words_to_the_unit_interval() -> None:
    n = 4096
    uniform, normal, four = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros((4, n), np.float32)
    run(uniform_kernel, uniform, normal, four, 7, N=n)
    words = np.array([philox_4x32((i, 0, 0, 0), (7, 0))[0] for i in range(n)], np.uint32).view(np.int32)
    folded = np.where(words < 0, ~words, words)
    np.testing.assert_array_equal(uniform, folded.astype(np.float32) * np.float32(4.6566127342e-10))
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    np.testing.assert_array_equal(normal, four[0])
    assert np.all(np.abs(four.mean(axis=1)) < 0.06) and np.all(np.abs(four.std(axis=1) - 1) < 0.05)
    assert np.all(np.abs(np.corrcoef(four) - np.eye(4)) < 0.06)
