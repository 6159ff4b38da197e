"""A kernel that the disk cache has needs no compiler: the modules of a fresh process tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.sources import ROOT

PROGRAM = """
import json, sys
import numpy as np
import tilewright
import tilewright.language as tl

@tilewright.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)

x, out = np.ones(100, np.float32), np.zeros(100, np.float32)
kernel = add[(1,)](x, x, out, 100, BLOCK=128)
assert (out == 2).all()
print(json.dumps([kernel.from_disk, sorted(sys.modules)]))
"""
COMPILER = (
    "llvmlite", "tilewright.frontend.entry", "tilewright.passes.pipeline", "tilewright.analysis",
    "tilewright.backends.cpu.plan", "tilewright.backends.cpu.emit", "tilewright.backends.cpu.refused",
    "tilewright.backends.llvm.module", "tilewright.backends.llvm.elementwise",
)  # fmt: skip


def run(folder: Path, program: Path) -> tuple[bool, list[str]]:
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True)
    from_disk, modules = json.loads(done.stdout)
    return from_disk, modules


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere LLVM loads the object and tells what machine this is")
def test_the_first_cached_kernel_of_a_process_loads_no_part_of_the_compiler(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    cold, loaded = run(tmp_path / "cache", program)
    assert not cold and set(COMPILER) <= set(loaded)
    warm, loaded = run(tmp_path / "cache", program)
    assert warm
    assert not [name for name in loaded if name.startswith(COMPILER)]


def test_another_loader_runs_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run(tmp_path / "cache", program)
    monkeypatch.setenv("TILEWRIGHT_LOADER", "llvm")  # as on systems that our own does not know
    from_disk, modules = run(tmp_path / "cache", program)
    assert from_disk and "llvmlite" in modules
