"""The default configuration of every example of hl against the best of random ones.

`python -m benchmarks.hl_defaults [--device cuda] [--threads N] [--count 40] [--only TEXT] [--seconds S] [--out FILE]`

Candidates are compiled beside each other, compared with the default and timed in turns, as tuning does it. The best of
them and the default then take turns once more: with so many candidates the first ranking flatters its winner. With one
thread that race counts processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.hl_workloads import WORKLOADS, workload
from tilewright import hl
from tilewright.base.knobs import knobs
from tilewright.hl.tune.driver import Driver
from tilewright.tools.timing import compare, threads

TARGET = 0.67
_FINALISTS = 3


def measure(name: str, device: str, count: int, seconds: float) -> dict[str, Any]:
    """The ratio of the best time to the default's, with both configurations.

    Args:
        name: of the workload.
        device: "cpu" or "cuda".
        count: random configurations.
        seconds: time of the last race.
    """
    start = time.perf_counter()
    kernel, args = workload(name, device)
    bound = kernel.bind(args)
    driver, rng = Driver(bound, args), random.Random(name)
    default = bound.config_spec.default_config()
    driver.race([default, *(bound.config_spec.random(rng) for _ in range(count))])
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


def _on_gpu(bound: Any, args: Any, configs: list[hl.Config], rounds: int = 40) -> dict[hl.Config, float]:
    """Medians by events of the device, with its cache overwritten before every call."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    runs = {config: bound.compile_config(config) for config in configs}
    events: dict[hl.Config, list[Any]] = {config: [] for config in configs}
    for at in range(rounds + 3):
        for config, run in runs.items():
            flush.zero_()
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            run(*args)
            pair[1].record()
            events[config] += [pair] if at >= 3 else []
    torch.cuda.synchronize()
    return {config: statistics.median(a.elapsed_time(b) * 1e-3 for a, b in pairs) for config, pairs in events.items()}


def main() -> None:
    """Print a line an example, and write everything as JSON where asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, help="of the CPU; as many as PyTorch takes by default")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with threads(given.threads):
        _run(given)


def _run(given: argparse.Namespace) -> None:
    rows = []
    for name in WORKLOADS:
        if given.only in name:
            row = measure(name, given.device, given.count, given.seconds)
            rows.append(row)
            mark = " " if row["ratio"] >= TARGET else "*"
            print(
                f"{mark} {name:<28} {row['ratio']:.2f}  {1e3 * row['default_seconds']:.3f} ms  {row['default']}"
                f"  best {row['best']}  ({row['timed']} timed, {row['wall']:.0f} s)",
                *row["out"][:2],
                flush=True,
            )
    mean = math.exp(statistics.mean(math.log(row["ratio"]) for row in rows))
    print(f"geometric mean {mean:.2f}; {sum(row['ratio'] < TARGET for row in rows)} of {len(rows)} below {TARGET}")
    if given.out:
        where = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor() or platform.machine()
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        made = {"device": where, "versions": versions, "threads": given.threads, "rows": rows}
        given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
