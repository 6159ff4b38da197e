"""Every name of the language on the GPU, and what only the door through `@jit` reaches: host descriptors, special
functions of libdevice, dependent launches, clocks.

The tests of ops, language and frontend that run kernels run on the GPU as well, through the fixture `backend`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import language_kernels
from tests.gpu.language_case import CASES, check
from tests.language.kernel_runner import run, running_on
from tilewright.backends.nvidia import backend
from tilewright.language.extra import libdevice

assert language_kernels.N  # importing the file fills CASES
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*view is deprecated")]
Array = np.ndarray[Any, Any]


def _needs(capability: int) -> None:
    found = int(backend.target().arch)
    if found < capability:
        pytest.skip(f"needs compute capability {capability / 10}, this GPU has {found / 10}")


@pytest.mark.sanitize
@pytest.mark.parametrize("name", CASES)
def test_names_of_the_language(name: str) -> None:
    _needs(CASES[name].least)
    check(CASES[name], "cuda")


# --- libdevice: what no other back end computes --------------------------------------------------------------------


@tw.jit
def one_operand(x, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, F(tl.load(x + i)))


@tw.jit
def order_and_operand(order, x, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, F(tl.load(order + i), tl.load(x + i)))


def _mp(name: str, *before: float) -> Callable[[float], float]:
    """A function of mpmath, which torch brings along."""
    function = getattr(pytest.importorskip("mpmath"), name)
    return lambda x: float(function(*before, x))


SPECIAL: dict[str, tuple[Callable[[float], float], float, float]] = {
    "erfc": (math.erfc, -3, 3), "erfcx": (lambda x: math.exp(x * x) * math.erfc(x), -2, 4),
    "lgamma": (math.lgamma, 3, 9), "tgamma": (math.gamma, 0.5, 9),
    "normcdf": (lambda x: math.erfc(-x / math.sqrt(2)) / 2, -3, 3),
    "erfinv": (lambda x: _mp("erfinv")(x), -0.9, 0.9), "erfcinv": (lambda x: _mp("erfinv")(1 - x), 0.1, 0.9),
    "normcdfinv": (lambda x: math.sqrt(2) * _mp("erfinv")(2 * x - 1), 0.55, 0.95),
    "j0": (lambda x: _mp("besselj", 0)(x), 0.1, 2), "j1": (lambda x: _mp("besselj", 1)(x), 0.1, 3),
    "y0": (lambda x: _mp("bessely", 0)(x), 1, 3), "y1": (lambda x: _mp("bessely", 1)(x), 0.1, 2),
    "cyl_bessel_i0": (lambda x: _mp("besseli", 0)(x), -4, 4), "cyl_bessel_i1": (lambda x: _mp("besseli", 1)(x), 0.1, 4),
    "rcp64h": (lambda x: 1 / x, 0.1, 9),
}  # fmt: skip
ORDERED = {"jn": "besselj", "yn": "bessely"}


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name: str, kind: str) -> None:
    exact, low, high = SPECIAL[name]
    if name == "rcp64h" and kind == "f4":
        pytest.skip("rcp64h takes float64 only")
    x = np.linspace(low, high, 64).astype(kind)
    out = np.zeros(64, kind)
    with running_on("cuda"):
        run(one_operand, x, out, F=libdevice.FUNCTIONS[name], N=64)
    tolerance = 1e-5 if name == "rcp64h" else {"f4": 2e-6, "f8": 1e-12}[kind]
    np.testing.assert_allclose(out, [exact(float(v)) for v in x], rtol=tolerance, atol=tolerance / 4)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("name", ORDERED)
def test_bessel_functions_of_higher_order(name: str, kind: str) -> None:
    order, x = np.arange(64, dtype=np.int32) % 4, np.linspace(1, 6, 64).astype(kind)
    out = np.zeros(64, kind)
    with running_on("cuda"):
        run(order_and_operand, order, x, out, F=libdevice.FUNCTIONS[name], N=64)
    want = [_mp(ORDERED[name], int(n))(float(v)) for n, v in zip(order, x, strict=True)]
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=2e-6 if kind == "f4" else 1e-10)


def test_what_the_cpu_refuses_is_among_the_special_functions() -> None:
    assert set(libdevice.REFUSED) <= {*SPECIAL, *ORDERED}


# --- through the front door -----------------------------------------------------------------------------------------


@tw.jit
def scaled_copy(source, result, factor, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    result.store([row, column], source.load([row, column]) * factor)


def test_descriptors_made_by_the_host() -> None:
    torch = pytest.importorskip("torch")
    from tilewright.tools.tensor_descriptor import TensorDescriptor

    x = torch.randn(40, 72, device="cuda")
    out = torch.zeros_like(x)
    blocks = [TensorDescriptor.from_tensor(tensor, [16, 32]) for tensor in (x, out)]
    scaled_copy[(3, 3)](*blocks, 3.0, M=16, N=32)
    torch.testing.assert_close(out, x * 3)


@tw.jit
def add_one(x, N: tl.constexpr, CUDA: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    if CUDA:
        tl.extra.cuda.gdc_wait()
    value = tl.load(x + i) + 1
    if CUDA:
        tl.extra.cuda.gdc_launch_dependents()
    tl.store(x + i, value)


def test_dependent_launches_wait_for_each_other() -> None:
    _needs(90)
    torch = pytest.importorskip("torch")
    x = torch.zeros(1 << 16, device="cuda")
    for _ in range(20):
        add_one[(64,)](x, N=1024, CUDA=True, launch_pdl=True)
    assert (x == 20).all()


@tw.jit
def slow_flag(flag, out):
    if tl.program_id(0) == 1:
        start = tl.extra.cuda.globaltimer()
        while tl.extra.cuda.globaltimer() - start < 200_000:
            pass
        tl.atomic_store(flag, 1)
    else:
        start = tl.extra.cuda.globaltimer()
        tl.store(out, tl.atomic_poll(flag, 1, timeout_ns=1_000_000_000).to(tl.int32))
        tl.store(out + 1, tl.atomic_poll(flag + 1, 1, timeout_ns=50_000).to(tl.int32))
        tl.store(out + 2, (tl.extra.cuda.globaltimer() - start > 50_000).to(tl.int32))


def test_polls_watch_the_clock() -> None:
    flag, out = np.zeros(2, np.int32), np.full(3, 7, np.int32)
    with running_on("cuda"):
        run(slow_flag, flag, out, grid=(2,))
    assert out.tolist() == [1, 0, 1]
