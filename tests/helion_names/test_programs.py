"""Kernels in the idioms of Helion's users run under its name, unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.meta.sources import ROOT


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("module", ["tests.helion_names.programs", "tests.triton_names.helion_kernels"])
def test_programs_are_right(module, device):
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.as_helion", "-m", module, "--device", device],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "TILEWRIGHT_DEFAULT_BACKEND": device},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failures"] == {} and found["kernels"] >= 30
