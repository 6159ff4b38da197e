"""Every example of examples/hl runs as it stands and passes its own checks; a random configuration gives the same."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import random

import pytest
import torch

from tests.meta.sources import ROOT
from tilewright import hl

FOLDER = ROOT / "examples" / "hl"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "check")


@pytest.fixture
def calls(monkeypatch):
    """The first call of every kernel while the test runs: kernel and arguments."""
    found = {}
    plain = hl.Kernel.__call__

    def call(kernel, *args, **kwargs):
        found.setdefault(kernel.name, (kernel, copy.deepcopy(kernel.normalize_args(*args, **kwargs))))
        return plain(kernel, *args, **kwargs)

    monkeypatch.setattr(hl.Kernel, "__call__", call)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_passes_its_checks_and_its_configurations_give_one_result(path, calls, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(importlib.import_module("check"), "best", lambda function, *args: 0.0)  # nothing is timed
    spec = importlib.util.spec_from_file_location(f"hl_example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert "max error" in capsys.readouterr().out and calls
    for name, (kernel, args) in calls.items():
        bound = kernel.bind(args)
        config = bound.config_spec.random(random.Random(name))
        found, expected = (_outputs(bound.compile_config(one), args) for one in (config, None))
        torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2, msg=lambda text, at=config: f"{at}: {text}")


def _outputs(run, args):
    """What a kernel returns, and its arguments afterwards."""
    mine = copy.deepcopy(args)
    out = run(*mine)
    return out, [arg for arg in mine if isinstance(arg, torch.Tensor)]
