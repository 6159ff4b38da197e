"""``python -m benchmarks.hl_tuner``: how fast hl's tuner measures, and what a quick search finds.

    python -m benchmarks.hl_tuner [--device cuda] [--only TEXT] [--size N] [--effort quick] [--seconds S]
                                  [--strategies pattern,surrogate,...] [--out FILE]

For each kernel of `benchmarks.hl_workloads` a search runs on an empty cache. Given are its seconds, the configurations
that it has tried, those a second, the time of what it found relative to the default (both timed in turns in the last
race) and processor time of this process and all others. `benchmarks.hl_searches` sets searches against Helion's.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import tilewright
from benchmarks.hl_workloads import WORKLOADS, workload
from tilewright import hl
from tilewright.hl.tune import journal

QUICK = ("softmax.softmax", "norms.layer_norm", "matmul.matmul", "attention.attention")


def _product(size: int, device: str) -> tuple[Any, tuple[Any, ...]]:
    """The product of two square matrices."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    x, y = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    kernel, _ = workload("matmul.matmul", device)
    return kernel, (x, y)


def _processor_seconds() -> float:
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def search(kernel: Any, args: tuple[Any, ...], effort: str, strategy: str, seconds: float) -> dict[str, Any]:
    """One search: what it took, and what it found.

    Args:
        kernel: of hl.
        args: arguments.
        effort: "quick" or "full".
        strategy: its name; "" for that of the effort.
        seconds: how long it may take; 0 for what the effort says.
    """
    tilewright.knobs.cache.dir = Path(tempfile.mkdtemp(prefix="tilewright-bench-"))
    settings = {"autotune_log_level": 0, "autotune_budget_seconds": seconds, "autotuner_fn": strategy or None}
    fresh = hl.kernel(kernel.fn, **settings)
    bound = fresh.bind(args)
    begin, spent = time.perf_counter(), _processor_seconds()
    best = fresh.autotune(args, effort=effort)
    took, spent = time.perf_counter() - begin, _processor_seconds() - spent
    last = journal.read(bound.get_cached_path().with_suffix(journal.SUFFIX))[-1]
    tried = {json.dumps(row["config"], sort_keys=True) for row in last.rows}
    assert last.end is not None
    out = collections.Counter(row["failed"] for row in last.rows if "failed" in row)
    ms, default = last.end["ms"], last.end["default_ms"]
    return {
        "strategy": strategy or "default",
        "seconds": took,
        "processor_seconds": spent,
        "configurations": len(tried),
        "a_second": len(tried) / took,
        "of_the_default": ms / default if ms and default else None,
        "first_after": min((row["at"] for row in last.rows), default=None),
        "out": dict(out),
        "best": best.config,
        "end": last.end["end"],
    }


def _matches(name: str) -> Callable[[str], bool]:
    """Whether a text asks for a workload: whole names ask for themselves alone."""
    return lambda text: text == name if text in WORKLOADS else text in name


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each kernel and strategy."""
    asked = given.only.split(",")
    names = [name for name in WORKLOADS if any(map(_matches(name), asked))] if given.only else list(QUICK)
    for name in names:
        for strategy in given.strategies.split(",") if given.strategies else [""]:
            whole = name == "matmul.matmul" and given.size
            kernel, args = _product(given.size, given.device) if whole else workload(name, given.device)
            row = {"kernel": name, **search(kernel, args, given.effort, strategy, given.seconds)}
            yield row


def main() -> None:
    """Print the table, and write it where `--out` says."""
    parser = argparse.ArgumentParser(description="How fast hl's tuner measures, and what it finds.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default="", help="kernels whose name contains one of these, A,B,...; default: four")
    parser.add_argument("--size", type=int, default=512, help="of the matrices of matmul; 0: those of the workload")
    parser.add_argument("--effort", default="quick", choices=["quick", "full"])
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--strategies", default="")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    print(f"{'kernel':24}{'strategy':12}{'s':>7}{'tried':>7}{'/s':>7}{'best/default':>14}{'CPU s':>8}")
    found = []
    for row in rows(given):
        found.append(row)
        of_default = f"{row['of_the_default']:.3f}" if row["of_the_default"] else "-"
        print(
            f"{row['kernel']:24}{row['strategy']:12}{row['seconds']:7.1f}{row['configurations']:7}{row['a_second']:7.1f}"
            f"{of_default:>14}{row['processor_seconds']:8.1f}",
            flush=True,
        )
    if given.out:
        about = {"machine": platform.platform(), "torch": torch.__version__, "load": os.getloadavg(), "rows": found}
        given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
