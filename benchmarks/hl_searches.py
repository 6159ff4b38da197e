"""``python -m benchmarks.hl_searches``: hl's search on a GPU against Helion's default search of equal time.

    python -m benchmarks.hl_searches [--seconds S] [--helion-seconds S] [--helion FOLDER] [--only NAME,...]
                                     [--effort full] [--size 1024] [--out FILE]

Each function of `benchmarks.hl_gpu_kernels` is searched from nothing by both; then what each found and our default
take turns, the cache of the GPU cleared before each call. `--helion-seconds 0` leaves Helion out.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import platform
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks import hl_gpu_kernels
from benchmarks.device_turns import in_turns
from benchmarks.hl_gpu import kernels_for_helion
from benchmarks.hl_tuner import search
from tilewright import hl


def _arguments(name: str, size: int) -> tuple[torch.Tensor, ...]:
    """Arguments of a function: matrices of 8192 rows, or products of bfloat16 matrices of a size."""
    if name == "matmul":
        x, y = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in "xy")
        return x, y
    if name == "attention":
        return tuple(torch.randn(64, 2048, 64, device="cuda", dtype=torch.float16) for _ in "qkv")
    x = torch.randn(8192, 4096, device="cuda")
    return (x, x[0].clone(), x[1].clone()) if name == "layer_norm" else (x,)


def _of_helion(theirs: ModuleType, name: str, args: Any, seconds: float) -> tuple[Any, dict[str, Any]]:
    """The kernel that Helion's search chose, and what is known of the search."""
    helion: Any = importlib.import_module("helion")
    # what it would start to measure in imports Helion anew, without the name that `kernels_for_helion` defines
    options = {"autotune_budget_seconds": int(seconds), "autotune_benchmark_subprocess": False}
    kernel = helion.kernel(getattr(theirs, name), **options)
    begin = time.perf_counter()
    best = kernel.autotune(args)
    return kernel, {"helion_seconds": time.perf_counter() - begin, "helion_best": dict(best)}


def race(name: str, args: Any, given: argparse.Namespace, theirs: ModuleType | None) -> dict[str, Any]:
    """Both searches of a function and the times of their choices.

    Args:
        name: of a function of `hl_gpu_kernels`.
        args: its arguments.
        given: what the command line says.
        theirs: the functions for Helion; None without it.
    """
    kernel = hl.kernel(getattr(hl_gpu_kernels, name))
    row = {"kernel": name, **search(kernel, args, given.effort, "", given.seconds)}
    default = kernel.bind(args).config_spec.default_config()
    calls = {"ours": hl.Config(**row["best"]), "default": default}
    functions: dict[str, Any] = {
        side: functools.partial(kernel.bind(args).compile_config(config), *args) for side, config in calls.items()
    }
    if theirs is not None and given.helion_seconds:
        try:
            other, about = _of_helion(theirs, name, args, given.helion_seconds)
            row |= about
            functions["helion"] = functools.partial(other, *args)
        except Exception as error:  # whatever ends a search of theirs ends one row
            row["helion_out"] = f"{type(error).__name__}: {error}"[:500]
    times = in_turns(functions, 60)
    row["microseconds"] = {side: 1e6 * seconds for side, seconds in times.items()}
    row["default_of_best"] = times["ours"] / times["default"]
    row["of_helion"] = times["helion"] / times["ours"] if "helion" in times else None
    return row


def main() -> None:
    """Print a line a kernel, and write everything as JSON where asked for."""
    parser = argparse.ArgumentParser(description="hl's search on a GPU against Helion's.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--helion-seconds", type=float, default=600.0)
    parser.add_argument("--helion", metavar="FOLDER", help="where Helion is, if not installed")
    parser.add_argument("--only", default="softmax,layer_norm,matmul,attention")
    parser.add_argument("--effort", default="full", choices=["quick", "full"])
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.helion:
        sys.path.append(given.helion)
    theirs = kernels_for_helion() if given.helion_seconds else None
    rows = []
    for name in given.only.split(","):
        rows.append(row := race(name, _arguments(name, given.size), given, theirs))
        times = ", ".join(f"{side} {value:.1f}" for side, value in row["microseconds"].items())
        print(
            f"{name}: {row['configurations']} tried in {row['seconds']:.1f} s ({row['a_second']:.1f}/s), us: {times}, "
            f"default of best {row['default_of_best']:.3f}, of Helion {row['of_helion']}, {row.get('helion_out', '')}",
            flush=True,
        )
        if given.out:
            about = {"command": " ".join(sys.argv), "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
            about["python"] = platform.python_version()
            given.out.write_text(json.dumps({**about, "rows": rows}, indent=1, default=str) + "\n", encoding="utf-8")
    ratios = [row["of_helion"] for row in rows if row["of_helion"]]
    if ratios:
        print(f"geometric mean against Helion: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}")


if __name__ == "__main__":
    main()
