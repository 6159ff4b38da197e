"""Inductor's Triton code on the CPU: the fixed list of graphs, in fresh processes with empty caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.meta.sources import ROOT

PARTS = 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_graphs(part, tmp_path):
    pytest.importorskip("torch")
    fresh = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "kernels")}
    command = [sys.executable, "-m", "tilewright.as_triton", "-m", "tests.triton_names.inductor"]
    done = subprocess.run(
        [*command, "--part", f"{part}/{PARTS}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **fresh},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert not summary["failures"]
    assert summary["graphs"] >= 40 and summary["kernels"] >= 40  # the kernels are Triton's code, made here
