"""Sphinx: the site, made of the pages of docs/ as they are (`make site`).

The pages are plain Markdown that works where repositories are shown, without a directive of Sphinx. Navigation comes
from the lists of docs/index.md; a page that no list names stands under "More".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
_VERSION = Path(__file__).resolve().parents[2] / "tilewright" / "base" / "version.py"

project = "Tilewright"
version = release = re.findall(r'^__version__ = "(.+)"', _VERSION.read_text(encoding="utf-8"), re.MULTILINE)[0]
copyright = "the authors of Tilewright, Apache-2.0"
extensions = ["myst_parser"]
myst_heading_anchors = 6  # as repositories show them
myst_enable_extensions = ["strikethrough"]
html_theme = "pydata_sphinx_theme"
html_title = "Tilewright"
html_show_sourcelink = False
templates_path = ["templates"]
html_sidebars = {"**": ["navigation"]}
html_theme_options = {
    "navbar_start": ["navbar-logo", "version-switcher"],
    "switcher": {"json_url": "../versions.json", "version_match": version},
    "check_switcher": False,  # the list of versions is written behind the build
    "navbar_center": [],
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
# Texts of IR and sessions are no language that is highlighted.
suppress_warnings = ["misc.highlighting_failure"]


def navigation(index: str, pages: list[str]) -> dict[str, list[str]]:
    """Pages by section: those that lists of an index link to, and the others under "More".

    Args:
        index: the text of the page with the lists.
        pages: every page, without its extension.
    """
    sections: dict[str, list[str]] = {}
    for part in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        listed = [name.removesuffix(".md") for name in re.findall(r"^\* \[[^]]+\]\(([^)]+\.md)\)", part, re.MULTILINE)]
        sections[part.splitlines()[0]] = listed
    named = {"index", *(name for names in sections.values() for name in names)}
    others = [page for page in pages if page not in named and "/" not in page]
    return {**sections, **({"More": others} if others else {})}


def _toctree(caption: str, entries: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"])


def _add_navigation(app: Any, page: str, source: list[str]) -> None:
    if page == "index":
        found = navigation(source[0], sorted(app.env.found_docs))
        trees = [_toctree(caption, entries) for caption, entries in found.items()]
        source[0] += "\n\n" + "\n\n".join(trees) + "\n"
    if page == "decisions/README":
        listed = sorted(name for name in app.env.found_docs if name.startswith("decisions/") and name != page)
        source[0] += "\n\n" + _toctree("Decisions", [f"/{name}" for name in listed]) + "\n"


def _outside(app: Any, page: str, source: list[str]) -> None:
    """Links to folders and pages beside docs/, which a site does not have, as their texts; other files are copied."""
    folder = (DOCS / page).parent

    def text(link: re.Match[str]) -> str:
        target = (folder / link[2].partition("#")[0]).resolve()
        is_here = target.is_relative_to(DOCS) or (target.is_file() and target.suffix != ".md")
        return link[0] if is_here else f"{link[1]} (`{target.relative_to(DOCS.parent)}`)"

    source[0] = re.sub(r"(?<!!)\[([^]]+)\]\((\.\./[^)\s]+)\)", text, source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_navigation)
    app.connect("source-read", _outside)
