"""The page for users: its Python runs, block after block."""

from __future__ import annotations

import re
from pathlib import Path

from tests.meta.sources import ROOT

PAGE = (ROOT / "docs" / "gradients.md").read_text(encoding="utf-8")


def test_python_runs(tmp_path: Path) -> None:
    path = tmp_path / "page.py"
    path.write_text("\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "page"})
