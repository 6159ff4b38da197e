"""Parts of tiles mean what they mean in numpy, read and assigned, on tiles of any shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.helpers import I32, count, failure, i32, jit
from tests.language.kernel_runner import run

SHAPES = [(4, 8), (5, 7), (3, 96)]

READ = [
    "t[1]", "t[-1]", "t[..., 2]", "t[1, 2]", "t[1:3]", "t[:, 1:-1:2]", "t[::-1]", "t[::2, ::-2]", "t[i]", "t[-i, 1:4]",
    "t[i, i]", "t[None, 1:3, None, :, None]", "t[..., None, 2]", "t[1][2:5]", "t[:-1][:, None, -1]", "t[0:1, 3:4]",
    "t[-3:, -100:100]", "t[2:0:-1, ...]",
]  # fmt: skip

WRITTEN = [
    "t[1] = 7", "t[1:3, ::2] = -1", "t[i] = t[0]", "t[:, -1] += 100", "t[::-2, 4:0:-1] = t[0, 0:4]", "t[i, i] = 5",
    "t[:] = t[::-1]", "t[..., 1:3] *= t[:, 0:1]", "t[0, None, 1:3] = 9", "t[:2] = t[0]",
    "t[:, 1::3] = t[:, 0][:, None]",
]  # fmt: skip


def _function(path: Path, head: str, lines: list[str]) -> Callable[..., Any]:
    path.write_text("\n    ".join([head, *lines]) + "\n")
    namespace: dict[str, Any] = {"tl": tl, "np": np}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace["function"]  # type: ignore[no-any-return]


def _check(tmp_path: Path, lines: list[str], shape: tuple[int, int]) -> None:
    """`lines`, which make `r` of `t` and `i`, in a kernel and in numpy."""
    body = [line.replace(" = t", " = 0 + t") for line in lines]  # numpy's own views would overlap
    numpy = _function(tmp_path / "reference.py", "def function(t, i):", [*body, "return np.asarray(r)"])
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int32)
    dims = numpy(x.copy(), 1).shape
    places = ["out"]
    for axis, dim in enumerate(dims):
        index = ", ".join(":" if k == axis else "None" for k in range(len(dims)))
        places.append(f"tl.arange(0, {dim})[{index}] * {math.prod(dims[axis + 1 :])}")
    load = "t = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])"
    make = [load, *lines, f"tl.store({' + '.join(places)}, r)"]
    kernel = _function(tmp_path / "kernel.py", "def function(x, out, i, M: tl.constexpr, N: tl.constexpr):", make)
    for i in (1, -1):
        want = numpy(x.copy(), i)
        out = np.zeros(want.size, np.int32)
        run(jit(kernel), x, out, i, M=shape[0], N=shape[1])
        assert np.array_equal(out, want.ravel()), lines


@pytest.mark.parametrize("shape", SHAPES)
def test_read(tmp_path: Path, shape: tuple[int, int]) -> None:
    for expression in READ:
        _check(tmp_path, [f"r = {expression}"], shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_written(tmp_path: Path, shape: tuple[int, int]) -> None:
    for statement in WRITTEN:
        _check(tmp_path, [statement, "r = t"], shape)


@pytest.mark.parametrize("text", ["t[2:0:-1, 1:4]", "t[i]", "t[1]"])
@pytest.mark.usefixtures("backend")
def test_on_every_backend(tmp_path: Path, text: str) -> None:
    _check(tmp_path, [f"t[1] = {text}[..., 0:1]" if text == "t[i]" else "t[i, 1:4] = 3", f"r = {text}"], (4, 8))


@pytest.mark.usefixtures("backend")
def test_parts_are_carried_by_loops() -> None:
    @jit
    def kernel(out, n, N: tl.constexpr):
        t = tl.zeros((N,), tl.int32)
        for i in range(n):
            if i == 2:
                continue
            t[i] = i * i
            if t[i] > 10:
                t[0] = -1
        tl.store(out + tl.arange(0, N), t)

    out = np.zeros(8, np.int32)
    run(kernel, out, 6, N=8)
    assert out.tolist() == [-1, 1, 0, 9, 16, 25, 0, 0]


@pytest.mark.usefixtures("backend")
def test_tiles_of_any_shape() -> None:
    @jit
    def kernel(x, out, N: tl.constexpr):
        cols = tl.arange(0, N)
        v = tl.load(x + cols)
        tl.store(out + cols, v - tl.max(v, axis=0) + tl.sum(tl.where(cols % 2 == 0, v, 0), axis=0))

    x = np.random.default_rng(1).integers(-99, 99, 80).astype(np.int32)
    out = np.zeros(80, np.int32)
    run(kernel, x, out, N=80)
    assert np.array_equal(out, x - x.max() + x[::2].sum())


def test_whole_dimensions_cost_nothing() -> None:
    @jit
    def kernel(p, n):
        t = tl.load(p + tl.arange(0, 32))[None, :]
        tl.store(p + tl.arange(0, 32), (t[:, :] + t[..., :] + t[0:1, 0:])[0])

    found = count(kernel, I32, i32)
    assert found["tt.gather"] == 0


def test_a_whole_tile_is_replaced_without_a_select() -> None:
    @jit
    def kernel(p, n):
        t = tl.load(p + tl.arange(0, 32))
        t[:] = n
        tl.store(p + tl.arange(0, 32), t)

    found = count(kernel, I32, i32)
    assert found["arith.select"] == 0 and found["tt.gather"] == 0


def test_networks_need_powers_of_two() -> None:
    @jit
    def kernel(p, n):
        tl.store(p + tl.arange(0, 24), tl.sort(tl.arange(0, 24)))

    failure(
        kernel,
        I32,
        i32,
        marked="tl.sort(tl.arange(0, 24))",
        match="sorting needs a dimension whose size is a power of two",
    )


@pytest.mark.usefixtures("backend")
def test_histogram_of_any_number_of_bins() -> None:
    @jit
    def kernel(p, out, N: tl.constexpr, B: tl.constexpr):
        tl.store(out + tl.arange(0, B), tl.histogram(tl.load(p + tl.arange(0, N)), B))

    values, out = np.arange(24, dtype=np.int32) % 5, np.zeros(5, np.int32)
    run(kernel, values, out, N=24, B=5)
    assert out.tolist() == [5, 5, 5, 5, 4]
