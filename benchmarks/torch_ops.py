"""What PyTorch adds to a launch, beside what its own ways add: `python -m benchmarks.torch_ops`.

One thread, medians of calls taken in turns. The kernel adds two vectors of 64 numbers, so what is timed is the way to
it. PyTorch's own: `torch.library.custom_op` around the same function, and `torch.library.triton_op` and launches in
compiled functions by its operators for Triton's kernels, to which Tilewright shows itself as Triton. The latter need
processes of their own (`own`), which take turns with those that time Tilewright (`ours`).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
import tilewright.language as tl
from benchmarks.startup import Timing
from tilewright.base.callable import by_number
from tilewright.tools.timing import compare

_ROOT = Path(__file__).resolve().parents[1]
Calls = dict[str, Callable[[], Any]]


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


def allocating(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`body` without its launch."""
    return torch.empty_like(x) if y is not None else x


def chain(count: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function with `count` launches, each into a buffer of its own."""

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = body(x, y)
        return x if count else x.view(-1)

    return run


def _medians(calls: Calls, seconds: float) -> dict[str, float]:
    return {key: sample.median for key, sample in compare(calls, seconds=seconds).items()}


def _compiled_rows(x: torch.Tensor, y: torch.Tensor, seconds: float) -> dict[str, float]:
    """Seconds of a launch in a compiled function, and of the guards of one, over a function that only allocates."""
    calls: Calls = {}
    for count in (1, 11):
        compiled = torch.compile(chain(count), fullgraph=True)
        compiled(x, y)
        calls[f"{count}"] = lambda compiled=compiled: compiled(x, y)
    guards: Calls = {}
    for fn in (body, allocating):
        torch.compile(fn, fullgraph=True, backend="eager")(x, y)
        check = _debug_get_cache_entry_list(fn.__code__)[0].guard_manager.check
        guards[fn.__name__] = lambda check=check, values={"x": x, "y": y}: check(values)
    launches, checks = _medians(calls, seconds), _medians(guards, seconds)
    return {"compiled launch": (launches["11"] - launches["1"]) / 10, "guards": checks["body"] - checks["allocating"]}


def ours(seconds: float) -> dict[str, float]:
    """Seconds that Tilewright's operators add."""
    from tilewright.torch import triton_op

    x, y = torch.randn(2, 64)
    op = triton_op("twbench::add", body, mutates_args=())
    custom = torch.library.custom_op("twbench::custom", body, mutates_args=())
    op(x, y)
    o = torch.empty_like(x)
    name = next(n.target for n in make_fx(body)(x, y).graph.nodes if "tilewright_kernels" in str(n.target))
    prepared = add.prepare({"x": "*fp32", "y": "*fp32", "o": "*fp32", "n": "int"}, {"B": 64}, host_only=True)
    times = _medians(
        {
            "function": lambda: body(x, y),
            "operator": lambda: op(x, y),
            "torch.ops": lambda: torch.ops.twbench.add(x, y),
            "custom_op": lambda: custom(x, y),
            "prepared": lambda: prepared(1, 1, 1, x, y, o, 64),
            "kernel operator": lambda: name(x, y, o, 64, 1),
        },
        seconds,
    )
    return {
        "operator": times["operator"] - times["function"],
        "torch.ops": times["torch.ops"] - times["function"],
        "custom_op": times["custom_op"] - times["function"],
        "kernel operator": times["kernel operator"] - times["prepared"],
        **_compiled_rows(x, y, seconds),
        "tracing": _tracing(x, y),
    }


def own(seconds: float) -> dict[str, float]:
    """Seconds that PyTorch's own operators of kernels add; only where Tilewright poses as Triton."""
    x, y = torch.randn(2, 64)
    op: Any = torch.library.triton_op("twbench::own", body, mutates_args=())
    op(x, y)
    times = _medians({"function": lambda: body(x, y), "operator": lambda: op(x, y)}, seconds)
    launches = _compiled_rows(x, y, seconds)
    return {"own operator": times["operator"] - times["function"], **{f"own {k}": v for k, v in launches.items()}}


def _tracing(x: torch.Tensor, y: torch.Tensor) -> float:
    """Median of what a launch that was not traced before adds to tracing a function: front end and definition."""
    from tilewright.torch.operators import operator_for
    from tilewright.torch.recording import described
    from tilewright.torch.signature import Signature

    times = []
    for block in (16, 32, 128, 256, 512):
        signature, _ = described(add, (1,), (x, y, x, 64, block), {})
        assert by_number(signature[0]) is add
        begin = time.perf_counter()
        operator_for(Signature(*signature))
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


_ROWS = {  # case: (row, most microseconds or None)
    "operator, over its function": ("operator", 2.0),
    "the same by torch.library.custom_op": ("custom_op", None),
    "the same by torch.library.triton_op": ("own operator", None),
    "the same as torch.ops.lib.name": ("torch.ops", 5.0),
    "kernel operator, over a prepared launch": ("kernel operator", 3.5),
    "launch in a compiled function": ("compiled launch", 6.0),
    "the same by PyTorch's operator of Triton's kernels": ("own compiled launch", None),
    "guards of one launch": ("guards", 5.0),
    "the same by PyTorch's operator of Triton's kernels ": ("own guards", None),
    "tracing a new launch": ("tracing", 10_000.0),
}


def torch_times(seconds: float = 1.5, runs: int = 3) -> Iterator[Timing]:
    """The rows of the table, medians of processes that take turns.

    Args:
        seconds: of each group of calls.
        runs: processes of each kind.
    """
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        for arguments in (
            ["-m", "benchmarks.torch_ops", "ours"],
            ["-m", "tilewright.as_triton", "-m", "benchmarks.torch_ops", "own"],
        ):
            for row, value in _child(*arguments, str(seconds)).items():
                found.setdefault(row, []).append(value)
    for case, (row, most) in _ROWS.items():
        limit = None if most is None else most * 1e-6
        yield Timing("torch", case.strip(), statistics.median(found[row]), limit)


def _child(*arguments: str) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    rows: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> None:
    """Print the table; as `ours SECONDS` or `own SECONDS` one process's share of it, as JSON."""
    torch.set_num_threads(1)
    if len(sys.argv) == 3:
        print(json.dumps({"ours": ours, "own": own}[sys.argv[1]](float(sys.argv[2]))))
        return
    for timing in torch_times():
        target = "" if timing.target is None else f"at most {timing.target * 1e6:g}"
        print(f"{timing.case:55} {timing.seconds * 1e6:9.2f} µs  {target}")


if __name__ == "__main__":
    main()
