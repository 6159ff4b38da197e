"""What a launch costs, and what it costs torch: `python -m benchmarks.launch`.

The kernels are a few lines of LLVM IR that do nothing or count, so only the launcher is timed: binding, threads,
scratch. Every row is the best of several repeats; the rows of the second table are interleaved with torch operations
in one process, for each way of getting threads, to show whether the two get in each other's way.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.launch_race import race
from tilewright.backends.cpu.device import KernelCode, make_launch, team
from tilewright.backends.llvm.codegen import Library, compile_object, load
from tilewright.backends.llvm.features import host
from tilewright.base.knobs import knobs
from tilewright.compile.specialize import parse_params
from tilewright.launch.bind import Binder, Call, Prepared

# `busy` spends about 0.35 ms on a grid of 64 programs with one thread.
KERNELS = """
define void @empty(i64 %lo, i64 %hi, ptr %args, ptr %arena) nounwind { ret void }
define void @busy(i64 %lo, i64 %hi, ptr %args, ptr %arena) nounwind {
entry:
  %programs = sub i64 %hi, %lo
  %n = mul i64 %programs, 12000
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %i1 = add i64 %i, 1
  call void asm sideeffect "", "r"(i64 %i)
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


def best_microseconds(body: Callable[[], Any], calls: int = 20_000, repeats: int = 7) -> float:
    """Least mean time of a call over several repeats, in microseconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        times.append(time.perf_counter() - begin)
    return min(times) / calls * 1e6


class Launchable:
    """A kernel with the parameters of `signature`, behind the same binder that compiled kernels have."""

    def __init__(self, library: Library, symbol: str, signature: Callable[..., None], scratch: int = 0) -> None:
        def resolve(call: Call) -> Prepared:
            types = call.specialization.runtime_types
            code = KernelCode(library.address(symbol), types, scratch, owner=library)
            return Prepared(symbol, make_launch(code, num_threads=call.num_threads))

        self._binder = Binder(symbol, parse_params(inspect.signature(signature)), resolve)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._binder.launch, grid)


def six(a, b, c, d, e, f, n, BLOCK: constexpr = 64):  # type: ignore[no-untyped-def]  # noqa: F821
    """Six arrays, an integer and a constant."""


def twelve(a, b, c, d, e, f, g, h, i, j, k, l, n, BLOCK: constexpr = 64):  # type: ignore[no-untyped-def]  # noqa: F821, E741
    """Twelve arrays, an integer and a constant."""


def launch_table(library: Library) -> dict[str, float]:
    """Microseconds of one launch of a kernel that does nothing, by way of calling it."""
    kernel, wide, scratch = (
        Launchable(library, "empty", six),
        Launchable(library, "empty", twelve),
        Launchable(library, "empty", six, scratch=100_000),
    )
    tensors = [torch.zeros(64) for _ in range(12)]
    arrays = [np.zeros(64, np.float32) for _ in range(6)]
    x, big = torch.zeros(8), torch.zeros(1 << 16)
    direct = make_launch(KernelCode(library.address("empty"), ("*fp32",) * 6 + ("i32",), owner=library))
    addresses = [tensor.data_ptr() for tensor in tensors[:6]]
    few = tensors[:6]
    bodies: dict[str, Callable[[], Any]] = {
        "native launch, addresses given, grid 1": lambda: direct(1, 1, 1, *addresses, 100),
        "6 torch tensors, grid 1": lambda: kernel[(1,)](*few, 100, BLOCK=64),
        "6 torch tensors, grid 1, num_warps=4": lambda: kernel[(1,)](*few, 100, BLOCK=64, num_warps=4),
        "6 torch tensors, grid function": lambda: kernel[lambda meta: (1,)](*few, 100, BLOCK=64),
        "6 torch tensors, grid 1, with scratch": lambda: scratch[(1,)](*few, 100, BLOCK=64),
        "6 torch tensors, grid 64": lambda: kernel[(64,)](*few, 100, BLOCK=64),
        "12 torch tensors, grid 1": lambda: wide[(1,)](*tensors, 100, BLOCK=64),
        "6 numpy arrays, grid 1": lambda: kernel[(1,)](*arrays, 100, BLOCK=64),
        "torch.add(out=), 8 elements": lambda: torch.add(x, x, out=x),
        "torch.add(out=), 64K elements": lambda: torch.add(big, big, out=big),
    }
    return {name: best_microseconds(body) for name, body in bodies.items()}


def sharing_table(library: Library, rounds: int = 300) -> dict[str, dict[str, float]]:
    """Median microseconds of torch.add on 64K elements and of a kernel, alone and in turn, by kind of threads."""
    big = torch.zeros(1 << 16)
    direct = make_launch(KernelCode(library.address("busy"), ("*fp32",), owner=library))

    def add() -> None:
        torch.add(big, big, out=big)

    def kernel() -> None:
        direct(64, 1, 1, 0)

    def median(*bodies: Callable[[], None]) -> float:
        times = []
        for _ in range(rounds):
            begin = time.perf_counter()
            for body in bodies:
                body()
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e6

    table = {}
    for mode in ("openmp", "pool", "serial"):
        knobs.cpu.threading = mode
        median(add, kernel)
        table[mode] = {"torch.add": median(add), "kernel": median(kernel), "in turn": median(add, kernel)}
    knobs.cpu.threading = "auto"
    return table


def main() -> None:
    """Print both tables, or with `--json` one object."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    library = load(compile_object(KERNELS, host()), ("empty", "busy"))
    launches = launch_table(library)
    threads = team.describe()
    sharing = sharing_table(library)
    against = {timing.case: timing.seconds * 1e6 for timing in race()}
    if as_json:
        print(
            json.dumps({"threads": threads, "launch_us": launches, "race_us": against, "sharing_us": sharing}, indent=2)
        )
        return
    print(f"threads: {threads}\n\nlaunch of an empty kernel, microseconds")
    for name, value in launches.items():
        print(f"  {name:44}{value:8.2f}")
    print("\nforms of launches of an empty compiled kernel, in turns with torch, median microseconds")
    for name, value in against.items():
        print(f"  {name:44}{value:8.2f}")
    print("\nalternating with torch, median microseconds")
    print(f"  {'threads':10}{'torch.add 64K':>16}{'kernel alone':>16}{'one of each':>16}")
    for mode, row in sharing.items():
        print(f"  {mode:10}{row['torch.add']:16.1f}{row['kernel']:16.1f}{row['in turn']:16.1f}")


if __name__ == "__main__":
    main()
