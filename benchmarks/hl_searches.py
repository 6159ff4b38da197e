"""``python -m benchmarks.hl_searches``: hl's search on a GPU against Helion's default search.

    python -m benchmarks.hl_searches [--seconds S] [--helion-seconds S] [--helion FOLDER] [--only NAME,...]
                                     [--effort full] [--helion-effort full] [--ours FILE] [--out FILE]

Each function of `CASES` is searched from nothing by both; then what each found, our default, and ours with Helion's
choice take turns on one GPU, the cache of the GPU cleared before each call. Helion searches in a process of its own,
after ours; where there are two GPUs on the second one meanwhile, and each side has half of the processors.
`--helion-seconds 0` leaves Helion out. Rows are written as they come.
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
import traceback
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
_PATIENCE = 1.5  # times its seconds that Helion's search may take
_BEGINNING = 20.0  # seconds that Helion takes to load


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


def of_helion(theirs: ModuleType, name: str, seconds: float, effort: str) -> Found:
    """What Helion's search finds, and how long it takes; or why it does not."""
    helion: Any = importlib.import_module("helion")
    torch.manual_seed(0)
    function, make = CASES[name]
    args = make()
    # What it would start to measure in imports Helion anew, without the name that `kernels_for_helion` defines; one
    # candidate that it compiles for its minute would be all that a short search does.
    options = {
        "autotune_effort": effort,
        "autotune_budget_seconds": int(seconds),
        "autotune_benchmark_subprocess": False,
        "autotune_ignore_errors": True,  # of one candidate that Triton refuses
        "autotune_compile_timeout": min(60, max(3, int(seconds / 4))),
    }
    begin = time.perf_counter()
    try:
        best = helion.kernel(getattr(theirs, function), **options).autotune(args)
    except Exception as error:  # whatever ends a search of theirs ends one row
        return {"helion_out": f"{type(error).__name__}: {str(error)[-700:]}"}
    return {"helion_seconds": time.perf_counter() - begin, "helion_best": dict(best)}


