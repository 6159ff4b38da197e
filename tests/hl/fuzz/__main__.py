"""`python -m tests.hl.fuzz --cases 2000 --seed 0`: random kernels, three configurations each."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path

import torch

import tilewright
from tests.hl.fuzz.compare import check


def main() -> int:
    """Run the cases; returns how many failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.hl.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--configurations", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no kernel after this time")
    parser.add_argument("--log", type=Path, help="append a summary as JSON to the list in this file")
    options = parser.parse_args()
    failed, began, done = [], time.perf_counter(), 0
    for seed in range(options.seed, options.seed + options.cases):
        if time.perf_counter() - began > options.seconds:
            break
        done += 1
        try:
            check(seed, options.configurations)
        except Exception:
            failed.append(seed)
            traceback.print_exc()
    seconds = time.perf_counter() - began
    print(f"{done} kernels, {len(failed)} failed {failed}, {seconds:.0f} s")
    if options.log:
        before = json.loads(options.log.read_text()) if options.log.exists() else []
        options.log.write_text(json.dumps([*before, _summary(options, done, failed, seconds)], indent=2) + "\n")
    return len(failed)


def _summary(options: argparse.Namespace, done: int, failed: list[int], seconds: float) -> dict[str, object]:
    """What a log says of a run."""
    versions = {"tilewright": tilewright.__version__, "python": platform.python_version(), "torch": torch.__version__}
    return {
        "kernels": done,
        "first_seed": options.seed,
        "configurations": options.configurations,
        "failed": failed,
        "seconds": round(seconds, 1),
        "versions": versions,
        "machine": f"{platform.machine()}, {os.cpu_count()} threads",
    }


if __name__ == "__main__":
    sys.exit(min(main(), 1))
