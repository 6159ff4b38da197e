"""The pages for users: their Python runs, and what they name exists."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.base.knobs import knobs

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "triton_users.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
GALLERIES = {"errors.md", "hl_errors.md"}  # each block raises: tests/examples/test_error_gallery.py, tests/hl
PAGES = {path.name: path for path in (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))}
FOREIGN = {"liger_kernel"}  # libraries that a page shows in use; a block that imports one needs it


def blocks_of(page: str) -> list[str]:
    """The Python of a page, as a reader copies it."""
    return re.findall(r"```(?:python|py)\n(.*?)```", PAGES[page].read_text(encoding="utf-8"), re.DOTALL)


def is_session(block: str) -> bool:
    """Whether a block shows what an interactive session answers; those of the language have a test of their own."""
    return block.startswith(">>>")


WITH_PYTHON = [name for name in PAGES if name not in GALLERIES and any(not is_session(b) for b in blocks_of(name))]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_runs_as_copied(page, tmp_path):
    """The blocks of a page in order, as one program; nothing is put in front of them."""
    blocks = [block for block in blocks_of(page) if not is_session(block)]
    wanted = {name for name in FOREIGN if importlib.util.find_spec(name) is None}
    blocks = [block for block in blocks if not any(f"from {name}" in block for name in wanted)]
    path = tmp_path / "page.py"
    path.write_text("\n".join(blocks), encoding="utf-8")
    if "torch" in path.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    settings = {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(DOCS.parent)}
    done = subprocess.run([sys.executable, str(path)], env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [name for name in PAGES if any(map(is_session, blocks_of(name)))])
def test_sessions_answer_what_the_page_says(page, tmp_path):
    if page == "language.md":
        return  # values of a kernel: tests/ops/test_generated_examples.py
    text = "\n".join(block for block in blocks_of(page) if is_session(block))
    failed, tried = doctest.testfile(str(_written(tmp_path / page, text)), module_relative=False)
    assert tried and not failed


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("page", [name for name in WITH_PYTHON if name != "as_triton.md"])
def test_python_of_pages_checks_itself(page):
    assert any("assert" in block for block in blocks_of(page)) or page in ("assumptions.md", "hl_helion.md")


def test_rows_of_the_page_on_speed_are_measured():
    page = (DOCS / "fast_on_cpu.md").read_text(encoding="utf-8")
    for letter, module in (("A", "advice"), ("F", "forms")):
        paths = sorted((DOCS.parent / "benchmarks").glob(f"*{module}*.py"))
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
