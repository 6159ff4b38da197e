"""The plugin of pytest: what it loads, its fixtures and its options."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.meta.sources import ROOT

TESTS = """
import numpy as np
import tilewright
import tilewright.language as tl

@tilewright.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, i < n), i < n)

def test_where(device, request):
    interpreted = tilewright.knobs.runtime.interpret
    print(request.node.name, "on", device, "interpreted" if interpreted else "compiled")
    x = np.ones(8, np.float32)
    if device == "cpu":
        double[(1,)](x, 8, BLOCK=8)
        assert (x == 2).all()

def test_cold(tilewright_cache):
    with tilewright.knobs.runtime.scope():
        tilewright.knobs.runtime.interpret = False
        assert not tilewright_cache.exists()
        double[(1,)](np.ones(8, np.int32), 8, BLOCK=8)
    assert list(tilewright_cache.rglob("*.tile"))

def test_as_before():
    print("left:", tilewright.knobs.runtime.interpret, tilewright.knobs.cache.dir)
"""


def pytest_of(folder, *options: str) -> str:
    (folder / "test_kernels.py").write_text(TESTS)
    plugin = ["-p", "no:tilewright", "-p", "no:tilewright-sanitize", "-p", "pytest_tilewright"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-rs",
        "-p",
        "no:cacheprovider",
        *plugin,
        str(folder),
        *options,
    ]
    settings = {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(folder / "usual"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fixtures(tmp_path):
    said = pytest_of(tmp_path)
    assert "test_where[interpreter] on cpu interpreted" in said and "test_where[cpu] on cpu compiled" in said
    assert "4 passed, 1 skipped" in said and f"left: False {tmp_path / 'usual'}" in said


def test_everything_interpreted(tmp_path):
    said = pytest_of(tmp_path, "--tilewright-interpret")
    assert "test_where[cpu] on cpu interpreted" in said and "left: True" in said


def test_it_loads_nothing_until_it_is_used():
    program = (
        "import sys, pytest_tilewright; print(sorted({'numpy', 'torch', 'tilewright', 'hypothesis'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
