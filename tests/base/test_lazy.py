"""Names of a module that are found when they are first used."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.meta.sources import ROOT
from tilewright.base.lazy import load_behind, names_on_first_use


def test_a_name_is_found_once_and_kept() -> None:
    names: dict[str, Any] = {"__name__": "somewhere"}
    find = names_on_first_use(names, {"math": ("sqrt",)})
    assert find("sqrt") is math.sqrt
    assert names["sqrt"] is math.sqrt
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'sin'"):
        find("sin")


def test_modules_that_no_launch_needs_wait() -> None:
    probe = """
import sys
import tilewright
late = ["tilewright.testing", "tilewright.runtime", "tilewright.tuning.autotune", "tilewright.backends.llvm.codegen"]
assert not [name for name in late if name in sys.modules]
assert {"testing", "autotune", "load_bundle"} <= set(dir(tilewright))
assert all(getattr(tilewright, name) is not None for name in tilewright.__all__)
assert tilewright.testing.do_bench and "autotune" in vars(tilewright)
"""
    subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=True)


def test_a_module_loads_behind_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ahead_of_it.py").write_text("READY = True\n")
    (tmp_path / "behind_it.py").write_text("import ahead_of_it\nassert ahead_of_it.READY\n")
    (tmp_path / "broken_behind.py").write_text("raise RuntimeError('not here')\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_behind("ahead_of_it", "behind_it")
    load_behind("ahead_of_it", "no_such_module", unless=lambda: True)
    assert "behind_it" not in sys.modules
    importlib.import_module("ahead_of_it")
    assert "behind_it" in sys.modules
    with pytest.warns(UserWarning, match="broken_behind could not be loaded behind ahead_of_it: not here"):
        load_behind("ahead_of_it", "broken_behind")  # it is there already
