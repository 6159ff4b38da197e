"""``tilewright explain``: the source of a kernel, and beside each line what the planners have decided about it.

14 |     acc += tl.dot(a, b)
   |         no   asynchronous product: its result is used in the same iteration
   |              write acc = tl.dot(a, b, acc), and use acc after the loop
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from tilewright.base.decision import Decision, counted
from tilewright.base.errors import ArgumentError
from tilewright.base.location import Location
from tilewright.compile.function import KernelFunction
from tilewright.compile.kernel import CompiledKernel
from tilewright.frontend.source import source_of
from tilewright.launch.proved import prove_for

_STYLES = {True: "green", False: "yellow"}


def show_explained(console: Console, kernel: CompiledKernel, *, only_no: bool = False) -> None:
    """Print a kernel's source with the decisions below the lines that they are about.

    Args:
        console: where to print.
        kernel: what was compiled.
        only_no: leave out what is done.
    """
    found = [(d, n) for d, n in counted(kernel.decisions) if not (only_no and d.taken)]
    done = sum(n for d, n in found if d.taken)
    undone = sum(n for d, n in found if not d.taken)
    console.print(Text(f"{kernel.name} for {kernel.target}: {done} yes, {undone} no", style="bold"))
    assert kernel.src is not None
    source = source_of(kernel.src)
    last = source.first_line + source.text.count("\n")
    here = {d.line for d, _ in found if d.file == source.file and source.first_line <= d.line <= last}
    width = len(str(last))
    for number, line in enumerate(source.text.splitlines(), source.first_line):
        _line(console, str(number).rjust(width), line)
        if number in here:
            _answers(console, width, [(d, n) for d, n in found if (d.file, d.line) == (source.file, number)])
    elsewhere = [(d, n) for d, n in found if d.file != source.file or d.line not in here]
    for (file, line), rows in groupby(elsewhere, lambda row: (row[0].file, row[0].line)):
        console.print(Text(f"{file}:{line}" if line else "the kernel as a whole", style="bold"))
        if line:
            _line(console, str(line).rjust(width), Location(file, line).source_line())
        _answers(console, width, rows)


def show_proof(console: Console, kernel: CompiledKernel, given: str, grid: str) -> None:
    """Print what holds for every launch of a kernel with arguments up to a size.

    Args:
        console: where to print.
        kernel: what was compiled.
        given: "x=1000, n=1000": elements of arrays, largest values of integers.
        grid: "8" or "8, 4".

    Raises:
        ArgumentError: these are no sizes, or not those of the kernel's parameters.
    """
    assert kernel.src is not None and kernel.specialization is not None
    try:
        sizes = {name.strip(): int(size) for name, size in (entry.split("=") for entry in given.split(","))}
        x, y, z = (*(int(n) for n in grid.split(",")), 1, 1)[:3]
    except ValueError:
        raise ArgumentError(
            f"no sizes: {given!r} with the grid {grid!r}", hint='write --given "x=1000, n=1000" --grid "8, 4"'
        ) from None
    fn = kernel.src if isinstance(kernel.src, KernelFunction) else kernel.src.fn  # of a written signature
    console.print(Text(str(prove_for(fn, kernel.specialization, sizes, (x, y, z)))), soft_wrap=True)


def _line(console: Console, number: str, text: str) -> None:
    """A line of source."""
    shown = Text(f"{number} | ", style="dim")
    code = Syntax("", "python", background_color="default").highlight(text)
    code.rstrip()
    shown.append_text(code)
    console.print(shown, soft_wrap=True)


def _answers(console: Console, width: int, rows: Iterable[tuple[Decision, int]]) -> None:
    """Decisions about the line above."""
    for decision, count in rows:
        text = Text(" " * width + " |     ", style="dim")
        text.append("yes  " if decision.taken else "no   ", style=f"bold {_STYLES[decision.taken]}")
        text.append(f"{decision.subject}: ", style="bold")
        text.append(decision.explanation(count), style="default")
        console.print(text, soft_wrap=True)
        if decision.instead:
            hint = Text(" " * width + " |          ", style="dim")
            hint.append(f"write {decision.instead}", style="cyan")
            console.print(hint, soft_wrap=True)
