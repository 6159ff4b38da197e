"""The commands `tilewright report` and `tilewright layout`. What makes a page is loaded when one is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.filesize import decimal

from tilewright.base.errors import ArgumentError
from tilewright.base.lazy import lazy_module
from tilewright.layouts import text as layout_text
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.picture import picture

page = lazy_module("tilewright.tools.report.page")
trace_file = lazy_module("tilewright.tools.report.trace")

_WIDEST = 64  # columns of a picture in a terminal


def targets_of(given: Sequence[str]) -> Sequence[str] | None:
    """Targets as `report_of_program` takes them: None where none is given, none at all for "none"."""
    return tuple(target for target in given if target != "none") if given else None


def write_report(
    arguments: Sequence[str], is_module: bool, out: Path, trace: Path | None, targets: Sequence[str] | None, checks: str
) -> str:
    """Run a program and write the page; returns what to tell the user.

    Args:
        arguments: the program and its own arguments.
        is_module: it is a module.
        out: file of the page.
        trace: file of the trace, or None.
        targets: what else to compile for; None for the usual.
        checks: names of checks whose faults are shown at their lines; "" for none.

    Raises:
        ArgumentError: there is no such program or check, or it launches no kernel.
    """
    made, recording = page.report_of_program(arguments, is_module, targets, checks)
    file = made.save(out)
    if trace is not None:
        trace.write_text(trace_file.trace_text(recording), encoding="utf-8")
    return f"{file}: {decimal(file.stat().st_size)}"


def shown_layout(text: str, bits: int, out: Path | None) -> str:
    """A layout as text: its bases, and a picture of a tile of up to two dims; with `out` as a page too.

    Raises:
        ArgumentError: the text is no layout.
    """
    try:
        layout = layout_text.read(text)
    except LayoutError as error:
        raise ArgumentError(str(error), hint="see docs/layouts.md") from error
    lines = [str(layout)]
    sizes = list(layout.out_sizes.values())
    if len(sizes) <= 2 and sizes[-1] <= _WIDEST:
        lines += ["", picture(layout)]
    if out is not None:
        lines.append(str(page.report_of_layout(text, bits).save(out)))
    return "\n".join(lines)
