"""Draws the measured table and writes it as JSON, with machine, versions and command."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.box import ROUNDED, SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.contests import Outcome
from benchmarks.startup import Timing
from tilewright.backends.llvm.features import host
from tilewright.tools.doctor import facts
from tilewright.tools.timing import duration

RESULTS = Path(__file__).resolve().parent / "results"


def draw(console: Console, outcomes: Iterable[Outcome], timings: Iterable[Timing]) -> None:
    """Print a table of the races and one of the times."""
    box = ROUNDED if console.is_terminal else SIMPLE
    races = Table(box=box, header_style="bold", title="Ratio to torch in the same process", title_justify="left")
    for name in ("kernel", "case", "threads", "variant", "ours", "torch", "ratio", "target", "", "error"):
        races.add_column(
            name, no_wrap=True, justify="right" if name in ("ours", "torch", "ratio", "target") else "left"
        )
    for outcome in outcomes:
        races.add_row(
            outcome.contest.subject,
            outcome.contest.case,
            str(outcome.threads),
            outcome.variant,
            duration(outcome.ours.median),
            duration(outcome.rival.median),
            Text(f"{outcome.ratio:.2f}×", style="bold green" if outcome.passed else "bold red"),
            f"{outcome.contest.target:.2f}×",
            _mark(outcome.passed),
            f"{outcome.error:.0e}",
        )
    if races.row_count:
        console.print(races)
    times = Table(box=box, header_style="bold", title="Times", title_justify="left")
    for name in ("what", "case", "measured", "target", ""):
        times.add_column(name, no_wrap=True, justify="right" if name in ("measured", "target") else "left")
    for timing in timings:
        target = "" if timing.target is None else f"≤ {duration(timing.target)}"
        mark = Text("") if timing.target is None else _mark(timing.passed)
        times.add_row(timing.subject, f"{timing.case} {timing.failure}", duration(timing.seconds), target, mark)
    if times.row_count:
        console.print(times)


def _mark(passed: bool) -> Text:
    return Text("pass", style="green") if passed else Text("miss", style="red")


def write(path: Path | None, outcomes: Iterable[Outcome], timings: Iterable[Timing]) -> Path:
    """Write everything measured as JSON and return where.

    Args:
        path: the file; ``None``: a file in ``results/`` named after the CPU and its number of cores.
    """
    path = path or RESULTS / f"{host().cpu}-{os.cpu_count()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        **where(),
        "races": [_race(outcome) for outcome in outcomes],
        "times": [
            {
                "subject": timing.subject, "case": timing.case, "seconds": timing.seconds,
                "target": timing.target, "passed": timing.passed, "failure": timing.failure,
            }
            for timing in timings
        ],
    }  # fmt: skip
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def results(name: str) -> Path:
    """The file for results of that name."""
    return Path(__file__).resolve().parent / "results" / f"{name.lower().replace(' ', '-')}.json"


def where() -> dict[str, Any]:
    """Commit and machine of a measurement."""
    return {"commit": _commit(), "machine": _machine()}


def _race(outcome: Outcome) -> dict[str, Any]:
    return {
        "subject": outcome.contest.subject,
        "case": outcome.contest.case,
        "threads": outcome.threads,
        "variant": outcome.variant,
        "seconds": outcome.ours.median,
        "seconds_iqr": outcome.ours.iqr,
        "torch_seconds": outcome.rival.median,
        "torch_seconds_iqr": outcome.rival.iqr,
        "rounds": len(outcome.ours.times),
        "ratio": round(outcome.ratio, 4),
        "target": outcome.contest.target,
        "passed": outcome.passed,
        "error": outcome.error,
    }


def _machine() -> dict[str, str]:
    """The doctor's facts that say nothing about where things are installed."""
    kept = ("CPU", "features", "threads", "Tilewright", "packages")
    found = {name: text for name, text in facts().items() if name in kept}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return found | {"system": platform.platform(), "Python": platform.python_version(), "load": f"{load:.2f}"}


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
