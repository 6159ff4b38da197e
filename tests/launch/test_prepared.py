"""Prepared launches, the slot of the tracers, numbers of kernels, and host helpers that can be traced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.callable import by_number
from tilewright.base.errors import ArgumentError, DeviceError, GridError
from tilewright.compile.kinds import Described
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.frontend.hashing import GlobalsChangedError, content_hash, lasting_hash
from tilewright.launch import tracer_slot

torch = pytest.importorskip("torch")

SCALE = 3
F = "*fp32"


@tilewright.jit
def axpy(x, y, o, n, a, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * a + tl.load(y + i, i < n), i < n)


@tilewright.jit
def strided(o, stride, n):
    for k in range(n):
        tl.store(o + k * stride, k)


@tilewright.jit
def scaled(o):
    tl.store(o, SCALE)


@tilewright.jit
def pair(t, n):
    tl.store(t[0], n)
    tl.store(t[1][0], t[1][1])


@tilewright.jit
def blocks(d, o):
    tl.store(o + tl.arange(0, 8), d.load([4]))


def prepared_axpy(**options: Any) -> Any:
    kinds = {"x": F, "y": F, "o": F, "n": "int", "a": "float"}
    return axpy.prepare(kinds, {"B": 32}, options, host_only=True)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("n", [0, 1, 33, 64])
def test_it_is_the_launch(shift: int, n: int) -> None:
    launch = prepared_axpy()
    x, y = torch.randn(2, 65)
    ours, theirs = torch.zeros(66)[shift:], torch.zeros(66)[shift:]
    for _ in range(2):
        launch(3, 1, 1, x, y, ours, n, 2.0)
    axpy[(3,)](x, y, theirs, n, 2.0, B=32)
    assert torch.equal(ours, theirs) and torch.equal(ours[:n], x[:n] * 2.0 + y[:n]) and not ours[n:].any()


def test_integers_of_all_widths() -> None:
    launch = strided.prepare({"o": "*i64", "stride": "int", "n": "int"})
    for stride in (1, 2, 16, 1 << 40):
        o = torch.full((33,), -1)
        launch(1, 1, 1, o, stride, 1 if stride > 33 else 3)
        assert o[0] == 0 and (stride > 16 or o[2 * stride] == 2)


def test_tuples_and_descriptors() -> None:
    a, b = torch.zeros(1), torch.zeros(1)
    pair.prepare({"t": (F, (F, "float")), "n": "int"})(1, 1, 1, a, b, 2.5, 7)
    assert a.item() == 7 and b.item() == 2.5
    base, o = torch.arange(16.0), torch.zeros(8)
    launch = blocks.prepare({"d": Described("fp32", (8,)), "o": F})
    launch(1, 1, 1, base, 10, o)
    want = torch.zeros(8)
    blocks[(1,)](TensorDescriptor(base, [10], [1], [8]), want)
    assert torch.equal(o, want) and o.tolist() == [4, 5, 6, 7, 8, 9, 0, 0]


def test_what_it_refuses() -> None:
    launch = axpy.prepare({"x": F, "y": F, "o": F, "n": "int", "a": "float"}, {"B": 32})
    x = torch.zeros(4)
    with pytest.raises(ArgumentError, match="`y` has elements of type torch.float16"):
        launch(1, 1, 1, x, x.half(), x, 4, 1.0)
    with pytest.raises((ArgumentError, DeviceError)):
        launch(1, 1, 1, x, x.to("meta"), x, 4, 1.0)
    with pytest.raises(GridError):
        launch(-1, 1, 1, x, x, x, 4, 1.0)
    emptied = torch.zeros(4)
    emptied.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="no memory"):
        launch(1, 1, 1, x, x, emptied, 4, 1.0)
    with pytest.raises(ArgumentError, match="parameter `B` has neither"):
        axpy.prepare({"x": F, "y": F, "o": F, "n": "int", "a": "float"})
    with pytest.raises(ArgumentError, match="no parameter q"):
        scaled.prepare({"o": F, "q": F})


def test_globals_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, o = scaled.prepare({"o": F}), torch.zeros(1)
    launch(1, 1, 1, o)
    assert o.item() == 3
    monkeypatch.setitem(scaled.fn.__globals__, "SCALE", 4)
    with pytest.raises(GlobalsChangedError, match="SCALE"):
        launch(1, 1, 1, o)


# --- the slot --------------------------------------------------------------------------------------------------


@tilewright.heuristics({"B": lambda args: 32})
@tilewright.jit
def computed(o, n, B: tl.constexpr):
    tl.store(o + tl.arange(0, B), 1.0, tl.arange(0, B) < n)


@tilewright.autotune(configs=[tilewright.Config({"B": 32})], key=[])
@tilewright.jit
def tuned(o, n, B: tl.constexpr):
    tl.store(o + tl.arange(0, B), 1.0, tl.arange(0, B) < n)


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    found: list[Any] = []

    def tracer(kernel: Any, grid: Any) -> Any:
        found.append((kernel, grid))
        return kernel.launcher(grid)

    with tracer_slot.held_by(tracer):
        yield found


@pytest.mark.parametrize("kernel", [computed, tuned, computed.fn], ids=["heuristics", "autotuner", "kernel"])
def test_the_slot_sees_every_launch(kernel: Any, seen: list[Any]) -> None:
    o, options = torch.zeros(8), {} if kernel is not computed.fn else {"B": 32}
    kernel[(1,)](o, 8, **options)
    kernel.run(o, 8, grid=(1,), **options)
    assert [launch for launch in seen if launch[0] is kernel] == [(kernel, (1,))] * 2
    assert o.tolist() == [1.0] * 8


def test_numbers() -> None:
    numbers = {thing.number for thing in (axpy, strided, computed, computed.fn, tuned, tuned.fn)}
    assert len(numbers) == 6 and by_number(axpy.number) is axpy and by_number(tuned.number) is tuned


# --- names that last ----------------------------------------------------------------------------------------------

SOURCE = """
import tilewright, tilewright.language as tl
from tilewright.frontend.hashing import content_hash, lasting_hash
{space}
FACTOR: tl.constexpr = {factor}
@tilewright.jit
def callee(x):
    return x * FACTOR
