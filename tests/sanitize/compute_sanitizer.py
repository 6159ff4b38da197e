"""What NVIDIA's compute-sanitizer says of faulty mutants, on a GPU, beside what the checks say.

    python -m tests.sanitize --mutants 300 --seed 1 --json > drawn.jsonl          anywhere
    python -m tests.sanitize.compute_sanitizer drawn.jsonl --jobs 16              on a machine with a GPU

Each mutant is launched at the small sizes of its case, once under each tool, with every tensor in an allocation of its
own and room between them: where the tool sees most. The kernels of a mutant carry its number in their names, so a
message says whose fault it is about; a tool has found a mutant if a message names one of its kernels. Mutants share a
process, as that takes longer to start than they do, until one leaves a context that is dead or does not end: the next
one gets a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from tests.corpus.case import New
from tests.sanitize.check import case_of
from tests.sanitize.mutants import Mutant

SECONDS = 15
"""For one mutant."""
OPTIONS = (
    "--destroy-on-device-error", "kernel", "--print-limit", "0", "--max-connections", "99", "--show-backtrace", "device"
)  # fmt: skip
OPTIONS_OF = {
    "memcheck": ("--padding", "4096", "--kernel-name", "kns=_mutant"),
    "initcheck": (),  # what kernels of PyTorch have written is written
    "racecheck": ("--kernel-name", "kns=_mutant"),
}
_NAMED = re.compile(r"_mutant(\d+)")


# --- the process that the tool looks at -----------------------------------------------------------------------------


def run_mutants(rows: list[tuple[int, dict[str, Any]]]) -> None:
    """Run mutants one after the other in processes that live as long as their contexts do; say what became of each."""
    for name in ("backends.nvidia.lowering", "backends.nvidia.pipeline", "frontend.entry"):  # not the driver
        importlib.import_module(f"tilewright.{name}")
    New.empty = lambda self, *shape, dtype=torch.float32: torch.empty(shape, dtype=dtype, device=self.device)  # type: ignore[method-assign]
    while rows:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            with os.fdopen(write, "w", buffering=1) as told:
                for number, row in rows:
                    signal.alarm(SECONDS)
                    said = _run(number, Mutant(**row))
                    told.write(f"{number} {said}\n")
                    if said == "dead":
                        break
            sys.exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            lines = told.read().splitlines()
        os.waitpid(child, 0)
        for line in lines:
            print("@", line, flush=True)
        done = {int(line.split()[0]) for line in lines}
        if not lines or lines[-1].split()[1] != "dead":
            left = [number for number, _ in rows if number not in done]
            if left:  # it took too long, or the process died
                print("@", left[0], "ended", flush=True)
                done.add(left[0])
        rows = [row for row in rows if row[0] not in done]


def _run(number: int, mutant: Mutant) -> str:
    """ "ran", or the name of an exception, or "dead" if the device can no longer be used."""
    said = "ran"
    try:
        case = case_of(mutant, f"_mutant{number:04d}")
        case.run(New("cuda"), **case.small)
        torch.cuda.synchronize()
    except Exception as error:
        said = type(error).__name__
    gc.collect()
    try:
        torch.cuda.synchronize()
        torch.zeros(4, device="cuda").sum().item()
    except Exception:
        return "dead"
    return said


# --- tools ----------------------------------------------------------------------------------------------------------


def look(tool: str, mutants: dict[int, dict[str, Any]], jobs: int, seconds: float) -> tuple[set[int], set[int]]:
    """Numbers of the mutants that a tool says something of, and of those that ran.

    Args:
        tool: of compute-sanitizer.
        mutants: by number.
        jobs: processes beside each other.
        seconds: for all; what is not done then is left out.
    """
    folder, end = Path(mkdtemp()), time.monotonic() + seconds
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "CUDA_MODULE_LOADING": "LAZY"}
    started = []
    for job in range(min(jobs, len(mutants))):
        part = folder / f"{job}.json"
        part.write_text(json.dumps(list(mutants.items())[job::jobs]))
        log = open(folder / f"{job}.log", "w")
        ours = [sys.executable, "-m", "tests.sanitize.compute_sanitizer", "--run", str(part)]
        command = ["compute-sanitizer", "--tool", tool, *OPTIONS, *OPTIONS_OF[tool], *ours]
        started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True))
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(1.0, end - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    text = "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.log")))
    if "OUT" in os.environ:
        Path(os.environ["OUT"], f"{tool}.log").write_text(text)
    ends = dict(line.split()[1:3] for line in text.splitlines() if line.startswith("@ "))
    named = {int(found) for line in text.splitlines() if "====" in line for found in _NAMED.findall(line)}
    found = named & mutants.keys()
    ran = {int(number): said for number, said in ends.items()}
    print(f"{tool}: {dict(Counter(ran.values()))}", flush=True)
    return found, found | {number for number, said in ran.items() if said in ("ran", "dead")}


def report(rows: dict[int, dict[str, Any]], found: dict[str, set[int]], ran: dict[str, set[int]]) -> None:
    """Print found and run by rule, for the checks and for each tool."""
    by_rule = defaultdict[str, list[int]](list)
    for number, row in rows.items():
        by_rule[row["mutant"]["rule"]].append(number)
    by_rule["all"] = list(rows)
    kinds = {"of them races": [n for n, row in rows.items() if not row["bounds"]]}
    kinds["of them out of bounds"] = [n for n, row in rows.items() if row["bounds"]]
    print("| rule | faulty | the checks |", " | ".join(found), "| any tool |")
    print("| --- |", " | ".join(["---:"] * (len(found) + 3)), "|")
    for rule, numbers in [*sorted(by_rule.items(), key=lambda item: item[0] == "all"), *kinds.items()]:
        ours = sum(rows[number]["verdict"] == "found" for number in numbers)
        theirs = [f"{len(told & set(numbers))} of {len(ran[tool] & set(numbers))}" for tool, told in found.items()]
        either = len(set().union(*found.values()) & set(numbers))
        print(f"| {rule} | {len(numbers)} | {ours} |", " | ".join(theirs), f"| {either} |")


def main() -> int:
    """Look at the faulty mutants of a draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize.compute_sanitizer", description=__doc__)
    parser.add_argument("drawn", nargs="?", help="lines of `python -m tests.sanitize --json`")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--first", type=int, help="so many mutants only")
    parser.add_argument("--seconds", type=float, default=600, help="for each tool")
    parser.add_argument("--tools", default=",".join(OPTIONS_OF))
    parser.add_argument("--run", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        run_mutants([(number, row) for number, row in json.loads(Path(asked.run).read_text())])
        return 0
    drawn = [json.loads(line) for line in Path(asked.drawn).read_text().splitlines() if line.startswith("{")]
    rows = dict(enumerate([row for row in drawn if row["verdict"] in ("found", "missed")][: asked.first]))
    found, ran = dict[str, set[int]](), dict[str, set[int]]()
    for tool in asked.tools.split(","):
        began = time.monotonic()
        mutants = {number: row["mutant"] for number, row in rows.items()}
        found[tool], ran[tool] = look(tool, mutants, asked.jobs, asked.seconds)
        print(f"{tool}: {time.monotonic() - began:.0f} s", flush=True)
    report(rows, found, ran)
    return 0


if __name__ == "__main__":
    sys.exit(main())
