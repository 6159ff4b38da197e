"""Writes docs/state_helion.md: every public name of Helion with what it is where Tilewright poses as it.

The names are the list from which the modules themselves are made. `tilewright.tools.docgen` writes the page together
with the language reference.
"""

from __future__ import annotations

from tilewright.helion_names.surface import IGNORED, MODULES, REFUSED, ROWS, WORKS, Row

_HEAD = """\
# State of the names of Helion

Written by `make docs` from the list in `tilewright/helion_names/surface.py`, of which the modules of the posing package
are made; edit that. Helion 1.5.1. What works is Tilewright's own object under Helion's name; what is ignored is
accepted and changes nothing; a refused name can be imported, and raises `BackendUnsupported` with the reason where it
is used. Errors (`helion.exc`) are those of `tilewright.hl.exc`; keys of configurations, settings, variables of the
environment and operations are in [as_helion.md](as_helion.md) and [hl.md](hl.md).
"""


def markdown() -> str:
    """The page as text."""
    parts = [_HEAD, _counts()]
    for module in MODULES:
        rows = [row for row in ROWS if row.module == module]
        parts.append(f"## `{module}`\n\n| names | state | |\n|---|---|---|\n" + "".join(map(_line, rows)))
    return "\n".join(parts)


def _counts() -> str:
    works, ignored, refused = (
        sum(len(row.names) for row in ROWS if row.state == state) for state in (WORKS, IGNORED, REFUSED)
    )
    return f"Of {works + ignored + refused} names {works} work, {ignored} are ignored and {refused} refused.\n"


def _line(row: Row) -> str:
    return f"| {', '.join(f'`{name}`' for name in row.names)} | {row.state} | {row.why} |\n"
