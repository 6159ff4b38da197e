"""Every benchmark can be started: what it takes from others is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.meta.sources import ROOT

pytest.importorskip("torch")

# Missing are only peers that not every environment has.
IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] not in ("triton", "helion"):
            raise
"""


def test_benchmarks_import() -> None:
    names = sorted(f"benchmarks.{path.stem}" for path in (ROOT / "benchmarks").glob("*.py") if path.stem[0] != "_")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert len(names) > 30 and done.returncode == 0, done.stderr
