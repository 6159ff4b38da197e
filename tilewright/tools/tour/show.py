"""Draws the tour: greeting, progress while it runs, and the table at the end.

In a terminal the progress is live and the table coloured; anywhere else (a pipe, a log) each kernel
gives one plain line, and the table has the same columns.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import ROUNDED, SIMPLE, Box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tilewright.base.knobs import knobs
from tilewright.base.version import __version__
from tilewright.tools.doctor import cpu_name, version
from tilewright.tools.timing import duration, threads
from tilewright.tools.tour.cases import CASES
from tilewright.tools.tour.run import Result, load_compiler, run
from tilewright.tools.tour.third_party import TITLE, unchanged

Step = Callable[[str], None]

_LEGEND = """\
error: largest difference from a float64 reference, over its largest value
cold, warm: time to compile from source, and to load from the disk cache"""


def tour(console: Console, thread_count: int | None = None, quick: bool = False, only: str = "") -> bool:
    """Run the tour and show it.

    Args:
        console: where to draw.
        thread_count: threads for torch and Tilewright alike; ``None``: torch's number.
        quick: small sizes, for a smoke test.
        only: run just the kernels whose title contains this text (of the last step: "third-party kernel").

    Returns:
        Whether every kernel compiled and every check passed.
    """
    cases = [case for case in CASES if only in case.title]
    results = []
    with threads(thread_count) as count, _empty_cache():
        console.print(_greeting(count))
        with _progress(console, len(cases)) as advance:
            load_compiler()
            for case in cases:
                result = run(case, quick, advance(case.title))
                results.append(result)
                console.print(_line(result))
        third_party = unchanged() if only in TITLE else None
    console.print(_table(results, console))
    console.print(_LEGEND, style="dim", highlight=False)
    for result in results:
        if result.failure:
            console.print(Text(f"{result.title} {result.shape}", style="bold red"))
            console.print(Text(result.failure))
    verdicts = [result.passed for result in results]
    if third_party is not None:
        console.print(_third_party(*third_party))
        verdicts.append(third_party[0])
    console.print(_verdict(verdicts))
    return bool(verdicts) and all(verdicts)


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Let the tour compile into a folder of its own, so that its first compilations really are cold."""
    before = knobs.cache.dir
    with tempfile.TemporaryDirectory(prefix="tilewright-tour-") as folder:
        knobs.cache.dir = Path(folder)
        try:
            yield
        finally:
            knobs.cache.dir = before


def _greeting(count: int) -> Panel:
    text = Text.assemble(
        ("Six tile kernels, written in Python, compiled to native code for this CPU\n", "bold"),
        (f"{cpu_name()}, {count} thread{'s' if count > 1 else ''}", "cyan"),
        ("  ·  ", "dim"),
        (f"Python {platform.python_version()}", "cyan"),
        ("  ·  ", "dim"),
        (f"torch {version('torch')}", "cyan"),
    )
    return Panel(text, title=f"Tilewright {__version__}", title_align="left", box=ROUNDED, expand=False)


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[str], Step]]:
    """A live bar in a terminal, nothing elsewhere; yields ``title -> (step -> None)``."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", justify="left"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)
        started = 0

        def advance(title: str) -> Step:
            nonlocal started
            bar.update(task, completed=started)
            started += 1
            return lambda step: bar.update(task, description=f"[bold]{title:<18}[/] [dim]{step:<17}[/]")

        yield advance


def _line(result: Result) -> Text:
    """One finished kernel, printed above the progress bar."""
    if result.failure:
        return Text.assemble(("✗ ", "bold red"), f"{result.title:<20}{result.shape:<18}", ("failed", "red"))
    mark = ("✓ ", "bold green") if result.passed else ("✗ ", "bold red")
    return Text.assemble(
        mark,
        f"{result.title:<20}{result.shape:<18}",
        ("compiled in ", "dim"), f"{duration(result.cold):>8}",
        ("   max error ", "dim"), f"{result.error:.0e}",
    )  # fmt: skip


def _table(results: Sequence[Result], console: Console) -> Table:
    """The result in the richest form that fits: bars go first, then torch's errors, then the frame."""
    if not console.is_terminal:
        return _draw(results, SIMPLE, bars=False, rival_errors=True)
    forms = ((ROUNDED, True, True), (ROUNDED, False, True), (ROUNDED, False, False), (None, False, False))
    tables = [_draw(results, box, bars, errors) for box, bars, errors in forms]
    unbounded = console.options.update(max_width=1000)
    widths = [console.measure(table, options=unbounded).maximum for table in tables]
    return next((table for table, width in zip(tables, widths, strict=True) if width <= console.width), tables[-1])


def _draw(results: Sequence[Result], box: Box | None, bars: bool, rival_errors: bool) -> Table:
    padding = (0, 1) if box is not None else (0, 1, 0, 0)
    table = Table(box=box, header_style="bold", padding=padding, pad_edge=box is not None)
    for name in ("kernel", "shape"):
        table.add_column(name, no_wrap=True)
    for name in ("error", "torch's", "time", "torch's") if rival_errors else ("error", "time", "torch's"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("vs torch", no_wrap=True)
    for name in ("cold", "warm"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = ""
    for result in results:
        row = _row("" if result.title == previous else result.title, result, bars)
        table.add_row(*(row if rival_errors else row[:3] + row[4:]))
        previous = result.title
    return table


def _row(title: str, result: Result, bars: bool) -> list[Text | str]:
    name = escape(title)
    if result.ours is None or result.rival is None:
        return [name, result.shape, Text("failed", style="bold red"), "", "", "", "", "", ""]
    return [
        name,
        result.shape,
        Text(f"{result.error:.1e}", style="green" if result.passed else "bold red"),
        "" if result.rival_error is None else f"{result.rival_error:.1e}",
        duration(result.ours.median),
        duration(result.rival.median),
        _ratio(result.ours.ratio_to(result.rival), bars),
        duration(result.cold),
        duration(result.warm),
    ]


def _ratio(ratio: float, bar: bool) -> Text:
    """``1.52×`` with a bar in which torch's speed is four blocks long."""
    style = "green" if ratio >= 1 else "yellow"
    text = Text(f"{ratio:5.2f}×", style=f"bold {style}")
    if bar:
        full, eighths = divmod(max(1, min(96, round(ratio * 32))), 8)
        text.append(" " + "█" * full + ("", *"▏▎▍▌▋▊▉")[eighths], style=style)
    return text


def _third_party(passed: bool, said: str) -> Text:
    """What a program that says `import triton` printed, unchanged, in a process of its own."""
    mark = ("✓ ", "bold green") if passed else ("✗ ", "bold red")
    text = Text("Third-party kernels as they are: python -m tilewright.as_triton examples/third_party/program.py\n")
    return text.append_text(Text("\n").join(Text.assemble(mark, line) for line in said.splitlines()))


def _verdict(verdicts: list[bool]) -> Text:
    failed = verdicts.count(False)
    if failed or not verdicts:
        return Text(f"{failed} of {len(verdicts)} kernels failed their check.", style="bold red")
    return Text.assemble(
        (f"All {len(verdicts)} checks passed. ", "bold green"),
        "The kernels are the files in examples/: read one, change it, run it.",
    )
