"""Plots of matplotlib as SVG that takes the colours of the page."""

from __future__ import annotations

import hashlib
import io
import re
from types import ModuleType
from typing import Any

INK, FAINT, LINE, DOT, SOFT = "#010101", "#020202", "#030303", "#040404", "#050505"
"""Stand for colours of the page while a plot is made."""
_MEANT = {INK: "var(--ink)", FAINT: "var(--line)", LINE: "var(--accent)", DOT: "var(--warm)", SOFT: "var(--soft)"}

_STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "text.color": INK, "axes.labelcolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": FAINT, "svg.hashsalt": "tilewright",
}  # fmt: skip


def plotting() -> tuple[ModuleType, Any] | None:
    """`matplotlib.pyplot`, drawing to files, and the context with the style of the page; None where it is missing."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot, pyplot.rc_context(_STYLE)


def svg_of(figure: Any, label: str) -> str:
    """A figure as an SVG element.

    Args:
        figure: of matplotlib.
        label: what it is, for readers of screens.
    """
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    for stands, meant in _MEANT.items():
        svg = svg.replace(stands, meant)
    svg = _with_ids_of_its_own(svg, hashlib.sha1(label.encode()).hexdigest()[:6])
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'font: ([^;"]*?)(?:\'[^;"]*|sans-serif[^;"]*)', r"font: \1var(--sans)", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _with_ids_of_its_own(svg: str, prefix: str) -> str:
    """Several plots stand in one page; marks that the page's script looks for keep their names."""
    svg = re.sub(r'\bid="(?!roof-)', f'id="{prefix}-', svg)
    return re.sub(r"(url\(|href=\")#", rf"\1#{prefix}-", svg)
