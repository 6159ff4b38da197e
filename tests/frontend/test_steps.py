"""Steps of which only a run tells the sign: Python's iterations everywhere, and plain loops where it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.helpers import F32, TARGET, jit, text
from tests.language.kernel_runner import BACKENDS, run, running_on
from tilewright.base import dtypes
from tilewright.base.options import Options
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ir.walk import walk
from tilewright.ops import levels
from tilewright.ops.text import parse_module, print_module
from tilewright.passes.pipeline import run_passes

BOUNDS = [
    (0, 10, 3), (10, 0, -3), (0, 10, -1), (10, 0, 1), (5, 5, -2), (3, 9, 0), (-5, 5, 2), (7, -9, -16), (7, -10, -16),
    (-1, -40, -13), (4, 3, -1),
]  # fmt: skip


@pytest.fixture(params=[*BACKENDS, "simulated"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with running_on(request.param):
        yield request.param


def numbers(lo: int, hi: int, step: int) -> list[int]:
    return list(range(lo, hi, step)) if step else []


def at(kind: Any, *values: int) -> list[np.ndarray]:
    return [np.array([value], kind) for value in values]


@jit
def counted(out, p, q, r):
    """Bounds and step from memory: nothing is known of them."""
    lo, hi, step = tl.load(p), tl.load(q), tl.load(r)
    n, s, i = 0, 0, lo + 100
    for i in range(lo, hi, step):
        tl.store(out + 3 + n, i.to(tl.int64))
        s = s * 3 + i.to(tl.int32)
        n += 1
    tl.store(out, n)
    tl.store(out + 1, s)
    tl.store(out + 2, i.to(tl.int64))


def expected(lo: int, hi: int, step: int) -> list[int]:
    sum_, last = 0, lo + 100
    for last in numbers(lo, hi, step):
        sum_ = sum_ * 3 + last
    return [len(numbers(lo, hi, step)), sum_, last, *numbers(lo, hi, step)]


def assert_counts(kinds: tuple[Any, Any, Any], bounds: tuple[int, int, int]) -> None:
    out = np.zeros(32, np.int64)
    given = [np.array([b], kind) for b, kind in zip(bounds, kinds, strict=True)]
    run(counted, out, *given)
    want = expected(*bounds)
    want[1] = int(np.array(want[1] & 0xFFFFFFFF, np.uint32).view(np.int32))
    assert out[: len(want)].tolist() == want and not out[len(want) :].any(), bounds


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_python_s_iterations_of_every_signed_type(backend: str, kind: Any) -> None:
    for bounds in BOUNDS:
        if bounds[2] or backend != "interpreter":  # it checks the step
            assert_counts((kind,) * 3, bounds)


@pytest.mark.parametrize(("kind", "step"), [(np.uint32, np.int32), (np.uint64, np.int64), (np.uint32, np.int8)])
def test_unsigned_bounds_and_a_signed_step(backend: str, kind: Any, step: Any) -> None:
    for bounds in [(2, 20, 5), (20, 2, -5), (2, 20, -5), (20, 2, 5), (3, 0, -1), (3, 3, -1)]:
        assert_counts((kind, kind, step), bounds)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64])
def test_unsigned_steps(backend: str, kind: Any) -> None:
    for bounds in [(2, 20, 5), (20, 2, 5), (0, 1, 200), *[(2, 9, 0)] * (backend != "interpreter")]:
        assert_counts((kind,) * 3, bounds)


def test_bounds_that_only_unsigned_numbers_reach(backend: str) -> None:
    top = (1 << 32) - 1
    for lo, hi, step in [
        (top - 9, top, 4),
        (top - 2, top - 30, -7),
        (5, top, 1 << 30),
        ((1 << 31) - 5, (1 << 31) + 5, 3),
    ]:
        out = np.zeros(32, np.int64)
        run(places, out, *at(np.uint32, lo, hi), *at(np.int32 if step < 0 else np.uint32, step))
        want = numbers(lo, hi, step)
        assert out[: 1 + len(want)].tolist() == [len(want), *want]


@jit
def places(out, p, q, r):
    n = 0
    for i in range(tl.load(p), tl.load(q), tl.load(r)):
        tl.store(out + 1 + n, i.to(tl.int64))
        n += 1
    tl.store(out, n)


@pytest.mark.parametrize(("kind", "bits"), [(np.int8, 8), (np.int32, 32), (np.int64, 64)])
def test_from_one_end_of_the_type_to_the_other(backend: str, kind: Any, bits: int) -> None:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    for lo, hi, step in [
        (least, most, most // 2),
        (most, least, least // 3),
        (most, least, least),
        (least, most, most),
    ]:
        out = np.zeros(32, np.int64)
        run(places, out, *at(kind, lo, hi, step))
        want = numbers(lo, hi, step)
        assert out[: 1 + len(want)].tolist() == [len(want), *want]


@jit
def every(out, p, q, r):
    n = 0
    for _ in range(tl.load(p), tl.load(q), tl.load(r)):
        n += 1
    tl.store(out, n)


def test_more_iterations_than_the_counter_has_numbers(backend: str) -> None:
    for lo, hi, step in [(-100, 100, 1), (127, -128, -1)]:
        out = np.zeros(1, np.int32)
        run(every, out, *at(np.int8, lo, hi, step))
        assert out[0] == len(range(lo, hi, step))


@jit
def sums_of_blocks(x, out, start, end, step, total, BLOCK: tl.constexpr):
    """Tiles carried through a loop with hints, a step that is an argument."""
    lane = tl.arange(0, BLOCK)
    sum_ = tl.zeros([BLOCK], tl.float32)
    largest = tl.full([BLOCK], -1e30, tl.float32)
    for i in tl.range(start, end, step, num_stages=3):
        v = tl.load(x + i + lane, mask=(i + lane < total) & (i + lane >= 0), other=0)
        sum_ = sum_ * 0.5 + v
        largest = tl.maximum(largest, v)
    tl.store(out + lane, sum_)
    tl.store(out + BLOCK + lane, largest)


@pytest.mark.parametrize("bounds", [(0, 70, 16), (70, -1, -16), (64, 0, -8), (0, 64, -8), (3, 61, 5), (60, 2, -5)])
def test_tiles_carried_by_a_loop_with_hints(backend: str, bounds: tuple[int, int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(80).astype(np.float32)
    padded = np.concatenate([x, np.zeros(32, np.float32)])
    out = np.zeros(32, np.float32)
    run(sums_of_blocks, x, out, *bounds, len(x), BLOCK=16)
    sum_, largest = np.zeros(16, np.float32), np.full(16, -1e30, np.float32)
    for i in range(*bounds):
        sum_, largest = sum_ * np.float32(0.5) + padded[i : i + 16], np.maximum(largest, padded[i : i + 16])
    np.testing.assert_allclose(out, np.concatenate([sum_, largest]), rtol=1e-5)


@jit
def pairs(out, n, a, b):
    """Loops in one another, both of any direction; the inner bounds depend on the outer counter."""
    k = 0
    for i in range(n, -n, a):
        for j in range(i, 0, b):
            tl.store(out + 1 + k, i * 100 + j)
            k += 1
    tl.store(out, k)


@jit
def triangle(x, y, out, k0, k1, step, K: tl.constexpr, N: tl.constexpr):
    """Products in a loop that may go either way."""
    row, k = tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros([N, N], tl.float32)
    for i in tl.range(k0, k1, step, num_stages=2):
        a = tl.load(x + row[:, None] * 64 + i + k[None, :])
        b = tl.load(y + (i + k)[:, None] * N + row[None, :])
        acc += tl.dot(a, b)
    tl.store(out + row[:, None] * N + row[None, :], acc)


@pytest.mark.parametrize("bounds", [(0, 64, 16), (48, -1, -16), (48, -1, 16), (32, 0, -32)])
def test_products_in_a_loop_of_either_direction(backend: str, bounds: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((16, 64), (64, 16)))
    out = np.zeros((16, 16), np.float32)
    run(triangle, x, y, out, *bounds, K=16, N=16)
    want = sum((x[:, i : i + 16] @ y[i : i + 16] for i in range(*bounds)), np.zeros((16, 16), np.float32))
    assert np.array_equal(out, want)


@pytest.mark.parametrize("steps", [(-1, -1), (-2, 1), (1, -1), (2, 3), (-3, -2)])
def test_loops_in_loops(backend: str, steps: tuple[int, int]) -> None:
    out = np.zeros(64, np.int32)
    run(pairs, out, 4, *steps)
    want = [i * 100 + j for i in range(4, -4, steps[0]) for j in range(i, 0, steps[1])]
    assert out[: 1 + len(want)].tolist() == [len(want), *want]


@jit
def first_beyond(x, out, lo, hi, step, limit):
    found = -1
    for i in range(lo, hi, step):
        v = tl.load(x + i)
        if v < 0:
            continue
        if v > limit:
            found = i
            break
    else:
        found = -2
    tl.store(out, found)


@pytest.mark.parametrize("bounds", [(0, 20, 1), (19, -1, -1), (19, -1, -4), (0, 20, 7), (0, 20, -1), (19, -1, 2)])
def test_loops_that_are_left(backend: str, bounds: tuple[int, int, int]) -> None:
    x = ((np.arange(20) * 7) % 20 - 4).astype(np.int32)
    for limit in (5, 13, 40):
        out = np.zeros(1, np.int32)
        run(first_beyond, x, out, *bounds, limit)
        assert out[0] == next((i for i in range(*bounds) if x[i] > limit), -2)


@jit
def returned(x, out, lo, hi, step):
    tl.store(out, find(x, lo, hi, step))


@jit
def find(x, lo, hi, step):
    for i in range(lo, hi, step):
        if tl.load(x + i) == 1:
            return i
    return -1


def test_return_from_a_loop_of_a_function(backend: str) -> None:
    x = np.array([0, 1, 0, 1, 0, 0], np.int32)
    for bounds in [(0, 6, 1), (5, -1, -1), (4, -1, -2), (0, 6, -1), *[(0, 6, 0)] * (backend != "interpreter")]:
        out = np.zeros(1, np.int32)
        run(returned, x, out, *bounds)
        assert out[0] == next((i for i in numbers(*bounds) if x[i] == 1), -1)


@pytest.mark.parametrize("kernel", [places, returned])
def test_zero_fails_with_debug(backend: str, kernel: Any) -> None:
    if backend == "cuda":
        pytest.skip("an assertion that fails there ends the context; test_trapping_assertions.py has its own process")
    args: list[Any] = at(np.int32, 1, 4, 0) if kernel is places else [0, 6, 0]
    first = [np.zeros(8, np.int64)] if kernel is places else [np.zeros(8, np.int32), np.zeros(1, np.int32)]
    with pytest.raises((RuntimeError, AssertionError), match="step of a loop must not be zero"):
        run(kernel, *first, *args, options=Options(debug=True))


# --- what is known of a step keeps the loop as it is ------------------------------------------------------------------


@jit
def by_programs(p, n, B: tl.constexpr):
    for i in range(tl.program_id(0) * B, n, tl.num_programs(0) * B):
        tl.store(p + i, 0.0)


@jit
def said_to_rise(p, n, step):
    tl.assume(step > 0)
    for i in range(0, n, step):
        tl.store(p + i, 0.0)


@jit
def at_least_one(p, n, step):
    for i in range(0, n, tl.maximum(step, 1)):
        tl.store(p + i, 0.0)


@jit
def of_a_caller(p, n):
    fill(p, n, tl.num_programs(0) + 1)


@jit
def fill(p, n, step):
    for i in range(0, n, step):
        tl.store(p + i, 0.0)


def loops(kernel: Callable[..., Any], *types: Any) -> tuple[Counter[str], str]:
    names = list(kernel.signature.parameters)  # type: ignore[attr-defined]
    specs = [ParamSpec(n, tl.constexpr(t) if isinstance(t, int) else t) for n, t in zip(names, types, strict=True)]
    module = run_passes(build_module(kernel, specs, Options(), TARGET).module)
    levels.verify(module)
    printed = print_module(module, locations=False)
    assert print_module(parse_module(printed), locations=False) == printed and "any_step" not in printed
    return Counter(op.name for op in walk(module)), printed


@pytest.mark.parametrize(
    ("kernel", "types"),
    [(by_programs, (4,)), (said_to_rise, (dtypes.int32,)), (at_least_one, (dtypes.int32,)), (of_a_caller, ())],
)
def test_of_a_step_known_to_be_positive_nobody_asks_for_the_sign(kernel: Any, types: tuple[Any, ...]) -> None:
    found, _ = loops(kernel, F32, dtypes.int32, *types)
    assert found["scf.for"] == found["arith.select"] == found["arith.divui"] == 1


def test_a_step_of_unknown_sign_counts_iterations() -> None:
    found, _ = loops(fill, F32, dtypes.int32, dtypes.int32)
    assert found["scf.for"] == 1 and found["arith.divui"] == 1 and found["arith.select"] > 1
    assert "tt.any_step" in text(fill, F32, dtypes.int32, dtypes.int32)