class Beside:
    """Helion's searches, in a process of their own, which is started anew where it ends or takes too long. Where there
    are two GPUs it has the last one and the second half of the processors.

    Args:
        given: what the command line says.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._seconds = given.helion_seconds
        self._folder = Path(tempfile.mkdtemp(prefix="tilewright-bench-"))
        self._command = [sys.executable, "-m", "benchmarks.hl_searches", "--beside", str(self._folder)]
        self._command += ["--helion-seconds", str(given.helion_seconds), "--helion-effort", given.helion_effort]
        self._command += ["--helion", given.helion] if given.helion else []
        self.meanwhile = torch.cuda.device_count() > 1
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible.split(",")[-1]}
        cores = sorted(os.sched_getaffinity(0))
        half = len(cores) // 2 if self.meanwhile else 0
        os.sched_setaffinity(0, cores[half:])  # which the child inherits
        made = subprocess.Popen(
            self._command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        os.sched_setaffinity(0, cores[:half] or cores)
        return made

    def ask(self, name: str) -> None:
        """Have it search."""
        if self._process.poll() is not None:
            self._process = self._started()
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()

    def found(self, name: str) -> Found:
        """What it found for a function; waits for that."""
        path, last = self._folder / name, time.monotonic() + _PATIENCE * self._seconds + _BEGINNING
        while not path.exists():
            if self._process.poll() is not None:
                return {"helion_out": f"its process ended with status {self._process.returncode}"}
            if time.monotonic() > last:
                self._process.kill()
                self._process.wait()
                return {"helion_out": "it was stopped"}
            time.sleep(0.1)
        found: Found = json.loads(path.read_text(encoding="utf-8"))
        return found

    def close(self) -> None:
        """Make an end of the process."""
        self._process.kill()
        self._process.wait()


def search_beside(given: argparse.Namespace) -> None:
    """Search for what is asked for, and write what is found to a file of its own."""
    theirs = kernels_for_helion()
    assert theirs is not None
    for line in sys.stdin:
        name = line.strip()
        found = json.dumps(of_helion(theirs, name, given.helion_seconds, given.helion_effort), default=str)
        whole = given.beside / f".{name}"
        whole.write_text(found, encoding="utf-8")
        whole.rename(given.beside / name)


# --- both -------------------------------------------------------------------------------------------------


def race(name: str, given: argparse.Namespace, beside: Beside | None) -> Found:
    """Both searches of a function and the times of their choices.

    Args:
        name: of a case.
        given: what the command line says.
        beside: who searches with Helion; None without it.
    """
    torch.manual_seed(0)
    function, make = CASES[name]
    args = make()
    kernel = hl.kernel(getattr(hl_gpu_kernels, function))
    if beside and beside.meanwhile:
        beside.ask(name)
    row = _found_before(given, name) or {"kernel": name, **search(kernel, args, given.effort, "", given.seconds)}
    bound = kernel.bind(args)
    calls = {"ours": hl.Config(**row["best"]), "default": bound.config_spec.default_config()}
    if beside is not None:
        if not beside.meanwhile:
            beside.ask(name)
        theirs = _theirs()  # it is loaded while they search
        row |= beside.found(name)
        if "helion_best" in row:
            calls["ours_as_theirs"] = hl.Config(**row["helion_best"])
    functions: dict[str, Any] = {}
    for side, config in calls.items():
        try:
            functions[side] = functools.partial(bound.compile_config(bound.config_spec.normalize(config)), *args)
            functions[side]()
        except Exception as error:  # theirs may be none of ours
            functions.pop(side, None)
            row[f"{side}_out"] = f"{type(error).__name__}: {error}"[:500]
    if "helion_best" in row:
        helion: Any = importlib.import_module("helion")
        other = helion.kernel(getattr(theirs, function), config=helion.Config(**row["helion_best"]))
        functions["helion"] = functools.partial(other, *args)
    times = in_turns(functions, 60)
    row["microseconds"] = {side: 1e6 * seconds for side, seconds in times.items()}
    row["best_of_default"] = times["ours"] / times["default"]
    row["of_helion"] = times["helion"] / times["ours"] if "helion" in times else None
    return row


_theirs = functools.cache(kernels_for_helion)


def _found_before(given: argparse.Namespace, name: str) -> Found:
    """Our row of a file of results, without what it says of Helion; nothing where there is none."""
    rows = json.loads(given.ours.read_text(encoding="utf-8"))["rows"] if given.ours else []
    row = next((row for row in rows if row["kernel"] == name and "best" in row), {})
    return {key: value for key, value in row.items() if not key.startswith("helion")}


def rows(names: list[str], given: argparse.Namespace) -> Iterator[Found]:
    """A row a function; each is printed."""
    beside = Beside(given) if given.helion_seconds else None
    for name in names:
        try:
            row = race(name, given, beside)
        except Exception as error:  # one row is lost
            traceback.print_exc()
            yield {"kernel": name, "out": f"{type(error).__name__}: {error}"[:500], "of_helion": None}
            continue
        times = ", ".join(f"{side} {value:.1f}" for side, value in row["microseconds"].items())
        first, other = row["first_after"] or math.nan, row.get("helion_seconds", math.nan)
        of_helion = f"{row['of_helion']:.3f}" if row["of_helion"] else row.get("helion_out", "-")
        print(
            f"{name}: {row['configurations']} tried in {row['seconds']:.1f} s ({row['a_second']:.1f}/s, the first "
            f"after {first:.1f} s), Helion in {other:.1f} s, us: {times}, "
            f"best of default {row['best_of_default']:.3f}, of Helion {of_helion}",
            flush=True,
        )
        yield row
    if beside:
        beside.close()


def main() -> None:
    """Print a line a function, and write everything as JSON where asked for."""
    parser = argparse.ArgumentParser(description="hl's search on a GPU against Helion's.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--helion-seconds", type=float, default=600.0)
    parser.add_argument("--helion-effort", default="full", choices=["quick", "full"])
    parser.add_argument("--ours", type=Path, help="a file of --out; what our searches found there is raced again")
    parser.add_argument("--helion", metavar="FOLDER", help="where Helion is, if not installed")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--effort", default="full", choices=["quick", "full"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--beside", type=Path, help=argparse.SUPPRESS)  # a folder for what is found
    given = parser.parse_args()
    if given.helion:
        sys.path.append(given.helion)
    if given.beside:
        search_beside(given)
        return
    found = []
    for row in rows(given.only.split(","), given):
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
