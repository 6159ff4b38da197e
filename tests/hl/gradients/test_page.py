"""The page for users: its Python runs, block after block."""

from __future__ import annotations

import re

from tests.meta.sources import ROOT


def test_python_runs(tmp_path):
    page = (ROOT / "docs" / "hl_gradients.md").read_text(encoding="utf-8")
    path = tmp_path / "page.py"
    path.write_text("\n\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "page"})
