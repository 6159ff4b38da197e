"""Every example of examples/hl runs as it stands and passes its own checks."""

from __future__ import annotations

import importlib.util

import pytest

from tests.meta.sources import ROOT

FOLDER = ROOT / "examples" / "hl"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "check")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_passes_its_checks(path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(f"hl_example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert "max error" in capsys.readouterr().out
