"""The default configuration of every example of hl against the best of random ones, or of a full search.

    python -m benchmarks.hl_defaults [--device cuda] [--threads N] [--count 40] [--only TEXT] [--seconds S]
                                     [--limit S] [--search S] [--out FILE]

Candidates are compiled beside each other, compared with the default and timed in turns, as tuning does it. The best of
them and the default then take turns once more: with so many candidates the first ranking flatters its winner. With one
thread of a CPU that race counts processor time, which other programs disturb less. For a GPU the candidates of all
examples are compiled first, by as many processes as there are cores; those that are not ready after `--limit` seconds
take no part, and the report says how many did. With `--search` candidates are those of a full search of so many
seconds, on a CPU.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import platform
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TILEWRIGHT_CACHE_DIR", tempfile.mkdtemp(prefix="tilewright-bench-"))  # shared by the processes

import torch

from benchmarks.children import spread
from benchmarks.device_turns import in_turns
from benchmarks.hl_workloads import WORKLOADS, workload
from tilewright import hl
from tilewright.base.knobs import knobs
from tilewright.hl.tune.driver import Driver
from tilewright.tools.timing import compare, threads

TARGET = 0.67
_FINALISTS = 3
_COMPILE, _MEASURE = 40.0, 120.0  # seconds after which a candidate, or a workload, is given up on a GPU


@functools.lru_cache(2)
def _bound(name: str, device: str) -> tuple[Any, Any]:
    kernel, args = workload(name, device)
    return kernel.bind(args), args


def candidates(bound: Any, name: str, count: int) -> list[hl.Config]:
    """The default of a workload's kernel, then random configurations, always the same ones."""
    spec, rng = bound.config_spec, random.Random(name)
    return [spec.default_config(), *(spec.random(rng) for _ in range(count))]


def compile_one(name: str, device: str, number: int) -> None:
    """Compile a candidate of a workload, by its number, into the cache on disk."""
    bound, args = _bound(name, device)
    bound.precompile(candidates(bound, name, number)[number], args)


def measure(name: str, device: str, numbers: Sequence[int], seconds: float, search: float = 0.0) -> dict[str, Any]:
    """The ratio of the best time to the default's, with both configurations.

    Args:
        name: of the workload.
        device: "cpu" or "cuda".
        numbers: which candidates take part beside the default, the first one.
        seconds: time of the last race.
        search: seconds of a full search in the place of these candidates; 0 for none.
    """
    start = time.perf_counter()
    bound, args = _bound(name, device)
    default = bound.config_spec.default_config()
    driver = Driver(bound, args)
    if search:
        bound.settings.autotune_budget_seconds = search
        driver.search("full")
    else:
        given = candidates(bound, name, max(numbers))
        driver.race([default, *(given[number] for number in numbers if number)])
        driver.close()
    ranked = sorted(driver.times, key=lambda config: driver.times[config])
    last = list(dict.fromkeys([default, *ranked[:_FINALISTS]]))
    turn = _on_gpu(bound, args, last) if device != "cpu" else _on_cpu(bound, args, last, seconds)
    best = min(last, key=lambda config: turn[config])
    return {
        "name": name,
        "ratio": turn[best] / turn[default],
        "default_seconds": turn[default],
        "best_seconds": turn[best],
        "default": dict(default.minimize(bound.config_spec)),
        "best": dict(best.minimize(bound.config_spec)),
        "timed": len(driver.times),
        "out": sorted({reason[:120] for reason in driver.failures.values()}),
        "wall": time.perf_counter() - start,
    }


def _on_cpu(bound: Any, args: Any, configs: list[hl.Config], seconds: float) -> dict[hl.Config, float]:
    def call(config: hl.Config) -> Callable[[], Any]:
        run = bound.compile_config(config)
        return lambda: run(*args)

    functions: dict[Any, Callable[[], Any]] = {config: call(config) for config in configs}
    clock = time.thread_time if knobs.cpu.num_threads == 1 else time.perf_counter
    return {config: sample.median for config, sample in compare(functions, seconds=seconds, clock=clock).items()}


def _on_gpu(bound: Any, args: Any, configs: list[hl.Config]) -> dict[hl.Config, float]:
    runs = {config: bound.compile_config(config) for config in configs}
    return in_turns({config: functools.partial(run, *args) for config, run in runs.items()})


def measured(
    names: Sequence[str], device: str, count: int, seconds: float, limit: float, search: float
) -> Iterator[dict[str, Any]]:
    """What `measure` says of every workload; on a GPU in a process of its own, behind the compiling of all."""
    if device == "cpu":
        for name in names:
            yield measure(name, device, range(count + 1), seconds, search)
        return
    tasks = [(name, device, number) for number in range(count + 1) for name in names]
    ready: dict[str, list[int]] = {name: [] for name in names}
    start = time.perf_counter()
    reasons: Counter[str] = Counter()
    for (name, _, number), failed in spread(compile_one, tasks, os.cpu_count() or 1, _COMPILE, limit):
        if failed is None:
            ready[name].append(number)
        else:
            reasons[f"{name}: {str(failed)[:150]!r}"] += 1
    print(
        f"compiled {sum(map(len, ready.values()))} of {len(tasks)} in {time.perf_counter() - start:.0f} s", flush=True
    )
    work = [(name, device, sorted({0, *numbers}), seconds) for name, numbers in ready.items()]
    for (name, *_), row in spread(measure, work, 1, _MEASURE, _MEASURE * len(work)):
        if isinstance(row, dict):
            yield row
        else:
            print(f"! {name}: {row}", flush=True)


def main() -> None:
    """Print a line an example, and write everything as JSON where asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--search", type=float, default=0.0, help="seconds of a full search for each, on a CPU")
    parser.add_argument("--threads", type=int, help="of a CPU; as many as PyTorch takes by default")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with threads(given.threads):
        _run(given)


def _run(given: argparse.Namespace) -> None:
    names, rows = [name for name in WORKLOADS if given.only in name], []
    for row in measured(names, given.device, given.count, given.seconds, given.limit, given.search):
        rows.append(row)
        mark = " " if row["ratio"] >= TARGET else "*"
        print(
            f"{mark} {row['name']:<28} {row['ratio']:.2f}  {1e3 * row['default_seconds']:.3f} ms  {row['default']}"
            f"  best {1e3 * row['best_seconds']:.3f} ms {row['best']}  ({row['timed']} timed, {row['wall']:.0f} s)",
            *row["out"][:2],
            flush=True,
        )
        if path := given.out or _usual_path(given.device):
            path.write_text(json.dumps(_document(given, rows), indent=1) + "\n")
    mean = math.exp(statistics.mean(math.log(row["ratio"]) for row in rows))
    print(f"geometric mean {mean:.2f}; {sum(row['ratio'] < TARGET for row in rows)} of {len(rows)} below {TARGET}")


def _usual_path(device: str) -> Path | None:
    """Where the results of a GPU go; a CPU has no name that would do for a file."""
    name = torch.cuda.get_device_name().lower().replace(" ", "-") if device == "cuda" else ""
    return Path(__file__).resolve().parent / "results" / f"{name}-hl-defaults.json" if name else None


def _document(given: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    gpu = given.device == "cuda"
    threaded = f" --threads {given.threads}" if given.threads else ""
    candidates_of = f"--search {given.search:g}" if given.search else f"--count {given.count}"
    return {
        "command": f"python -m benchmarks.hl_defaults --device {given.device}{threaded} {candidates_of}",
        "machine": torch.cuda.get_device_name() if gpu else platform.processor() or platform.machine(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "rows": rows,
    }


if __name__ == "__main__":
    main()
