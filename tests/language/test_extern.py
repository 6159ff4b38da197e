"""`tl.core.extern_elementwise`: symbols of libdevice on every target, and what is no function of a CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.errors import CompilationError
from tilewright.language.extra import libdevice
from tilewright.language.extra.symbols import functions_by_symbol

pytestmark = pytest.mark.usefixtures("backend")
N = 16


@tl.core.extern
def called(symbol, result, *args, _semantic=None):
    table = {tuple(arg.dtype for arg in args): (getattr(symbol, "value", symbol), result)}
    return tl.core.extern_elementwise("libdevice", "", list(args), table, is_pure=True, _semantic=_semantic)


def kernel(x, out, flags, counts, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    total = called("__nv_tanhf", tl.float32, value) + called("__nv_lgammaf", tl.float32, tl.abs(value) + 1)
    tl.store(out + i, total + called("__nv_powf", tl.float32, tl.abs(value), tl.full((), 0.5, tl.float32)))
    tl.store(flags + i, called("__nv_isnanf", tl.int32, value - value) != 0)
    bits = called("__nv_float_as_uint", tl.uint32, value)
    tl.store(counts + i, called("__nv_popc", tl.int32, bits.to(tl.int32, bitcast=True)))


def test_symbols_of_libdevice() -> None:
    x = np.float32([0.25 * i - 2 for i in range(N - 1)] + [np.inf])
    out, flags, counts = np.zeros(N, np.float32), np.ones(N, np.int32), np.zeros(N, np.int32)
    run(kernel, x, out, flags, counts, N=N)
    want = [math.tanh(v) + math.lgamma(abs(v) + 1) + abs(v) ** 0.5 for v in x[:-1]]
    np.testing.assert_allclose(out, [*want, np.inf], rtol=1e-5)
    assert flags.tolist() == [0] * (N - 1) + [1]
    assert counts.tolist() == [bin(int(bits)).count("1") for bits in x.view(np.uint32)]


def test_every_function_of_the_table_has_its_symbols() -> None:
    known = functions_by_symbol()
    assert set(known.values()) == set(libdevice.FUNCTIONS) - set(libdevice.REFUSED)
    assert (known["__nv_j0"], known["__nv_dadd_rn"], known["__nv_llabs"]) == ("j0", "add_rn", "abs")


def unknown(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), called("mine", tl.float32, tl.load(x + tl.arange(0, N))))


def wrong_types(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), called("__nv_tanh", tl.float64, tl.load(x + tl.arange(0, N)).to(tl.int32)))


@pytest.mark.parametrize(
    ("fn", "message"), [(unknown, "external function mine is not available on cpu"), (wrong_types, "tanh")]
)
def test_mistakes(fn: object, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        build(fn, np.zeros(4, np.float32), N=4)
