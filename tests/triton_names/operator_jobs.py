"""torch's database of operators in several processes at once, and the report of it.

    python -m tests.triton_names.operator_jobs --report operators.jsonl                     everything, on every core
    ... --jobs 16 --seconds 3600 --types bool --every 5

What it does not know is for `tests.triton_names.operators`. Each of sixteen processes has every sixteenth case and a
report of its own, and is started again where a case ended it; when all have ended the reports become one. A report that
is there already is gone on with.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = (*FLOATS, "int64", "bool")
KNOWN: dict[str, str] = {
    **{
        f"jiterator_{name} {kind} forward": "torch compiles these for GPUs only"
        for name in ("unary", "binary", "4inputs_with_extra_args", "binary_return_by_ref", "2inputs_2outputs")
        for kind in TYPES
    },
    **{
        f"{name} {kind} backward": "Inductor reads a number through the pointer of the result that takes its place"
        for name, kinds in {
            **dict.fromkeys(("__rmod__", "copysign", "fmod", "logsumexp", "masked.logsumexp", "masked.norm"), FLOATS),
            **dict.fromkeys(("remainder", "nn.functional.l1_loss"), FLOATS),
            **dict.fromkeys(("index_reduce.amax", "index_reduce.amin"), FLOATS[:2]),
            "index_reduce.mean": ("bfloat16",),
        }.items()
        for kind in kinds
    },
    **{
        f"special.{name} float64 forward": "eager is right to seven digits, the compiled function to sixteen"
        for name in ("bessel_j0", "bessel_y1")
    },
}
"""Case, as "name type direction", -> why it fails, with every version of torch."""
KNOWN_OF: dict[str, dict[str, str]] = {
    "2.11": {
        f"fft.{name} {case}": "strides of the result are others than Inductor was told"
        for names, cases in (
            (
                ("fft", "ifft", "rfft", "ihfft"),
                (*(f"{kind} forward" for kind in ("bool", "int64", "float32", "float64")),
                 "float32 backward", "float64 backward"),
            ),
            (("hfft", "irfft"), ("float32 backward", "float64 backward")),
        )
        for name in names
        for case in cases
    },
}  # fmt: skip
"""Version of torch -> the same of cases that fail with that one."""
ALL = ["--backward", "--types", "float32,float16,bfloat16,int64,bool,float64"]
"""What `operators` is asked for where nothing else is said."""


def read(*reports: Path) -> dict[str, dict[str, Any]]:
    """The rows of reports by case; of two rows of a case the later one holds."""
    lines = [line for report in reports if report.exists() for line in report.read_text().splitlines()]
    return {row["case"]: row for row in map(json.loads, lines)}


def note(report: Path | None, row: dict[str, Any]) -> None:
    """Add a row to a report."""
    if report:
        with report.open("a") as file:
            print(json.dumps(row), file=file)


def known() -> set[str]:
    """The cases that fail with the torch that is installed."""
    version = ".".join(importlib.metadata.version("torch").split(".")[:2])
    return KNOWN.keys() | KNOWN_OF.get(version, {}).keys()


def summary(rows: dict[str, dict[str, Any]]) -> tuple[str, bool]:
    """Cases and kernels by type, direction and verdict, with what differs from `known()`; whether anything does."""
    counts: dict[str, collections.Counter[str]] = {}
    for row in rows.values():
        of_kind = counts.setdefault(" ".join(row["case"].split()[-2:]), collections.Counter())
        of_kind.update({"cases": 1, row["verdict"]: 1, "kernels": row["kernels"]})
    failed = {key for key, row in rows.items() if row["verdict"] == "FAILED"}
    expected = known()
    new = sorted(failed - expected)
    passed = sorted({key for key, row in rows.items() if row["verdict"] != "no sample"} & expected - failed)
    text = json.dumps({"counts": counts, "new failures": new, "known failures that passed": passed})
    return text, bool(new or passed)


def in_processes(jobs: int, report: Path, seconds: float, others: list[str]) -> None:
    """Run the cases in `jobs` processes and join their reports."""
    begin, parts = time.monotonic(), [Path(f"{report}.{shard}") for shard in range(jobs)]

    def start(shard: int) -> tuple[subprocess.Popen[bytes], int]:
        left = seconds - (time.monotonic() - begin)
        place = ["--report", str(report), "--shard", f"{shard}/{jobs}", "--seconds", str(left)]
        command = ["-m", "tilewright.as_triton", "-m", "tests.triton_names.operators", *place, *others]
        return subprocess.Popen([sys.executable, *command]), len(read(parts[shard]))

    running = {shard: start(shard) for shard in range(jobs)}
    while running:
        time.sleep(0.2)
        for shard, (process, rows) in list(running.items()):
            if process.poll() is not None:
                del running[shard]
                if process.returncode and len(read(parts[shard])) > rows:
                    running[shard] = start(shard)
            elif time.monotonic() - begin > seconds + 60:  # a case that holds its process
                process.kill()
    report.write_text("".join(f"{json.dumps(row)}\n" for row in read(report, *parts).values()))
    for part in parts:
        part.unlink(missing_ok=True)


def main() -> None:
    """Run what is asked for and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1e9)
    asked, others = parser.parse_known_args()
    others = [*ALL, *others]
    in_processes(asked.jobs, asked.report, asked.seconds, others)
    text, wrong = summary(read(asked.report))
    print(text)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
