"""``python -m benchmarks.hl_searches``: hl's search on a GPU against Helion's default search.

    python -m benchmarks.hl_searches [--seconds S] [--helion-seconds S] [--helion FOLDER] [--only NAME,...]
                                     [--effort full] [--out FILE]

Each function of `CASES` is searched from nothing by both; then what each found and our default take turns on one GPU,
the cache of the GPU cleared before each call. Where there are two GPUs Helion searches on the second one meanwhile,
in a process of its own, and each side has half of the processors. `--helion-seconds 0` leaves Helion out.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks import hl_gpu_kernels
from benchmarks.device_turns import in_turns
from benchmarks.hl_gpu import kernels_for_helion
from benchmarks.hl_tuner import search
from benchmarks.hl_workloads import Maker
from tilewright import hl

Arguments = tuple[torch.Tensor, ...]
Found = dict[str, Any]


def _product(m: int, n: int, k: int) -> Arguments:
    make = Maker("cuda")
    return make.real(m, k, dtype=make.half), make.real(k, n, dtype=make.half)


def _norm() -> Arguments:
    make = Maker("cuda")
    return make.real(8192, 4096), make.real(4096), make.real(4096)


def _labelled() -> Arguments:
    make = Maker("cuda")
    return make.real(8192, 4096), make.whole(4096, 8192)


def _ragged() -> Arguments:
    make = Maker("cuda")
    offsets = make.offsets(2048, 200)
    return make.real(int(offsets[-1]), 128), offsets


def _grouped() -> Arguments:
    make = Maker("cuda")
    offsets = make.offsets(16, 1024)
    return make.real(int(offsets[-1]), 1024, dtype=make.half), make.real(16, 1024, 1024, dtype=make.half), offsets


def _int4() -> Arguments:
    make = Maker("cuda")
    return make.real(2048, 2048, dtype=make.half), make.whole(256, 1024, 2048).to(torch.int8)


# name -> function of `hl_gpu_kernels`, what makes its arguments
CASES: dict[str, tuple[str, Callable[[], Arguments]]] = {
    "softmax": ("softmax", lambda: (Maker("cuda").real(8192, 4096),)),
    "layer_norm": ("layer_norm", _norm),
    "matmul": ("matmul", lambda: _product(1024, 1024, 1024)),
    "matmul_4096": ("matmul", lambda: _product(4096, 4096, 4096)),
    "matmul_skinny": ("matmul", lambda: _product(64, 4096, 4096)),
    "attention": (
        "attention",
        lambda: tuple(Maker("cuda").real(64, 2048, 64, dtype=torch.float16) for _ in "qkv"),
    ),
    "cross_entropy": ("cross_entropy", _labelled),
    "jagged_softmax": ("jagged_softmax", _ragged),
    "grouped_product": ("grouped_product", _grouped),
    "int4_product": ("int4_product", _int4),
}


# --- Helion's side ----------------------------------------------------------------------------------------


def of_helion(theirs: ModuleType, name: str, args: Arguments, seconds: float) -> Found:
    """What Helion's search finds, and how long it takes; or why it does not."""
    helion: Any = importlib.import_module("helion")
    # What it would start to measure in imports Helion anew, without the name that `kernels_for_helion` defines; one
    # candidate that it compiles for its minute would be all that a short search does.
    options = {
        "autotune_budget_seconds": int(seconds),
        "autotune_benchmark_subprocess": False,
        "autotune_compile_timeout": min(60, max(3, int(seconds / 4))),
    }
    begin = time.perf_counter()
    try:
        best = helion.kernel(getattr(theirs, CASES[name][0]), **options).autotune(args)
    except Exception as error:  # whatever ends a search of theirs ends one row
        return {"helion_out": f"{type(error).__name__}: {error}"[:500]}
    return {"helion_seconds": time.perf_counter() - begin, "helion_best": dict(best)}


class Beside:
    """Helion's searches, in a process that has the last GPU and the second half of the processors.

    Args:
        names: what is searched, in this order.
        given: what the command line says.
    """

    def __init__(self, names: list[str], given: argparse.Namespace) -> None:
        cores = sorted(os.sched_getaffinity(0))
        half = len(cores) // 2
        self._file = Path(tempfile.mkdtemp(prefix="tilewright-bench-")) / "found"
        command = [sys.executable, "-m", "benchmarks.hl_searches", "--only", ",".join(names)]
        command += ["--helion-seconds", str(given.helion_seconds), "--beside", str(self._file)]
        command += ["--helion", given.helion] if given.helion else []
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible.split(",")[-1]}
        os.sched_setaffinity(0, cores[half:])  # which the child inherits
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        os.sched_setaffinity(0, cores[:half])

    def found(self, name: str) -> Found:
        """What it found for a function; waits for that."""
        while True:
            lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
            for row in map(json.loads, lines):
                if row["kernel"] == name:
                    return {key: value for key, value in row.items() if key != "kernel"}
            if self._process.poll() is not None:
                return {"helion_out": f"its process ended with status {self._process.returncode}"}
            time.sleep(0.2)


