"""Forms of launches against torch.add(out=) and a binder in plain Python: `python -m benchmarks.launch_race`."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

import tilewright
import tilewright.language as tl
from benchmarks.startup import Timing
from tilewright.backends.llvm.calls import tables as t
from tilewright.launch import tracer_slot
from tilewright.tools.tensor_descriptor import TensorDescriptor
from tilewright.tools.timing import compare

_PEER = "torch.add(out=), 8 elements"


@tilewright.jit
def nine(a, b, c, d, e, f, n, m, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Six arrays, two integers and a constant."""


@tilewright.jit
def nineteen(a, b, c, d, e, f, g, h, i, j, k, l, n, m, o, p, q, r, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: E741
    """Twelve arrays, six integers and a constant."""


@tilewright.jit
def packed(arrays, n, m, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tuple of arrays, two integers and a constant."""


class PythonBinder:
    """What a launcher in plain Python has to do at least: bind, classify each argument, look the key up, call."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._signature = inspect.signature(fn)
        self._known: dict[Any, Callable[..., None]] = {}

    def launch(self, grid: tuple[int, ...], *args: Any, **kwargs: Any) -> None:
        """Launch a kernel that does nothing."""
        bound = self._signature.bind(*args, **kwargs).arguments
        key: list[Any] = []
        values: list[int] = []
        for value in bound.values():
            if isinstance(value, torch.Tensor):
                address = value.data_ptr()
                key.append((value.dtype, value.device, address % 16 == 0))
                values.append(address)
            else:
                key.append((value == 1, value % 16 == 0))
                values.append(value)
        self._known.setdefault(tuple(key), _nothing)(*grid, *values)


def _nothing(*values: int) -> None:
    """The kernel of `PythonBinder`."""


def _bodies() -> dict[str, Callable[[], Any]]:
    x, grid = torch.zeros(8), (1,)
    a, b, c, d, e, f, g, h, i, j, k, l = (torch.zeros(64) for _ in range(12))  # noqa: E741
    box = TensorDescriptor.from_tensor(torch.zeros(16, 16), [4, 4])
    configs = [tilewright.Config({"BLOCK": block}) for block in (64, 32)]
    tuned = tilewright.autotune(configs, key=["n"], do_bench=lambda call, quantiles: [1.0, 1.0, 1.0])(
        tilewright.jit(nine.fn)
    )
    run = nine.warmup(a, b, c, d, e, f, 100, 9, BLOCK=64).run
    kept, binder = tilewright.jit(nine.fn)[grid], PythonBinder(nine.fn)  # kept before anything was launched
    return {
        _PEER: lambda: torch.add(x, x, out=x),
        "9 arguments": lambda: nine[grid](a, b, c, d, e, f, 100, 9, BLOCK=64),
        "19 arguments": lambda: nineteen[grid](a, b, c, d, e, f, g, h, i, j, k, l, 1, 2, 3, 4, 5, 6, BLOCK=64),
        "kept from the start": lambda: kept(a, b, c, d, e, f, 100, 9, BLOCK=64),
        "6 arrays in a tuple": lambda: packed[grid]((a, b, c, d, e, f), 100, 9, BLOCK=64),
        "a descriptor": lambda: nine[grid](box, b, c, d, e, f, 100, 9, BLOCK=64),
        "grid function": lambda: nine[lambda meta: (1,)](a, b, c, d, e, f, 100, 9, BLOCK=64),
        "autotuned": lambda: tuned[grid](a, b, c, d, e, f, 100, 9),
        "CompiledKernel.run": lambda: run(1, 1, 1, 0, None, None, None, None, None, a, b, c, d, e, f, 100, 9, 64),
        "binder in plain Python": lambda: binder.launch(grid, a, b, c, d, e, f, 100, 9, BLOCK=64),
    }


_HOOKED = "with a launch hook"
_TRACED = "with tilewright.torch"
_MOST = {
    "9 arguments": 1e-6,
    _HOOKED: 3e-6,
    "19 arguments": 2e-6,
    "kept from the start": 3e-6,
    "6 arrays in a tuple": 3e-6,
    "a descriptor": 3e-6,
    _TRACED: 2.1e-6,
}


def race(seconds: float = 1.5) -> Iterator[Timing]:
    """The medians of all forms, taken in turns; those with a hook apart, as it is there for all launches."""
    bodies = _bodies()
    yield from _timings(bodies, seconds)
    hooks = tilewright.knobs.runtime
    with hooks.scope():
        hooks.launch_enter_hook.add(_hear)
        hooked = {_HOOKED: bodies["9 arguments"], f"{_PEER} (beside that)": bodies[_PEER]}
        yield from _timings(hooked, seconds / 4)
    importlib.import_module("tilewright.torch")  # from here on a tracer of torch looks at each launch
    traced = {_TRACED: bodies["9 arguments"], f"{_PEER} (beside this)": bodies[_PEER]}
    yield from _timings(traced, seconds / 4)
    tracer_slot.install(None)


def _timings(bodies: dict[str, Callable[[], Any]], seconds: float) -> Iterator[Timing]:
    for body in bodies.values():
        for _ in range(3):
            body()
    for name, sample in compare(bodies, seconds=seconds).items():
        yield Timing("launch", name, sample.median, _MOST.get(name))


@tilewright.jit
def added(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Three arrays, of which one is stored."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@tilewright.jit
def added_up(a, b, c, d, e, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Six arrays, of which one is stored."""
    i = tl.arange(0, BLOCK)
    total = tl.load(a + i) + tl.load(b + i) + tl.load(c + i) + tl.load(d + i) + tl.load(e + i)
    tl.store(out + i, total, i < n)


def comparing() -> Iterator[tuple[str, float, float]]:
    """Seconds of a launch that does not compare the memory of its arguments, and of one that does: the least twentieth
    of short turns."""
    rows, arrays = torch.zeros(6, 64), [np.zeros(64, np.float32) for _ in range(3)]
    own = sorted((torch.zeros(64) for _ in range(6)), key=torch.Tensor.data_ptr)
    cases: dict[str, tuple[Any, Sequence[Any]]] = {
        "3 tensors": (added, own[:3]),
        "3 tensors, the lowest stored": (added, own[2::-1]),
        "3 rows of one tensor": (added, list(rows[:3])),
        "3 arrays of numpy": (added, arrays),
        "6 tensors": (added_up, own),
        "6 tensors, the lowest stored": (added_up, own[::-1]),
    }
    for name, (kernel, args) in cases.items():
        kernel = tilewright.jit(kernel.fn)
        launch = kernel[(1,)]
        for _ in range(4):
            launch(*args, 8, BLOCK=8)
        entry = kernel._binder.builtin._entries[-1][0]
        turns: dict[int, list[int]] = {0: [], entry[t.ENTRY_NPAIRS]: []}
        for _ in range(1000):
            for pairs, found in turns.items():
                entry[t.ENTRY_NPAIRS] = pairs
                start = time.perf_counter_ns()
                for _ in range(400):
                    launch(*args, 8, BLOCK=8)
                found.append(time.perf_counter_ns() - start)
        without, beside = (sum(sorted(found)[:50]) / 50 / 400 * 1e-9 for found in turns.values())
        yield name, without, beside


def _hear(facts: Any) -> None:
    """A hook that does nothing."""


def main() -> None:
    """Print the table."""
    for timing in race():
        print(f"{timing.case:32}{timing.seconds * 1e6:8.2f} µs")
    for name, without, beside in comparing():
        print(f"{name:32}{without * 1e9:8.1f} ns, {(beside - without) * 1e9:.1f} more with arguments compared")


if __name__ == "__main__":
    main()
