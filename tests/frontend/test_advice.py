"""What messages advise: the function, type or spelling that the user was after."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as lang
import tilewright.language as tl
from tests.frontend.helpers import F32, I32, build, count, f32, failure, i32, jit, line_of
from tilewright.base.errors import CompilationError
from tilewright.devices import arrays

torch = pytest.importorskip("torch")


def test_functions_of_other_libraries() -> None:
    @jit
    def tanh(p, x):
        tl.store(p, tl.tanh(x))

    @jit
    def exp(p, x):
        tl.store(p, torch.exp(x))

    @jit
    def concatenate(p, x):
        tl.store(p, np.concatenate(x))

    @jit
    def root(p, x):
        tl.store(p, math.sqrt(x))

    @jit
    def tan(p, x):
        tl.store(p, math.tan(x))

    failure(tanh, F32, f32, marked="tl.tanh", match="tanh(...)")
    failure(exp, F32, f32, marked="torch.exp(x)", match="torch.exp cannot be called in a kernel")
    failure(concatenate, F32, f32, marked="np.concatenate(x)", match="hint: write tl.cat(...)")
    failure(root, F32, f32, marked="math.sqrt(x)", match="hint: write tl.sqrt(...)")
    failure(tan, F32, f32, marked="math.tan(x)", match="tan(...)")


def test_powers() -> None:
    @jit
    def square(p, x):
        tl.store(p, x**2)

    @jit
    def power(p, x):
        tl.store(p, x**x)

    failure(square, F32, f32, marked="x**2", match="hint: write x * x")
    failure(power, F32, f32, marked="x**x", match="tl.extra.libdevice.pow(x, y)")


def test_constants_have_no_methods_of_tensors() -> None:
    @jit
    def kernel(p, n: tl.constexpr):
        tl.store(p, n.to(tl.float32))

    @jit
    def converted(p, n: tl.constexpr):
        tl.store(p, tl.to_tensor(n).to(tl.float32))

    failure(kernel, F32, 1, marked="n.to", match="n has no attribute 'to'\nhint: it is a compile-time value here")
    build(converted, F32, 1)


def test_tuples_of_tensors_are_not_compared() -> None:
    @jit
    def kernel(p, x):
        if (x, 1) == (x, 2):
            tl.store(p, x)

    failure(
        kernel, F32, f32, marked="(x, 1) == (x, 2)", match="== of tuples takes compile-time values only\nhint: comp"
    )


def test_numbers_that_there_are_not() -> None:
    @jit
    def huge(p):
        tl.store(p, 2**64)

    @jit
    def nothing(p):
        tl.store(p, None)

    @jit
    def imaginary(p):
        tl.store(p, 1j)

    @jit
    def downwards(p):
        tl.store(p + tl.arange(8, 0), 1.0)

    @jit
    def fourth(p):
        tl.store(p, tl.program_id(3))

    failure(huge, F32, marked="tl.store(p, 2**64)", match="hint: integers have at most 64 bits")
    failure(nothing, F32, marked="tl.store(p, None)", match="hint: ask for it first")
    failure(imaginary, F32, marked="1j", match="hint: keep real and imaginary parts apart")
    failure(downwards, F32, marked="tl.arange(8, 0)", match="hint: it counts upwards")
    failure(fourth, F32, marked="tl.program_id(3)", match="hint: fold several dimensions")


def test_lists_do_not_grow() -> None:
    @jit
    def kernel(p, x):
        parts = []
        parts.append(x)

    failure(kernel, F32, f32, marked="parts.append", match="parts has no attribute 'append'\nhint: tuples and lists of")


@pytest.mark.parametrize(("size", "hint"), [(8.0, "pass an int: 8"), (8.5, "n // 2 divides integers")])
def test_sizes_are_integers(size: Any, hint: str) -> None:
    @jit
    def kernel(p, n: tl.constexpr):
        tl.store(p + tl.arange(0, n), 1.0)

    failure(kernel, F32, size, marked="tl.arange(0, n)", match=f"arange's arguments must be integers, got {size}")
    failure(kernel, F32, size, marked="tl.arange(0, n)", match=hint)


NUMBER = np.float32(1.5)


def test_scalars_of_numpy_are_numbers() -> None:
    inner = np.int64(4)

    @jit
    def kernel(p):
        tl.static_assert(np.int32(7) // 2 == 3)
        tl.store(p + tl.arange(0, inner), NUMBER * np.float32(2))

    assert count(kernel, F32)["tt.store"] == 1


def plain(x):
    return x


def test_names_are_those_of_the_file() -> None:
    @jit
    def call(p):
        tl.store(p, plain(1.0))

    @jit
    def kind(p):
        tl.store(p, tl.float32.width)

    error = failure(call, F32, marked="plain", match="decorate `plain` with @triton.jit")
    assert "tilewright" not in str(error).replace(__file__, "") and triton is not None and lang is tl
    failure(kind, F32, marked="tl.float32.width", match="tl.float32 has no attribute 'width'")


def test_mistakes_inside_library_functions_show_the_line_of_the_user() -> None:
    @jit
    def kernel(p):
        tl.store(p, tl.sum(tl.load(p + tl.arange(0, 8)), axis=3))

    error = failure(
        kernel, F32, marked="tl.sum(tl.load(p + tl.arange(0, 8)), axis=3)", match="axis must be in [-1, 1), got 3"
    )
    text = str(error)
    assert text.index(__file__) < text.index("found inside sum (tilewright/language/") < text.index("axis must be in")
    assert text.count("File") == 1


def test_the_interpreter_shows_the_line_of_the_user_too() -> None:
    def kernel(p):
        tl.store(p, tl.sum(tl.load(p + tl.arange(0, 8)), axis=3))

    with pytest.raises(triton.TilewrightError) as caught:
        triton.jit(kernel, interpret=True)[(1,)](np.zeros(8, np.float32))
    text = str(caught.value)
    assert text.index(__file__) < text.index("found inside sum (tilewright/language/") < text.index("axis must be in")


def test_a_tile_that_is_too_large_is_refused_where_it_is_made() -> None:
    @jit
    def outer(p):
        x = tl.arange(0, 4096)
        tl.store(p, tl.sum(x[:, None] * x[None, :]))

    @jit
    def product(p):
        x = tl.full((4096, 16), 1.0, tl.float32)
        tl.store(p, tl.sum(tl.dot(x, x.T)))

    @jit
    def joined(p):
        x = tl.full((1048576,), 1.0, tl.float32)
        tl.store(p, tl.sum(tl.join(x, x)))

    failure(outer, F32, marked="x[:, None] * x[None, :]", match="numel (16777216) exceeds")
    failure(product, F32, marked="tl.dot(x, x.T)", match="numel (16777216) exceeds")
    failure(joined, F32, marked="tl.join(x, x)", match="numel (2097152) exceeds")


@jit
def endless(n: tl.constexpr):
    return endless(n + 1)


@jit
def ping(n: tl.constexpr):
    return pong(n + 1)


@jit
def pong(n: tl.constexpr):
    return ping(n + 1)


@jit
def countdown(n: tl.constexpr):
    if n == 0:
        return 0
    return countdown(n - 1) + 1


def test_endless_recursion_stops_early_and_shows_each_place_once() -> None:
    @jit
    def kernel(p):
        tl.store(p, endless(0))

    @jit
    def turns(p):
        tl.store(p, ping(0))

    error = failure(kernel, F32, marked="endless(n + 1)", match="endless calls itself 100 times")
    assert str(error).count("File") == 2 and "99 more calls of the same places" in str(error)
    with pytest.raises(CompilationError, match="calls itself 100 times|nested too deeply") as caught:
        build(turns, F32)
    assert str(caught.value).count("File") == 3

    @jit
    def ends(p):
        tl.store(p, countdown(60))

    assert count(ends, F32)["tt.store"] == 1


def test_types_are_shown_as_they_are_written() -> None:
    @jit
    def kernel(p, n):
        tl.store(p, tl.zeros((n,), tl.float32))

    failure(kernel, F32, i32, marked="tl.zeros((n,), tl.float32)", match="tl.constexpr")


@pytest.mark.parametrize("kind", ["elif", "return"])
def test_long_chains_of_branches(tmp_path: Path, kind: str) -> None:
    lines = ["import tilewright.language as tl", "def kernel(p, n):"]
    for i in range(220):
        word = "elif" if kind == "elif" and i else "if"
        lines += [f"    {word} n == {i}:", f"        tl.store(p, {i})"] + ["        return"] * (kind == "return")
    (tmp_path / "many.py").write_text("\n".join(lines))
    space: dict[str, Any] = {}
    exec(compile((tmp_path / "many.py").read_text(), str(tmp_path / "many.py"), "exec"), space)
    assert sum(op.name == "tt.store" for op in build(jit(space["kernel"]), I32, i32).module.walk()) == 220


def test_a_loop_unrolled_many_times_warns_at_once_with_the_line() -> None:
    @jit
    def kernel(p):
        for _ in tl.static_range(1200):
            pass

    with pytest.warns(UserWarning, match="this loop is unrolled 1,200 times") as caught:
        build(kernel, F32)
    assert (caught[0].filename, caught[0].lineno) == (__file__, line_of(kernel, "static_range"))


def test_a_tensor_that_requires_a_gradient_is_mentioned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_mentioned", [])
    monkeypatch.setattr(arrays, "_left", [])  # `tilewright.torch` says it otherwise, if a test has imported it
    value = torch.zeros(4, requires_grad=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays.read(value, "x")
    with pytest.warns(UserWarning, match="`x` requires a gradient, but autograd does not see"):
        arrays.read(value, "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays.read(value, "y")
