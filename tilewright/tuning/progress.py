"""A bar that shows how far a search is, on a terminal; elsewhere nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on stderr while the block runs.

    Args:
        title: what is done.
        total: steps.

    Yields:
        `step(what)`: one more step is done, and `what` comes next.
    """
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def step(what: str) -> None:
            bar.update(task, advance=1, description=f"{title}: {what}")

        yield step
