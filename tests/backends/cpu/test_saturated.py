"""Vectors of floats become integers by one instruction for many: what does not fit is the nearest that does, NaN is 0."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl

AT_THE_ENDS = [
    *(0.0, -0.0, 0.5, -0.5, 1.9, -1.9, -0.99, 127.9, 128, -128.9, -129, 255.9, 256, 32767.5, 32768, -32768.9, -32769),
    *(65535.9, 65536, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 4294967040.0, 4294967296.0),
    *(9.2e18, 9.3e18, -9.2e18, -9.3e18, 1.8e19, 1.9e19, 1e30, -1e30, np.inf, -np.inf, np.nan),
]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@tilewright.jit
def converted(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n, 0.0).to(out.dtype.element_ty), i < n)


def nearest(value: float, integer: type) -> int:
    info = np.iinfo(integer)
    if np.isnan(value):
        return 0
    return info.max if value >= 2.0**info.bits else min(max(int(max(value, -(2.0**80))), info.min), info.max)


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("number", [np.float16, np.float32, np.float64])
def test_integers_of_floats(number: type, integer: type) -> None:
    with np.errstate(over="ignore"):
        some = np.random.default_rng(0).standard_normal(200 - len(AT_THE_ENDS)) * 1000
        x = np.concatenate([np.array(AT_THE_ENDS), some]).astype(number)
    out = np.zeros(x.size, integer)
    converted[(1,)](x, out, x.size, 256)
    assert out.tolist() == [nearest(float(value), integer) for value in x]
