"""torch.compile on the CPU through Tilewright, against Inductor's C++ and eager: `python -m benchmarks.inductor`.

Steady state: one process in which Tilewright poses as Triton compiles each graph with both of Inductor's CPU back ends
and times the three in turns, with one thread, by processor time, which other work on the machine changes little. First
call: a fresh process with empty caches, importing not included; warm call: a second process with the caches that the
first one left. Where there is no C++ compiler the summary says so and the races are with eager alone.

    python -m benchmarks.inductor --out table.json --minutes 9       as many graphs as are begun in nine minutes
    ... --go-on                                                      those that the table lacks
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.compile_fx
import torch._inductor.config as inductor
import torch.nn.functional as F

from benchmarks import report
from tilewright.tools.timing import compare

_ROOT = Path(__file__).resolve().parents[1]
MEAN, LEAST, FIRST, WARM = 1.1, 0.75, 3.0, 1.0
"""Targets of speed against the C++ back end: geometric mean, least of all, first call, warm call."""
Prepared = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

_WEIGHTS = ((256, 768), (256, 256), (256, 1024), (1024, 256))


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def _block(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """A transformer block with four heads."""
    batch, length, width = x.shape
    heads = (F.layer_norm(x, (width,)) @ qkv).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
    x = x + _attention(*heads.unbind(0)).transpose(1, 2).reshape(batch, length, width) @ out
    return x + F.gelu(F.layer_norm(x, (width,)) @ up) @ down


def _chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + y) * 2 - x.sigmoid()


GRAPHS: dict[str, Callable[[], Prepared]] = {
    "pointwise 1000": lambda: (_chain, (torch.randn(1000), torch.randn(1000))),
    "pointwise 4M": lambda: (_chain, (torch.randn(1 << 22), torch.randn(1 << 22))),
    "gelu 1M": lambda: (F.gelu, (torch.randn(1 << 20),)),
    "softmax 4096x1024": lambda: (lambda x: x.softmax(-1), (torch.randn(4096, 1024),)),
    "layer norm 4096x1024": lambda: (
        lambda x, w, b: F.layer_norm(x, (1024,), w, b), (torch.randn(4096, 1024), torch.rand(1024), torch.randn(1024))
    ),
    "softmax, layer norm, gelu 1024x1024": lambda: (
        lambda x: F.gelu(F.layer_norm(x.softmax(-1), (1024,))), (torch.randn(1024, 1024),)
    ),
    "sum of columns 4096x1024": lambda: (lambda x: x.sum(0), (torch.randn(4096, 1024),)),
    "sum 4M": lambda: (torch.sum, (torch.randn(1 << 22),)),
    "rms norm bf16 1024x1024": lambda: (
        lambda x, w: F.rms_norm(x, (1024,), w), (torch.randn(1024, 1024).bfloat16(), torch.rand(1024).bfloat16())
    ),
    "cross entropy 256x8192": lambda: (F.cross_entropy, (torch.randn(256, 8192), torch.randint(0, 8192, (256,)))),
    "embedding 4096x256": lambda: (
        lambda w, i: F.embedding(i, w) + 1, (torch.randn(1000, 256), torch.randint(0, 1000, (4096,)))
    ),
    "transpose and add 1024x1024": lambda: (lambda x, y: x.t() + y, (torch.randn(1024, 1024), torch.randn(1024, 1024))),
    "attention 8x128x64": lambda: (_attention, (*torch.randn(3, 4, 8, 128, 64),)),
    "transformer block 8x128x256": lambda: (
        _block, (torch.randn(8, 128, 256), *(torch.randn(n, m) / 16 for n, m in _WEIGHTS))
    ),
}  # fmt: skip


def has_compiler() -> bool:
    """Whether Inductor's C++ back end can work here."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None


