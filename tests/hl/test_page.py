"""The page for users: its Python runs, block after block."""

from __future__ import annotations

import re

from tests.meta.sources import ROOT
from tilewright import knobs
from tilewright.hl import language
from tilewright.hl.settings import WITHOUT_MEANING
from tilewright.hl.tune.keys import KEYS, Ignored

HELION = (ROOT / "docs" / "hl_helion.md").read_text(encoding="utf-8")
TUNING = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "hl.md").read_text(encoding="utf-8")


def test_python_runs(tmp_path):
    path = tmp_path / "page.py"
    path.write_text("\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "page"})


def test_python_of_the_page_on_tuning_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    path = tmp_path / "tuning.py"
    path.write_text("\n\n".join(re.findall(r"```python\n(.*?)```", TUNING, re.DOTALL)), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "tuning"})


def test_every_name_has_a_state():
    named = set(re.findall(r"`(\w+)`", HELION.split("## Every name")[1]))
    assert not set(language.__all__) - named


def test_what_is_accepted_without_effect_is_listed():
    listed = PAGE.split("## Accepted and without effect")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in listed.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert named == WITHOUT_MEANING | {name for name, key in KEYS.items() if isinstance(key, Ignored)}
