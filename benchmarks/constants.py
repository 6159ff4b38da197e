"""What a tuned number is worth: kernels compiled with it at other values, timed in turns.

    python -m benchmarks.constants [NAME ...] [--cuda] [--only TEXT] [--forms N] [--seconds S] [--out FILE]

The numbers are those of `tilewright/backends/*/tuning.py`. A process for each value compiles the forms of
`benchmarks.forms` (and on the CPU the rows of the speed table) from empty caches; where the code differs from that of
the value in use, both processes time it in turns. What the comments there claim is what this prints.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tilewright.base.knobs import knobs
from tilewright.tools.timing import compare, threads

Function = Callable[[], Any]
ROOMS = {"cpu": "tilewright.backends.cpu.tuning", "cuda": "tilewright.backends.nvidia.tuning"}
# Numbers of launches, not of code: every kernel is timed.
LAUNCHES = {"SPIN_PAUSES", "KEPT_ARENAS"}
# Values to try of what is no number.
OTHERS: dict[str, tuple[Any, ...]] = {
    "MICRO_KERNELS": ({True: (16, 8, 6), False: (8, 6, 4)}, {True: (28, 14, 8), False: (14, 12, 6)}),
    "FAST_BF16_CPUS": ((), ("znver", "sapphirerapids", "emeraldrapids", "graniterapids")),
}
_TEXT = {"cpu": "llir", "cuda": "cubin"}  # the stage that tells whether code differs


@dataclass(frozen=True)
class Result:
    """A value of a number against the value in use.

    Args:
        name, value: of the number.
        kernels: that were compiled; changed: those whose code is another.
        compiling: seconds for all of them, over the seconds with the value in use.
        speed: of each changed kernel, the time with the value in use over the time with this value.
    """

    name: str
    value: str
    kernels: int
    changed: int
    compiling: float
    speed: dict[str, float]

    @property
    def mean(self) -> float:
        """The geometric mean of the speeds: below 1 the value in use is better."""
        return statistics.geometric_mean(self.speed.values()) if self.speed else math.nan


def values_of(name: str, device: str) -> tuple[Any, ...]:
    """Values to try: half of the number and twice the number, or those that `OTHERS` lists."""
    used = getattr(importlib.import_module(ROOMS[device]), name)
    if name in OTHERS:
        return OTHERS[name]
    lower = used / 2 if isinstance(used, float) else used // 2
    return tuple(value for value in (lower, used * 2) if value != used)


def calls(device: str, only: str, forms: int) -> Iterator[tuple[str, Function]]:
    """Launches by name: the first forms of every family, and on the CPU the first variant of every contest."""
    from benchmarks.forms import families

    for make in families(device):
        family = make()
        if only in family.name:
            for form, call in list(family.forms.items())[:forms]:
                yield f"{family.name}, {form}", call
    if device == "cpu":
        from benchmarks.contests import CONTESTS

        for contest in CONTESTS:
            if only in (name := f"{contest.subject} {contest.case}"):
                variants, _ = contest.prepare()
                yield name, next(iter(variants.values()))


def serve(pipe: Connection, device: str, name: str, value: Any, only: str, forms: int) -> None:
    """A process with one value (`None`: the one in use): compiles everything, then times what it is asked for."""
    if value is not None:
        setattr(importlib.import_module(ROOMS[device]), name, value)
    torch.manual_seed(0)
    knobs.compilation.dump_dir = Path(knobs.cache.dir) / "stages"
    codes: dict[str, str] = {}
    done: dict[str, Function] = {}
    begin, seen = time.perf_counter(), set[Path]()
    for title, call in calls(device, only, forms):
        try:
            call()
        except Exception as error:  # a value that a kernel does not compile with is a result as well
            codes[title] = f"{type(error).__name__}: {error}"
            continue
        made = set(knobs.compilation.dump_dir.rglob(f"*.{_TEXT[device]}")) - seen
        seen |= made
        codes[title] = hashlib.sha256(b"".join(sorted(path.read_bytes() for path in made))).hexdigest()
        done[title] = call
    pipe.send((codes, time.perf_counter() - begin))
    with threads(1 if device == "cpu" else None):
        while (wish := pipe.recv()) is not None:
            title, seconds = wish
            pipe.send(_time(done[title], device, seconds) if title in done else math.nan)


def _time(call: Function, device: str, seconds: float) -> float:
    if device == "cuda":
        from benchmarks.gpu import turns

        with (Path(tempfile.gettempdir()) / "tilewright-turn").open("w") as turn:  # other processes on this GPU wait
            fcntl.flock(turn, fcntl.LOCK_EX)
            return float(turns({"": call}, 10)[""])
    return compare({"": call}, seconds=seconds, min_rounds=3)[""].median


class Process:
    """A process of `serve`."""

    def __init__(self, *given: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-constants-")
        os.environ["TILEWRIGHT_CACHE_DIR"] = self._folder.name  # read by the process that starts
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *given), daemon=True)
        self._process.start()
        theirs.close()  # so that its end is heard of
        self.codes, self.compiling = self._pipe.recv()

    def time(self, title: str, seconds: float) -> float:
        """Seconds of a call."""
        self._pipe.send((title, seconds))
        return float(self._pipe.recv())

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(None)
        self._process.join()
        self._folder.cleanup()


def weigh(usual: Process, other: Process, name: str, value: Any, rounds: int, seconds: float) -> Result:
    """Time the kernels whose code differs, in turns."""
    changed = [title for title in usual.codes if name in LAUNCHES or usual.codes[title] != other.codes[title]]
    speed = {}
    for title in changed:
        pairs = [(usual.time(title, seconds), other.time(title, seconds)) for _ in range(rounds)]
        ratio = statistics.median(mine / theirs for mine, theirs in pairs)
        speed[title] = 0.0 if math.isnan(ratio) else ratio
    return Result(name, repr(value), len(usual.codes), len(changed), other.compiling / usual.compiling, speed)


def draw(console: Console, results: Sequence[Result]) -> None:
    """Print the table."""
    table = Table(title="Speed at another value over speed at the value in use", title_justify="left")
    for heading in ("number", "value", "changed", "compiling", "mean", "worst", "best"):
        table.add_column(heading, justify="left" if heading == "number" else "right")
    for result in results:
        ends = sorted(result.speed.values())
        figures = [f"{x:.2f}" for x in (result.mean, ends[0], ends[-1])] if ends else ["", "", ""]
        changed = f"{result.changed} of {result.kernels}"
        table.add_row(result.name, result.value, changed, f"{result.compiling:.2f}", *figures)
    console.print(table)


def _numbers(device: str) -> list[str]:
    return [name for name in vars(importlib.import_module(ROOMS[device])) if name.isupper()]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--cuda", is_flag=True, help="The numbers of the NVIDIA back end, on the GPU.")
@click.option("--only", default="", metavar="TEXT", help="Just the kernels whose name contains TEXT.")
@click.option("--forms", default=2, help="Forms of each family.")
@click.option("--rounds", default=5, help="Turns of each kernel.")
@click.option("--seconds", default=0.05, help="Time of a turn.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.")
def main(
    names: tuple[str, ...], cuda: bool, only: str, forms: int, rounds: int, seconds: float, out: Path | None
) -> None:
    """Weigh the numbers NAMES, or all."""
    device, console, results = "cuda" if cuda else "cpu", Console(width=130), []
    chosen = names or _numbers(device)
    with ExitStack() as stack:
        usual = stack.enter_context(Process(device, "", None, only, forms))
        progress = stack.enter_context(Progress(console=Console(stderr=True), disable=not console.is_terminal))
        for name in progress.track(chosen):
            for value in values_of(name, device):
                with Process(device, name, value, only, forms) as other:
                    results.append(weigh(usual, other, name, value, rounds, seconds))
    draw(console, results)
    if out is not None:
        out.write_text(json.dumps([vars(result) for result in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