@tilewright.jit
def kernel(x):
    tl.store(x, callee(tl.load(x)))
if __name__ == "__main__":
    print(lasting_hash(kernel), content_hash(kernel))
"""


def hashes(folder: Path, name: str, run: str, space: str = "", factor: int = 2) -> list[str]:
    (folder / f"{name}.py").write_text(SOURCE.format(space=space, factor=factor))
    done = subprocess.run([sys.executable, *run.split()], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_lasting_hash_moves_with_the_kernel(tmp_path: Path) -> None:
    text = "print(lasting_hash(kernel), content_hash(kernel))"
    first = hashes(tmp_path, "one", "one.py")
    moved = hashes(tmp_path, "two", "two.py", space="\n\n\n")
    (tmp_path / "other.py").write_text(f"from one import *\n{text}\n")
    imported = hashes(tmp_path, "one", "other.py")
    changed = hashes(tmp_path, "three", "three.py", factor=3)
    assert first[0] == moved[0] == imported[0] != changed[0]
    assert first[1] != moved[1]


def test_lasting_hashes_differ_where_kernels_do() -> None:
    kernels = [axpy, strided, scaled, pair, blocks, computed.fn, tuned.fn]
    assert len({lasting_hash(kernel) for kernel in kernels}) == len(kernels)
    assert lasting_hash(axpy) != content_hash(axpy)


# --- host helpers -------------------------------------------------------------------------------------------------


@tilewright.jit
def helped(o, N: tl.constexpr):
    tl.store(o, tilewright.cdiv(N, 4) + tilewright.next_power_of_2(N))


def test_host_helpers() -> None:
    o = torch.zeros(1)
    helped[(1,)](o, 10)
    assert o.item() == 3 + 16
    assert [tilewright.next_power_of_2(n) for n in (0, 1, 2, 3, 1024, 1025)] == [1, 1, 2, 4, 1024, 2048]
    assert tilewright.cdiv(1000, 256) == 4 and tilewright.cdiv(-1, 2) == 0 and tilewright.cdiv(0, 8) == 0


def test_host_helpers_trace() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(tilewright.cdiv(x.shape[0], 8), tilewright.next_power_of_2(x.shape[0]))

    compiled = torch.compile(f, fullgraph=True, dynamic=True, backend="eager")
    torch._dynamo.reset()
    for n in (100, 101, 128):
        assert compiled(torch.ones(n)).shape == f(torch.ones(n)).shape
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled(torch.ones(99))
