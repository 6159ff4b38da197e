"""Names of a module that are found when they are first used."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from tests.meta.sources import ROOT
from tilewright.base.lazy import names_on_first_use


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