def search_beside(names: list[str], given: argparse.Namespace, theirs: ModuleType) -> None:
    """Write what Helion finds for each function as soon as it is found."""
    for name in names:
        torch.manual_seed(0)
        row = {"kernel": name, **of_helion(theirs, name, CASES[name][1](), given.helion_seconds)}
        with given.beside.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=str) + "\n")


# --- both -------------------------------------------------------------------------------------------------


def race(name: str, given: argparse.Namespace, theirs: ModuleType | None, beside: Beside | None) -> Found:
    """Both searches of a function and the times of their choices.

    Args:
        name: of a case.
        given: what the command line says.
        theirs: the functions for Helion; None without it.
        beside: who searches with Helion meanwhile; None for this process.
    """
    torch.manual_seed(0)
    function, make = CASES[name]
    args = make()
    kernel = hl.kernel(getattr(hl_gpu_kernels, function))
    row = {"kernel": name, **search(kernel, args, given.effort, "", given.seconds)}
    bound = kernel.bind(args)
    default = bound.config_spec.default_config()
    calls = {"ours": hl.Config(**row["best"]), "default": default}
    functions: dict[str, Any] = {
        side: functools.partial(bound.compile_config(config), *args) for side, config in calls.items()
    }
    if theirs is not None:
        row |= beside.found(name) if beside else of_helion(theirs, name, args, given.helion_seconds)
        if "helion_best" in row:
            helion: Any = importlib.import_module("helion")
            other = helion.kernel(getattr(theirs, function), config=helion.Config(**row["helion_best"]))
            functions["helion"] = functools.partial(other, *args)
    times = in_turns(functions, 60)
    row["microseconds"] = {side: 1e6 * seconds for side, seconds in times.items()}
    row["best_of_default"] = times["ours"] / times["default"]
    row["of_helion"] = times["helion"] / times["ours"] if "helion" in times else None
    return row


def rows(names: list[str], given: argparse.Namespace, theirs: ModuleType | None) -> Iterator[Found]:
    """A row a function; each is printed."""
    beside = Beside(names, given) if theirs is not None and torch.cuda.device_count() > 1 else None
    for name in names:
        row = race(name, given, theirs, beside)
        times = ", ".join(f"{side} {value:.1f}" for side, value in row["microseconds"].items())
        of_helion = f"{row['of_helion']:.3f}" if row["of_helion"] else row.get("helion_out", "-")
        print(
            f"{name}: {row['configurations']} tried in {row['seconds']:.1f} s ({row['a_second']:.1f}/s), us: {times}, "
            f"best of default {row['best_of_default']:.3f}, of Helion {of_helion}",
            flush=True,
        )
        yield row


def main() -> None:
    """Print a line a function, and write everything as JSON where asked for."""
    parser = argparse.ArgumentParser(description="hl's search on a GPU against Helion's.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--helion-seconds", type=float, default=600.0)
    parser.add_argument("--helion", metavar="FOLDER", help="where Helion is, if not installed")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--effort", default="full", choices=["quick", "full"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--beside", type=Path, help=argparse.SUPPRESS)  # where another process reads what is found
    given = parser.parse_args()
    if given.helion:
        sys.path.append(given.helion)
    theirs = kernels_for_helion() if given.helion_seconds else None
    names, found = given.only.split(","), []
    if given.beside and theirs is not None:
        search_beside(names, given, theirs)
        return
    for row in rows(names, given, theirs):
        found.append(row)
        if given.out:
            command = " ".join(["python -m benchmarks.hl_searches", *sys.argv[1:]])
            about = {"command": command, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
            about["python"] = platform.python_version()
            given.out.write_text(json.dumps({**about, "rows": found}, indent=1, default=str) + "\n", encoding="utf-8")
    ratios = [row["of_helion"] for row in found if row["of_helion"]]
    if ratios:
        print(f"geometric mean against Helion: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}")


if __name__ == "__main__":
    main()
