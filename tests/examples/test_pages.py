"""The pages for users: their Python runs, and what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright
from tilewright.base.knobs import knobs

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "triton_users.md").read_text(encoding="utf-8")
HEADER = "import numpy as np\nimport tilewright as triton\nimport tilewright.language as tl\n"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_python_runs(index, tmp_path):
    path = tmp_path / "block.py"
    path.write_text(HEADER + BLOCKS[index], encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "block"})


@pytest.mark.parametrize("page", ["caching.md", "tuning.md"])
def test_python_of_other_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    path = tmp_path / "page.py"
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    path.write_text("\n".join(blocks), encoding="utf-8")
    assert "assert" in blocks[-1]
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "page"})


def test_the_page_on_speed_runs_and_its_rows_are_measured(tmp_path):
    page = (DOCS / "fast_on_cpu.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "block.py"
    path.write_text(HEADER + block, encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "block"})
    for letter, module in (("A", "advice"), ("F", "forms")):
        paths = sorted((DOCS.parent / "benchmarks").glob(f"{module}*.py"))
        text = "".join(path.read_text(encoding="utf-8") for path in paths)
        rows = re.findall(rf"`{letter} (\w+|\"[^\"]+\")`", page)
        assert rows and all(f'"{row.strip(chr(34))}' in text for row in rows), rows


@pytest.mark.parametrize("page", ["caching.md", "tuning.md", "launching.md"])
def test_settings_of_other_pages_exist(page):
    known = {variable for _, variable, _, _ in knobs.describe()}
    mentioned = set(re.findall(r"TILEWRIGHT_[A-Z0-9_]*[A-Z0-9]", (DOCS / page).read_text(encoding="utf-8")))
    assert mentioned and mentioned <= known


def test_most_blocks_check_themselves():
    assert sum("assert" in block for block in BLOCKS) >= len(BLOCKS) - 1 >= 4


def test_environment_variables_exist():
    known = {variable for _, variable, _, _ in knobs.describe()}
    mentioned = set(re.findall(r"TILEWRIGHT_[A-Z0-9_]*[A-Z0-9]", PAGE))
    assert mentioned <= known and len(mentioned) > 5


def test_knobs_exist_and_stand_beside_their_variables():
    variables = {name: variable for name, variable, _, _ in knobs.describe()}
    rows = re.findall(r"\| `(TILEWRIGHT_\w+)` \| `knobs\.([\w.]+)` \|", PAGE)
    assert len(rows) >= 10 and all(variables[name] == variable for variable, name in rows)


def test_names_exist():
    names = set(re.findall(r"`(triton|tl)\.([a-z_A-Z0-9.]+)", PAGE))
    assert len(names) > 15
    for module, path in names:
        value = tilewright if module == "triton" else tilewright.language
        for part in path.rstrip(".").split("."):
            value = getattr(value, part)


def test_links_lead_somewhere():
    for page in ("triton_users.md", "errors.md", "caching.md", "tuning.md", "launching.md"):
        for target in re.findall(r"\]\(([\w./]+\.(?:md|py))", (DOCS / page).read_text(encoding="utf-8")):
            assert (DOCS / target).exists(), f"{page}: {target}"
