"""docs/compare_tools.md: its commands and links exist, its table is whole, and every tool has its sources."""

from __future__ import annotations

import re

import pytest

from tests.meta.sources import ROOT
from tilewright.tools import cli

DOCS = ROOT / "docs"
PAGE = (DOCS / "compare_tools.md").read_text(encoding="utf-8")
TOOLS = ["triton-viz", "tritonparse", "compute-sanitizer", "TileLang", "Compiler Explorer"]
NEW_PAGES = ("compare_tools.md", "first_steps.md", "learn.md")


def test_commands_exist():
    named = set(re.findall(r"`tilewright (\w+)", PAGE))
    assert {"learn", "sanitize", "explain", "report", "layout"} <= named <= set(cli.main.commands)


def test_each_tool_is_praised_first_and_has_its_sources():
    sections = re.split(r"^### ", PAGE.split("## Point by point")[0], flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0].removesuffix("'s tools") for section in sections] == TOOLS
    for section in sections:
        assert section.index("**Ahead of us**") < section.index("**Ahead of it**") < section.index("Source")
        assert re.search(r"<https://[^>]+>", section.split("Source")[1])


def test_the_table_is_whole():
    rows = [line for line in PAGE.split("## Point by point")[1].splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[0].strip("|").split("|")][1:] == ["Tilewright", *TOOLS]
    assert len(rows) > 20 and len({len(row.strip("|").split("|")) for row in rows}) == 1
    assert all(cell.strip() for row in rows[2:] for cell in row.strip("|").split("|"))


def _anchors(text):
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", NEW_PAGES)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([\w./]+\.\w+)(?:#([\w-]+))?\)", (DOCS / page).read_text(encoding="utf-8")):
        path = DOCS / target
        assert path.exists(), f"{page}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in _anchors(path.read_text(encoding="utf-8")), f"{page}: {target}#{anchor}"
