"""Printing and assertions, while compiling and at run time; gather and histogram."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.errors import CompilationError
from tilewright.base.options import Options
from tilewright.ops.debug import AssertOp, PrintOp

pytestmark = pytest.mark.usefixtures("backend")


def print_kernel(x, n):
    v = tl.load(x + tl.arange(0, 4))
    tl.device_print("v", v)
    tl.device_print("pair: ", n, v[:, None].to(tl.uint32), hex=True)
    tl.device_print("", v.to(tl.float32) / 2)
    print("hello")


def test_device_print(capfd: Any, backend: str) -> None:
    x = np.array([1, -2, 3, 4], np.int32)
    module = build(print_kernel, x, 7)
    prefixes = [op.attr_values()["prefix"] for op in module.walk() if isinstance(op, PrintOp)]
    assert prefixes == [" v: ", " pair: ", ": ", " hello"]
    run(print_kernel, x, 7)
    lines = capfd.readouterr().out.splitlines()
    wanted = [
        *[f"pid (0, 0, 0) idx ({i}) v: {v}" for i, v in enumerate(x.tolist())],
        "pid (0, 0, 0) idx () pair: (operand 0) 0x00000007",
        *[f"pid (0, 0, 0) idx ({i}, 0) pair: (operand 1) 0x{v & 0xFFFFFFFF:08x}" for i, v in enumerate(x.tolist())],
        *[f"pid (0, 0, 0) idx ({i}): {v / 2:f}" for i, v in enumerate(x.tolist())],
        "hello" if backend == "interpreter" else "pid (0, 0, 0) hello",  # there `print` is Python's own
    ]
    # Threads of a GPU print in any order.
    assert sorted(lines) == sorted(wanted) if backend == "cuda" else lines == wanted


def wide_kernel(n):
    tl.device_print("i", tl.arange(0, 16))


def test_indices_are_aligned(capfd: Any) -> None:
    run(wide_kernel, 7)
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines[9] == "pid (0, 0, 0) idx ( 9) i: 9" and lines[10] == "pid (0, 0, 0) idx (10) i: 10"


def assert_kernel(x, n):
    i = tl.arange(0, 4)
    tl.device_assert(tl.load(x + i) > 0, "positive", mask=i < n)
    assert n > 0, "some"


def test_device_assert_makes_code_only_with_debug() -> None:
    x = np.array([1, 2, -3, 4], np.int32)
    assert not [op for op in build(assert_kernel, x, 4).walk() if isinstance(op, AssertOp)]
    debug = Options(debug=True, sanitize_overflow=False)
    run(assert_kernel, x, 2, options=debug)
    with pytest.raises(RuntimeError, match=r"device-side assert.*: positive"):
        run(assert_kernel, x, 3, options=debug)


def static_kernel(B: tl.constexpr):
    tl.static_print("block", B, tl.arange(0, B), sep="|")
    tl.static_assert(B >= 16, "too small")


def test_static_print_and_assert(capsys: Any) -> None:
    build(static_kernel, B=16)
    assert capsys.readouterr().out == "block|16|int32[constexpr[16]]\n"
    with pytest.raises(CompilationError) as error:
        build(static_kernel, B=8)
    assert "too small" in str(error.value)


def not_static(n):
    tl.static_assert(n > 0)


def no_ascii(n):
    tl.device_print("größe", n)


def inline(n):
    tl.inline_asm_elementwise("mov $0, $1;", "=r,r", [n], dtype=tl.int32, is_pure=True, pack=1)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (not_static, "could not be determined statically"),
        (no_ascii, "must be an ASCII string"),
        (inline, "inline assembly is not available on cpu"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError) as error:
        build(kernel, 3)
    assert message in str(error.value)


def expect_kernel(x, n):
    i = tl.arange(0, 4)
    tl.store(x + i, tl.expect_zero(tl.load(x + i), i >= n) + 1)


def test_expect_zero_is_the_identity_and_checks_with_debug() -> None:
    x, debug = np.array([5, 6, 0, 0], np.int32), Options(debug=True, sanitize_overflow=False)
    run(expect_kernel, x, 2, options=debug)
    assert x.tolist() == [6, 7, 1, 1]
    with pytest.raises(RuntimeError, match="expected zero"):
        run(expect_kernel, x, 2, options=debug)


def gather_kernel(x, index, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    r, c, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    tile = tl.load(x + r[:, None] * N + c[None, :])
    if AXIS == 0:
        at = k[:, None] * N + c[None, :]
    else:
        at = r[:, None] * K + k[None, :]
    tl.store(out + at, tl.gather(tile, tl.load(index + at), AXIS))


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_is_take_along_axis(axis: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, 8)).astype(np.float32)
    shape = (16, 8) if axis == 0 else (4, 16)
    index, out = rng.integers(0, x.shape[axis], shape).astype(np.int32), np.zeros(shape, np.float32)
    run(gather_kernel, x, index, out, M=4, N=8, K=16, AXIS=axis)
    np.testing.assert_array_equal(out, np.take_along_axis(x, index, axis))


def histogram_kernel(x, out, n, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + tl.arange(0, BINS), tl.histogram(v, BINS, mask=i < n))
    tl.store(out + BINS + tl.arange(0, BINS), v.histogram(BINS))


def test_histogram_counts_what_is_in_range() -> None:
    x = np.random.default_rng(4).integers(-4, 20, 64).astype(np.int32)
    out = np.zeros(32, np.int32)
    run(histogram_kernel, x, out, 40, N=64, BINS=16)
    for counted, part in ((out[:16], x[:40]), (out[16:], x)):
        assert counted.tolist() == [int((part == v).sum()) for v in range(16)]