def _apart(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as code of its own: Dynamo keeps what it compiles by the code object, not by the back end."""

    def call(*inputs: Any) -> Any:
        return fn(*inputs)

    return types.FunctionType(call.__code__.replace(), globals(), closure=call.__closure__)


def compiled(name: str, backend: str) -> tuple[Callable[[], Any], float]:
    """A graph through one of Inductor's CPU back ends ("cpp", "triton"), and the seconds of its first call.

    Raises:
        AssertionError: the result is not eager's.
    """
    torch.manual_seed(0)
    fn, inputs = GRAPHS[name]()
    with inductor.patch(cpu_backend=backend, compile_threads=1), torch.no_grad():
        run = torch.compile(_apart(fn), fullgraph=True, dynamic=False)
        begin = time.perf_counter()
        found = run(*inputs)
        seconds = time.perf_counter() - begin
    tolerance = 2e-2 if found.dtype == torch.bfloat16 else 1e-3
    torch.testing.assert_close(found, fn(*inputs), atol=tolerance, rtol=tolerance)
    return lambda: run(*inputs), seconds


def steady(name: str, seconds: float) -> dict[str, float]:
    """Median seconds of a call: eager, through C++ if that can be, through Tilewright."""
    fn, inputs = GRAPHS[name]()
    calls = {"eager": lambda: fn(*inputs), "tilewright": compiled(name, "triton")[0]}
    if has_compiler():
        calls["cpp"] = compiled(name, "cpp")[0]
    with torch.no_grad():
        return {key: sample.median for key, sample in compare(calls, seconds=seconds, clock=time.thread_time).items()}


def child(folder: str, *arguments: str) -> Any:
    """What a fresh process that poses, with its caches in `folder`, prints: a line of JSON."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TILEWRIGHT_CACHE_DIR": f"{folder}/kernels"}
    path = f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "tilewright.as_triton", "-m", "benchmarks.inductor", *arguments]
    environment = {**os.environ, "PYTHONPATH": path, **caches}
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)


def row_of(name: str, seconds: float, first: bool) -> dict[str, Any]:
    """The row of a graph, by fresh processes: medians of a call, then with `first` first and warm calls by back end."""
    with tempfile.TemporaryDirectory() as folder:
        row = {"graph": name, "seconds": child(folder, "--steady", name, "--seconds", str(seconds))}
    backends = {"tilewright": "triton", "cpp": "cpp"} if has_compiler() else {"tilewright": "triton"}
    for peer, backend in backends.items() if first else ():
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("first", "warm"):
                row.setdefault(kind, {})[peer] = child(folder, "--first", f"{backend}:{name}")
    return row


def show(row: dict[str, Any]) -> None:
    """Print a row."""
    times = row["seconds"]
    print(f"{row['graph']:36} {times['tilewright'] * 1e6:9.0f} µs", end=" ")
    print(*[f"{peer}/ours {times[peer] / times['tilewright']:5.2f}" for peer in times if peer != "tilewright"], end=" ")
    print(*[f"{k} {p} {v:.1f} s" for k in ("first", "warm") for p, v in row.get(k, {}).items()], flush=True)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios of the peers' times to Tilewright's over all graphs, beside the targets."""
    found: dict[str, Any] = {} if has_compiler() else {"cpp": "no C++ compiler on this machine"}
    for peer in ("cpp", "eager"):
        ratios = [row["seconds"][peer] / row["seconds"]["tilewright"] for row in rows if peer in row["seconds"]]
        if ratios:
            found[peer] = {"mean": statistics.geometric_mean(ratios), "least": min(ratios)}
    for kind in ("first", "warm"):
        ratios = [row[kind]["cpp"] / row[kind]["tilewright"] for row in rows if "cpp" in row.get(kind, {})]
        if ratios:
            found[f"{kind} call"] = {"mean": statistics.geometric_mean(ratios), "least": min(ratios)}
    return {**found, "targets": {"mean": MEAN, "least": LEAST, "first call": FIRST, "warm call": WARM}}


def write(out: Path | None, rows: list[dict[str, Any]]) -> None:
    """Write the table as it is so far."""
    if out:
        document = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": " ".join(["python -m benchmarks.inductor", *sys.argv[1:]]),
            **report.where(), "graphs": rows, "summary": summary(rows),
        }  # fmt: skip
        out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, print and write the table; with `--steady` or `--first` one process's share of it."""
    parser = argparse.ArgumentParser(description="torch.compile on the CPU: Tilewright, C++, eager")
    parser.add_argument("--only", default="", help="graphs whose names hold this")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one race")
    parser.add_argument("--no-first", action="store_true", help="leave out first and warm calls, which take minutes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no graph is begun")
    parser.add_argument("--go-on", action="store_true", help="keep the rows that --out has")
    parser.add_argument("--steady", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.first:
        backend, _, name = asked.first.partition(":")
        return print(json.dumps(compiled(name, backend)[1]))
    if asked.steady:
        return print(json.dumps(steady(asked.steady, asked.seconds)))
    begin, rows = time.monotonic(), []
    if asked.go_on and asked.out.exists():
        rows = json.loads(asked.out.read_text(encoding="utf-8"))["graphs"]
    for name in GRAPHS:
        measured = any(row["graph"] == name for row in rows)
        if asked.only in name and not measured and time.monotonic() - begin < asked.minutes * 60:
            rows.append(row_of(name, asked.seconds, not asked.no_first))
            show(rows[-1])
            write(asked.out, rows)
    print(json.dumps(summary(rows), indent=1))
    return None


if __name__ == "__main__":
    main()
