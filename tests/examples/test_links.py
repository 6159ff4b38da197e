"""Links between pages: files and headings that they name are there; the navigation of the site has every page once."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

import tilewright
from tests.meta.sources import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """What headings can be linked by, as repositories and the site make it of their text."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _CODE.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)  # a link is its text
        name = re.sub(r"[^\w\- ]", "", shown.lower().strip()).replace(" ", "-")
        again = 0
        while (unique := f"{name}-{again}" if again else name) in found:
            again += 1
        found.add(unique)
    return found


@functools.cache
def anchors_of(page: Path) -> set[str]:
    """The anchors of a page."""
    return anchors(page.read_text(encoding="utf-8"))


def links(text: str) -> list[str]:
    """Targets of links and pictures, outside of code."""
    plain = re.sub(r"`[^`\n]*`", "", _CODE.sub("", text))
    return re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", plain)


def broken(page: Path, text: str) -> list[str]:
    """Links of a page that lead nowhere in this repository."""
    found = []
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        there = target.is_file() or (target.is_dir() and name.endswith("/"))
        if not there or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert not broken(page, page.read_text(encoding="utf-8"))


def test_broken_links_are_seen():
    good = "[c](hl.md) `[d](no.md)` [e](https://no) [f](hl.md#pytorch-with-tile-loops)\n"
    assert broken(DOCS / "x.md", f"[a](no.md) [b](hl.md#no) {good} ![g](no.png)") == ["no.md", "hl.md#no", "no.png"]
    assert anchors("# There, `it` is\n# There, it is\n") == {"there-it-is", "there-it-is-1"}
    assert anchors("```\n# no\n```\n## [A](b.md) and_c\n") == {"a-and_c"}


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "packaging" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_navigation_has_every_page_once():
    pages = [path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted(DOCS.rglob("*.md"))]
    sections = _module("conf").navigation((DOCS / "index.md").read_text(encoding="utf-8"), pages)
    assert _module("conf").version == tilewright.__version__
    assert [*sections][:4] == ["Tutorial", "How to", "Reference", "Internals"]
    listed = [page for names in sections.values() for page in names]
    assert len(listed) == len(set(listed))
    assert {page for page in pages if "/" not in page} - {"index"} <= set(listed) <= set(pages)
    assert _module("conf").navigation("## A\n* [x](x.md)\n", ["index", "x", "y", "d/z"]) == {"A": ["x"], "More": ["y"]}


def test_versions_are_listed_the_newest_first(tmp_path):
    for version in ("0.9.0", "0.10.0", "0.10.1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").touch()
    assert _module("build").write_versions(tmp_path) == ["0.10.1", "0.10.0", "0.9.0"]
    assert json.loads((tmp_path / "versions.json").read_text())[0]["url"] == "../0.10.1/"
    assert "0.10.1/index.html" in (tmp_path / "index.html").read_text()
