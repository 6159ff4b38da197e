"""The Python that people expect: each kernel gives the same through the reference, as Python, and on the CPU."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.frontend.helpers import I32, count, failure, i32, jit
from tests.language.kernel_runner import run
from tilewright.base.errors import CompilationError, UnsupportedLanguageConstruct

SCALE = 3
OFFSETS = (1, 2, 4)
NAME = "double"


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Config:
    block: int
    name: str = "plain"

    @property
    def half(self):
        return self.block // 2


@dataclasses.dataclass
class Running:
    total: Any
    count: Any

    def push(self, x):
        return Running(self.total + x, self.count + 1)

    @property
    def mean(self):
        return self.total / self.count


@tl.aggregate
class Affine:
    factor: tl.tensor
    shift: tl.tensor
    size: tl.constexpr

    @tl.constexpr_function
    def bigger(size):
        return size * 2

    def apply(self, x):
        return x * self.factor + self.shift

    def then(self, other):
        return Affine(self.factor * other.factor, other.apply(self.shift), self.size)


DEFAULT = Config(4)


def result(kernel: Any, *args: Any, size: int = 1, **constants: Any) -> list[int]:
    out = np.zeros(size, np.int32)
    run(kernel, out, *args, **constants)
    return out.tolist()


@pytest.mark.usefixtures("backend")
class TestLoops:
    def test_break_continue_and_else(self) -> None:
        @jit
        def kernel(out, n, limit):
            total = 0
            for i in range(n):
                if i == 2:
                    continue
                if i > limit:
                    break
                total += i
            else:
                total += 100
            tl.store(out, total)
            tl.store(out + 1, i)

        assert result(kernel, 6, 10, size=2) == [113, 5]
        assert result(kernel, 6, 3, size=2) == [4, 4]

    def test_while_true(self) -> None:
        @jit
        def kernel(out, n):
            steps = 0
            while True:
                if n == 1:
                    break
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                steps += 1
            tl.store(out, steps)

        assert result(kernel, 27) == [111]

    def test_return_from_nested_loops(self) -> None:
        @jit
        def find(n, target):
            for i in range(n):
                for j in range(i):
                    if i * j == target:
                        return i * 100 + j
            return -1

        @jit
        def kernel(out, n):
            tl.store(out, find(n, 12))
            tl.store(out + 1, find(n, 13))

        assert result(kernel, 9, size=2) == [403, -1]

    def test_tiles_leave_loops(self) -> None:
        @jit
        def kernel(out, n):
            tile = tl.arange(0, 8)
            for _ in range(n):
                if tl.sum(tile) > 100:
                    break
                tile = tile * 2
            tl.store(out + tl.arange(0, 8), tile)

        assert result(kernel, 50, size=8) == [4 * k for k in range(8)]

    def test_breaks_of_unrolled_loops(self) -> None:
        @jit
        def kernel(out, n):
            total = 0
            for k in tl.static_range(6):
                if k == n:
                    continue
                if k > n + 2:
                    break
                total += k
            for x in (n, 7, n * 2):
                if x == 7:
                    total += 1000
                    break
            else:
                total += 1
            tl.store(out, total)

        assert result(kernel, 1) == [1000 + 0 + 2 + 3]

    def test_the_test_is_not_evaluated_after_a_break(self) -> None:
        @jit
        def kernel(out, n):
            while tl.atomic_add(out, 1) < n:
                if tl.load(out) == 3:
                    break

        assert result(kernel, 10) == [3]
        assert result(kernel, 2) == [3]

    def test_the_counter_keeps_its_last_value(self) -> None:
        @jit
        def kernel(out, n):
            i = 77
            for i in range(n, 0, -2):
                pass
            tl.store(out, i)

        assert result(kernel, 9) == [1]
        assert result(kernel, 0) == [77]

    def test_names_of_an_endless_loop_live_behind_it(self) -> None:
        @jit
        def kernel(out, n):
            while True:
                x = tl.load(out + n)
                y = x * 2
                if x > 10:
                    break
                if x < -5:
                    y = 1000
                    break
                n += 1
            tl.store(out, x + y)

        data = np.array([3, 5, 12, 0], np.int32)
        run(kernel, data, 1)
        assert data[0] == 36
        data = np.array([3, 5, -12, 0], np.int32)
        run(kernel, data, 0)
        assert data[0] == 988

    def test_constant_conditions(self) -> None:
        @jit
        def kernel(out, N: tl.constexpr):
            total = 0
            while N > 100:
                total += 1
            else:
                total += 5
            tl.store(out, total)

        assert result(kernel, N=3) == [5]


@pytest.mark.usefixtures("backend")
class TestExpressions:
    def test_globals_and_closures(self) -> None:
        factor, mode = 5, Mode.MUL

        @jit
        def kernel(out, n):
            x = n * SCALE + OFFSETS[1] + DEFAULT.half
            x = x * factor if mode is Mode.MUL else x + factor
            tl.store(out, x if NAME == "double" else 0)

        assert result(kernel, 4) == [80]

    def test_sequences(self) -> None:
        @jit
        def kernel(out, n):
            parts = [n + k for k in range(3)]
            total = sum(parts)
            for i, (a, b) in enumerate(zip(parts, reversed(OFFSETS))):
                total += i * a * b
            total += sum(k * k for k in range(4) if k % 2)
            total += 1000 * any((n > 5, n == 4)) + len([k + 1 for k in range(7)])
            total += 10000 if all(k > 0 for k in OFFSETS) else 0
            first, *rest, last = (1, 2, n, 4)
            tl.store(out, total)
            tl.store(out + 1, first + rest[1] * 10 + last * 100 + len(rest) * 1000)
            tl.store(
                out + 2, sorted((3, 1, 2))[0] + max(tuple(map(max, OFFSETS, (2, 8, 3)))) + divmod(7, 4)[1] + round(2.6)
            )

        n = 4
        parts = [n + k for k in range(3)]
        total = sum(parts) + sum(i * a * b for i, (a, b) in enumerate(zip(parts, (4, 2, 1), strict=True))) + 10
        assert result(kernel, n, size=3) == [total + 1000 + 7 + 10000, 1 + 40 + 400 + 2000, 1 + 8 + 3 + 3]

    def test_arguments(self) -> None:
        @jit
        def inner(a, *rest, scale=2, **options):
            return (a + sum(rest)) * scale + options["extra"]

        @jit
        def outer(*args, **kwargs):
            return inner(*args, **kwargs)

        @jit
        def kernel(out, n):
            tl.store(out, outer(n, 1, n, extra=n))
            tl.store(out + 1, outer(n, *(2, 3), **{"scale": 10, "extra": 1}))

        assert result(kernel, 5, size=2) == [11 * 2 + 5, 101]

    def test_nested_functions(self) -> None:
        @jit
        def kernel(out, n, K: tl.constexpr):
            def scaled(x, by=K):
                y = x * by
                if y > 50:
                    return y - 50
                return y + base

            base = 1
            a = scaled(n)
            base = 2
            tl.store(out, a * 1000 + scaled(n, by=10))
            tl.store(out + 1, tl.reduce(tl.arange(0, 8), 0, lambda p, q: p + q))

        assert result(kernel, 7, size=2, K=3) == [22 * 1000 + 20, 28]

    def test_match(self) -> None:
        @jit
        def kernel(out, n, mode: tl.constexpr, shape: tl.constexpr):
            match mode:
                case Mode.ADD:
                    x = n + 1
                case "half" | "third":
                    x = n // 2
                case int(k) if k > 3:
                    x = n * k
                case _:
                    x = n
            match shape:
                case (a, b):
                    x += a * b
                case (a, *rest):
                    x += a + len(rest) * 100
            tl.store(out, x)

        assert result(kernel, 6, mode=Mode.ADD, shape=(2, 3)) == [13]
        assert result(kernel, 6, mode="third", shape=(2, 3, 4)) == [205]
        assert result(kernel, 6, mode=5, shape=(2,)) == [32]
        assert result(kernel, 6, mode=2, shape=()) == [6]

    def test_membership_and_identity(self) -> None:
        @jit
        def kernel(out, kind: tl.constexpr, p):
            total = 1 if kind in ("a", "b") else 2
            total += 10 if kind not in OFFSETS else 20
            total += 100 if p is not None else 200
            tl.store(out, total)

        assert result(kernel, kind="a", p=None) == [211]
        assert result(kernel, kind=2, p=None) == [222]


@pytest.mark.usefixtures("backend")
class TestRecords:
    def test_dataclasses_are_carried(self) -> None:
        @jit
        def kernel(out, n):
            state = Running(0, 0)
            for i in range(n):
                if i == 3:
                    continue
                state = state.push(i)
            tl.store(out, state.total)
            tl.store(out + 1, state.count)
            tl.store(out + 2, state.mean.to(tl.int32))

        assert result(kernel, 6, size=3) == [12, 5, 2]

    def test_named_tuples_are_carried(self) -> None:
        @jit
        def kernel(out, n):
            pair = Pair(0, 1)
            while pair.second < n:
                pair = Pair(pair.second, pair.first + pair.second)
            pair = pair._replace(first=pair.first * 2)
            tl.store(out, pair.first)

        assert result(kernel, 50) == [68]

    def test_aggregates(self) -> None:
        @jit
        def kernel(out, n):
            f = Affine(n, tl.to_tensor(1), size=4) if n > 100 else Affine(n, n * 0 + 1, 4)
            for _ in range(2):
                f = f.then(f)
            f = tl.aggregate_replace(f, shift=f.shift + 1)
            tl.store(out, f.apply(n * 0 + 2) + f.size)

        def twice(f: tuple[int, int]) -> tuple[int, int]:
            return f[0] * f[0], f[0] * f[1] + f[1]

        a, b = twice(twice((3, 1)))
        assert result(kernel, 3) == [a * 2 + b + 1 + 4]

    def test_mutable_state_is_refused(self) -> None:
        with pytest.raises(Exception, match="cannot assign to field 'size' on immutable aggregate Interval"):

            @tl.aggregate
            class Interval:
                size: tl.constexpr

            Interval(3).size = 4  # type: ignore[misc]


@dataclasses.dataclass
class Matrix:
    data: Any
    stride: Any
    width: tl.constexpr

    def row(self, i):
        return self.data + i * self.stride + tl.arange(0, self.width)


@pytest.mark.parametrize("interpret", [False, True])
def test_records_as_arguments(interpret: bool) -> None:
    @tilewright.jit(interpret=interpret)
    def kernel(out, m, mode):
        x = tl.load(m.row(1))
        tl.store(out + tl.arange(0, m.width), x * 2 if mode is Mode.ADD else x)

    data, out = np.arange(12, dtype=np.int32), np.zeros(4, np.int32)
    kernel[(1,)](out, Matrix(data, 4, 4), Mode.ADD)
    assert out.tolist() == [8, 10, 12, 14]
    kernel[(1,)](out, Matrix(data, 8, 4), Mode.MUL)
    assert out.tolist() == [8, 9, 10, 11]


# --- what the IR looks like ---------------------------------------------------------------------------------------


def test_continue_keeps_the_counted_loop() -> None:
    @jit
    def kernel(p, n):
        for i in range(n):
            if i == 3:
                continue
            tl.store(p + i, i)

    found = count(kernel, I32, i32)
    assert found["scf.for"] == 1 and found["scf.while"] == 0 and found["scf.if"] == 1


def test_a_break_that_is_not_compiled_costs_nothing() -> None:
    @jit
    def kernel(p, n, EARLY: tl.constexpr):
        for i in range(n):
            tl.store(p + i, i)
            if EARLY:
                break

    assert count(kernel, I32, i32, False)["scf.while"] == 0
    assert count(kernel, I32, i32, True)["scf.while"] == 1


def test_variables_that_a_loop_leaves_alone_are_not_carried() -> None:
    @jit
    def kernel(p, n):
        x = tl.load(p)
        y = x
        for i in range(n):
            if i == x:
                return
            y = x
        tl.store(p, y)

    found = count(kernel, I32, i32)
    assert found["scf.while"] == 1 and found["ub.poison"] == 0


def test_code_behind_an_endless_loop_is_not_compiled() -> None:
    @jit
    def kernel(p, n):
        while True:
            n -= 1
            if n < 0:
                return
        undefined_function(n)  # noqa: F821

    assert count(kernel, I32, i32)["scf.while"] == 1


# --- errors -------------------------------------------------------------------------------------------------------


def test_an_endless_loop() -> None:
    @jit
    def kernel(p, n):
        while 1 < 2:
            n += 1

    failure(kernel, I32, i32, marked="1 < 2", match="leave it with `break` or `return`")


def test_types_on_two_ways_through_a_loop() -> None:
    @jit
    def kernel(p, n):
        x = 1
        for i in range(n):
            if i == 2:
                x = 1.5
                continue
            x = i
        tl.store(p, x)

    failure(kernel, I32, i32, marked="x", match="Mismatched type for x between two ways through the loop")


def test_results_that_must_be_used() -> None:
    @tl.must_use_result("It does not change its argument.")
    @jit
    def pure(x):
        return x + 1

    @jit
    def kernel(p, n):
        pure(n)

    match = "The result of pure is not being used. It does not change its argument."
    failure(kernel, I32, i32, marked="pure(n)", match=match)


def test_a_match_on_a_tensor() -> None:
    @jit
    def kernel(p, n):
        match n:
            case 1:
                pass

    failure(kernel, I32, i32, marked="1", match="write if/elif/else on a run-time value")


def test_a_decorated_nested_function() -> None:
    @jit
    def kernel(p, n):
        @jit
        def inner(x):
            return x

    failure(kernel, I32, i32, cls=UnsupportedLanguageConstruct, marked="jit", match="leave the decorator out")


def test_a_sequence_of_unknown_length() -> None:
    @jit
    def kernel(p, n):
        for i, _ in enumerate(range(n)):
            tl.store(p, i)

    match = "enumerate() takes a sequence whose length is known at compile time"
    failure(kernel, I32, i32, cls=CompilationError, marked="enumerate(range(n))", match=match)


def test_unknown_named_arguments() -> None:
    @jit
    def inner(x):
        return x

    @jit
    def kernel(p, n):
        inner(**n)

    failure(kernel, I32, i32, marked="n", match="`**` takes a dictionary of names known at compile time")
