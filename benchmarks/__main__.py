"""``python -m benchmarks``: run the races and the timings, draw the table, write the JSON."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import hl, report
from benchmarks.compile_time import growth_times
from benchmarks.contests import CONTESTS, Outcome, decide
from benchmarks.launch_race import race
from benchmarks.startup import Timing, compile_times, import_time, launch_time
from benchmarks.torch_ops import torch_times
from benchmarks.warm_start import warm_start_times


@click.command()
@click.option("--only", default="", metavar="TEXT", help="Just the rows whose subject and case contain TEXT.")
@click.option("--threads", "counts", multiple=True, type=int, default=(1, 2), help="Thread counts; repeat the option.")
@click.option("--seconds", default=1.5, help="Time of one race.")
@click.option("--runs", default=5, help="Fresh processes per start-up time.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file (default: results/ when everything is run).")
def main(only: str, counts: tuple[int, ...], seconds: float, runs: int, out: Path | None) -> None:
    """Measure every row of the speed table."""
    console = Console() if sys.stdout.isatty() else Console(width=140)
    start = time.monotonic()
    outcomes: list[Outcome] = []
    timings: list[Timing] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def step(text: str) -> None:
            bar.update(task, description=text)

        for contest in (*CONTESTS, *hl.CONTESTS):
            name = f"{contest.subject} {contest.case}"
            if only not in name:
                continue
            step(name)
            try:
                outcomes.extend(decide(contest, counts, seconds))
            except Exception as error:  # a row that cannot run is reported and does not hide the others
                console.print(f"{name}: {type(error).__name__}: {error}", style="red", markup=False)
        if only in "torch":
            step("torch")
            timings.extend(torch_times(seconds))
        if only in "launch":
            timings.append(launch_time(seconds))
            timings.extend(race(seconds))
        if only in "import":
            timings.extend(import_time(runs))
        if only in "compile":
            timings.extend(compile_times(runs, lambda example: step(f"compile {example}")))
        if only in "warm start":
            timings.extend(warm_start_times(runs))
        if only in "hl times":
            timings.extend(hl.times(runs))
        if only in "compile growth":
            timings.extend(growth_times(step))
    report.draw(console, outcomes, timings)
    if out or not only:
        console.print(f"written to {report.write(out, outcomes, timings)}", markup=False)
    passed = [outcome.passed for outcome in outcomes] + [timing.passed for timing in timings]
    console.print(f"{passed.count(False)} of {len(passed)} rows miss their target; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
