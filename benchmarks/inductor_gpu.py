"""torch.compile on an NVIDIA GPU: Tilewright as Triton against Triton itself: `python -m benchmarks.inductor_gpu`.

Each side compiles the graphs of `benchmarks.inductor`, and two sorts, in a fresh process with empty caches, after one
graph that loads the compilers. Of a graph are measured the seconds of its first call, those of them that
`triton.compile` takes, the microseconds that a call takes on the GPU (ten calls in a captured graph, median of fifteen
replays), and those of the host until a call is queued.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor

from benchmarks import report
from benchmarks.inductor import GRAPHS

_ROOT = Path(__file__).resolve().parents[1]
SIDES = {"triton": ["-m"], "tilewright": ["-m", "tilewright.as_triton", "-m"]}
"""What comes before the name of a module on the command line of each side's process."""
KEYS = ("first", "compile", "gpu", "host")
CALLS, REPLAYS = 10, 15
SORTS = {
    f"sort 4096x{width}": lambda width=width: (lambda x: torch.sort(x, dim=1).values, (torch.randn(4096, width),))
    for width in (16, 96)
}
"""What Inductor writes a network for in one kernel, on GPUs only: the longest kernels of its own."""


def on_gpu(call: Callable[[], Any]) -> float:
    """Seconds of a call on the GPU."""
    with torch.cuda.stream(torch.cuda.Stream()):
        call()
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    for _ in range(REPLAYS + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / CALLS / 1e3)
    return statistics.median(times[3:])


def on_host(call: Callable[[], Any]) -> float:
    """Seconds until a call is queued."""
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        for _ in range(40):
            call()
        times.append((time.perf_counter() - begin) / 40)
        torch.cuda.synchronize()
    return statistics.median(times)


@contextlib.contextmanager
def watched() -> Iterator[list[tuple[str, float, dict[str, float]]]]:
    """Inside, name, seconds, and seconds by stage (of Tilewright) of each kernel that `triton.compile` makes."""
    triton = importlib.import_module("triton")
    compile, made = triton.compile, []

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        kernel = compile(*args, **kwargs)
        stages = {stage: round(s, 4) for stage, s in getattr(kernel, "seconds", {}).items()}
        made.append((kernel.metadata.name, round(time.perf_counter() - begin, 4), stages))
        return kernel

    triton.compile = timed
    try:
        yield made
    finally:
        triton.compile = compile


def measure(name: str) -> dict[str, Any]:
    """The row of a graph in this process.

    Raises:
        AssertionError: the result is not eager's.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    fn, inputs = (GRAPHS | SORTS)[name]()
    inputs = tuple(x.cuda() for x in inputs)
    with torch.no_grad():
        run = torch.compile(lambda *a: fn(*a), fullgraph=True, dynamic=False)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with watched() as made:
            found = run(*inputs)
            torch.cuda.synchronize()
        first = time.perf_counter() - begin
        tolerance = 2e-2 if found.dtype == torch.bfloat16 else 1e-3
        torch.testing.assert_close(found, fn(*inputs), atol=tolerance, rtol=tolerance)
        return {
            "graph": name, "first": first, "compile": sum(s for _, s, _ in made), "kernels": made,
            "gpu": on_gpu(lambda: run(*inputs)), "host": on_host(lambda: run(*inputs)),
        }  # fmt: skip


def child(only: str) -> None:
    """Print a line of JSON for each graph."""
    inductor.compile_threads = 1
    inductor.fx_graph_cache = False
    torch.compile(lambda x: (x * 2).sum(-1), dynamic=False)(torch.randn(100, 300, device="cuda"))
    for name in GRAPHS | SORTS:
        if only in name:
            print(json.dumps(measure(name)), flush=True)


def side(name: str, only: str) -> Iterator[dict[str, Any]]:
    """The rows of one side."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"TORCHINDUCTOR_CACHE_DIR": "i", "TILEWRIGHT_CACHE_DIR": "k", "TRITON_CACHE_DIR": "t"}
        fresh = {variable: f"{folder}/{place}" for variable, place in places.items()}
        path = f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        command = [sys.executable, *SIDES[name], "benchmarks.inductor_gpu", "--child", "--only", only]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path, **fresh}, stdout=subprocess.PIPE, text=True, check=True
        )
        yield from map(json.loads, done.stdout.splitlines())


def main() -> None:
    """Measure both sides, print and write the table."""
    parser = argparse.ArgumentParser(description="torch.compile on a GPU: Tilewright as Triton, and Triton")
    parser.add_argument("--only", default="", help="graphs whose names hold this")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        return child(asked.only)
    sides = {name: {row.pop("graph"): row for row in side(name, asked.only)} for name in SIDES}
    rows: list[dict[str, Any]] = []
    for graph, ours in sides["tilewright"].items():
        its = sides["triton"][graph]
        rows.append({"graph": graph, "tilewright": ours, "triton": its})
        shown = [f"{key} {its[key]:.3g} / {ours[key]:.3g} = {its[key] / ours[key]:5.2f}" for key in KEYS]
        print(f"{graph:36}", *shown, f"{len(its['kernels'])} / {len(ours['kernels'])} kernels")
    ratios = {key: [row["triton"][key] / row["tilewright"][key] for row in rows] for key in KEYS}
    summary = {key: {"mean": statistics.geometric_mean(r), "least": min(r)} for key, r in ratios.items()}
    summary["sums"] = {
        f"{key} of {name}": sum(row[name][key] for row in rows) for key in ("first", "compile") for name in SIDES
    }
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), **report.where(),
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "graphs": rows, "summary": summary,
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    path = asked.out or report.results(f"{torch.cuda.get_device_name()}-inductor")
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
