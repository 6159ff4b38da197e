"""What PyTorch adds to a launch: `python -m benchmarks.torch_ops`.

Rows of one machine, one thread, medians of calls taken in turns. The kernel adds two vectors of 64 numbers, so what is
timed is the way to it. "custom_op" is `torch.library.custom_op` around the same function.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
import tilewright.language as tl
from tilewright.tools.timing import compare
from tilewright.torch import triton_op


@tilewright.jit
def add(x, y, o, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    """o = x + y."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


def body(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The function that is made an operator."""
    o = torch.empty_like(x)
    add[(1,)](x, y, o, 64, 64)
    return o


def chain(count: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function with `count` launches, each into a buffer of its own."""

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = body(x, y)
        return x if count else x.view(-1)

    return run


def eager_rows(x: torch.Tensor, y: torch.Tensor, seconds: float) -> dict[str, float]:
    """Microseconds of calls in eager."""
    op = triton_op("twbench::add", body, mutates_args=())
    op(x, y)
    custom = torch.library.custom_op("twbench::custom", body, mutates_args=())
    o = torch.empty_like(x)
    name = next(n.target for n in make_fx(body)(x, y).graph.nodes if "tilewright_kernels" in str(n.target))
    kinds = {"x": "*fp32", "y": "*fp32", "o": "*fp32", "n": "int"}
    prepared = add.prepare(kinds, {"B": 64}, host_only=True)
    calls: dict[str, Callable[[], Any]] = {
        "function": lambda: body(x, y),
        "operator": lambda: op(x, y),
        "torch.ops": lambda: torch.ops.twbench.add(x, y),
        "custom_op": lambda: custom(x, y),
        "bare launch": lambda: add[(1,)](x, y, o, 64, 64),
        "prepared launch": lambda: prepared(1, 1, 1, x, y, o, 64),
        "kernel operator": lambda: name(x, y, o, 64, 1),
    }
    return {key: sample.median * 1e6 for key, sample in compare(calls, seconds=seconds).items()}


def compiled_rows(x: torch.Tensor, y: torch.Tensor, seconds: float) -> dict[str, float]:
    """Microseconds of compiled functions with no launch, one, and eleven."""
    calls: dict[str, Callable[[], Any]] = {}
    for count in (0, 1, 11):
        compiled = torch.compile(chain(count), fullgraph=True)
        compiled(x, y)
        calls[f"compiled, {count} launches"] = lambda compiled=compiled: compiled(x, y)
    return {key: sample.median * 1e6 for key, sample in compare(calls, seconds=seconds).items()}


def tracing_milliseconds(x: torch.Tensor, y: torch.Tensor) -> float:
    """Median time of tracing a launch that was not traced before, its function's other operations included."""

    def launching(block: int) -> Callable[[torch.Tensor, torch.Tensor], Any]:
        return lambda a, b: add[(1,)](a, b, a, 64, block)

    times = []
    for block in (16, 32, 128, 256, 512):
        begin = time.perf_counter()
        make_fx(launching(block))(x, y)
        times.append((time.perf_counter() - begin) * 1e3)
    return sorted(times)[2]


def main(seconds: float = 2.0) -> None:
    """Measure, and print one JSON object with what the rows say against their aims."""
    torch.set_num_threads(1)
    x, y = torch.randn(2, 64)
    eager, compiled = eager_rows(x, y, seconds), compiled_rows(x, y, seconds)
    launch = (compiled["compiled, 11 launches"] - compiled["compiled, 1 launches"]) / 10
    summary = {
        "operator over function (aim 2)": eager["operator"] - eager["function"],
        "torch.ops over function (aim 5)": eager["torch.ops"] - eager["function"],
        "custom_op over function": eager["custom_op"] - eager["function"],
        "kernel operator over prepared launch (aim 3.5)": eager["kernel operator"] - eager["prepared launch"],
        "launch in a compiled function (aim 6)": launch,
        "guards of one launch (aim 5)": compiled["compiled, 1 launches"] - compiled["compiled, 0 launches"] - launch,
        "tracing a new launch, ms (aim 10)": tracing_milliseconds(x, y),
    }
    rows = {**eager, **compiled, **summary}
    print(json.dumps({key: round(value, 2) for key, value in rows.items()}, indent=2))


if __name__ == "__main__":
    main()
