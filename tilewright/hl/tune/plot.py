"""A picture of a search: every measurement by when it was made, and the best so far."""

from __future__ import annotations

import html
import math

from tilewright.hl.tune.journal import Search

_WIDTH, _HEIGHT, _MARGIN = 720, 360, 56


def svg(search: Search) -> str:
    """The picture of a search as SVG: a dot for each time, a cross for each failure, a line for the best so far.

    Args:
        search: one with at least one time.
    """
    rows = [row for row in search.rows if "ms" in row and "part" not in row]
    last = max((float(row.get("at", 0)) for row in search.rows), default=1.0) or 1.0
    low, high = (math.log10(pick(float(row["ms"]) for row in rows)) for pick in (min, max))
    span = max(high - low, 0.01)

    def place(row: dict[str, object]) -> tuple[float, float]:
        x = _MARGIN + float(str(row.get("at", 0))) / last * (_WIDTH - 2 * _MARGIN)
        share = 0.0 if "failed" in row else 1 - (math.log10(float(str(row["ms"]))) - low) / span
        return round(x, 1), round(_MARGIN + share * (_HEIGHT - 2 * _MARGIN), 1)

    dots = "".join(f'<circle cx="{x}" cy="{y}" r="3" fill="#4878a8"/>' for x, y in map(place, rows))
    failed = [place(row) for row in search.rows if "failed" in row]
    crosses = "".join(f'<text x="{x}" y="{_MARGIN - 8}" fill="#b04040">×</text>' for x, _ in failed)
    steps: list[tuple[float, float]] = []
    best = math.inf
    for row in rows:
        if float(row["ms"]) < best:
            best = float(row["ms"])
            x, y = place(row)
            steps += [(x, steps[-1][1]), (x, y)] if steps else [(x, y)]
    steps.append((_WIDTH - _MARGIN, steps[-1][1]))
    line = " ".join(f"{x},{y}" for x, y in steps)
    title = f"{search.head.get('kernel', '')}: {len(rows)} timed, {len(failed)} out, best {best:.4g} ms"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{_MARGIN}" y="24" font-size="14">{html.escape(title)}</text>'
        f'<text x="8" y="{_MARGIN}">{10**high:.3g} ms</text><text x="8" y="{_HEIGHT - _MARGIN}">{10**low:.3g} ms</text>'
        f'<text x="{_WIDTH - _MARGIN - 30}" y="{_HEIGHT - 24}">{last:.0f} s</text>'
        f'{crosses}{dots}<polyline points="{line}" fill="none" stroke="#d07020" stroke-width="2"/></svg>\n'
    )
