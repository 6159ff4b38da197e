"""Caches and saved programs across processes: every run is a fresh process; the folders begin empty."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KERNELS = """
import torch, tilewright, tilewright.language as tl, tilewright.torch as tt
{space}
FACTOR: tl.constexpr = {factor}
@tilewright.jit
def callee(v):
    return v * FACTOR
@tilewright.jit
def scale(x, o, n, F: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, F(tl.load(x + i, i < n)), i < n)
@tt.triton_op("twcache::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    scale[(tilewright.cdiv(n, 64),)](x, o, n, callee, 64)
    return o
"""
COMPILE = """
import json, sys, torch, tilewright.torch
from torch._dynamo.utils import counters
import user_kernels
f = {"object": user_kernels.scaled, "name": torch.ops.twcache.scaled}[sys.argv[1]]
try:
    found = torch.compile(lambda x: f(x), fullgraph=True)(torch.ones(100))[3].item()
except Exception as error:
    found = f"{type(error).__name__}: {error}"
hits = counters["aot_autograd"]["autograd_cache_hit"]
print(json.dumps([found, hits]))
"""
EXPORT = """
import torch, tilewright.torch, user_kernels
class M(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        user_kernels.scale[(2,)](x, o, 100, user_kernels.callee, 64)
        return o
torch.export.save(torch.export.export(M(), (torch.ones(100),)), "saved.pt2")
print("null")
"""
LOAD = """
import json, sys, torch, tilewright.torch
try:
    found = torch.export.load("saved.pt2").module()(torch.ones(100))[3].item()
except Exception as error:
    found = f"{type(error).__name__}: {error}"
print(json.dumps([found, "user_kernels" in sys.modules]))
"""


class Bench:
    """A folder with a module of kernels, caches of its own, and processes that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.errors = folder, ""

    def kernels(self, factor: int = 2, space: str = "") -> None:
        text = KERNELS.format(factor=factor, space=space)
        (self.folder / "user_kernels.py").write_text(text)

    def run(self, script: str, *args: str) -> Any:
        environment = os.environ | {
            "TILEWRIGHT_CACHE_DIR": str(self.folder / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            "PYTHONPATH": f"{self.folder}{os.pathsep}{os.getcwd()}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        (self.folder / "script.py").write_text(script)
        done = subprocess.run(
            [sys.executable, "script.py", *args], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        self.errors = done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_edit_misses_and_nothing_else_does(bench: Bench) -> None:
    bench.kernels()
    assert bench.run(COMPILE, "object") == [2.0, 0]
    bench.kernels(space="\n\n# moved\n")
    assert bench.run(COMPILE, "object") == [2.0, 1]
    bench.kernels(factor=3)
    assert bench.run(COMPILE, "object") == [3.0, 0]


def test_a_graph_found_by_name_never_runs_old_code(bench: Bench) -> None:
    bench.kernels()
    assert bench.run(COMPILE, "name") == [2.0, 0]
    bench.kernels(factor=5)
    found, hits = bench.run(COMPILE, "name")
    assert hits == 1 and found.startswith("MissingKernelError") and "kernel `scale` of module user_kernels" in found


def test_a_saved_program_finds_its_kernels(bench: Bench) -> None:
    bench.kernels()
    bench.run(EXPORT)
    assert bench.run(LOAD) == [2.0, True]
    bench.kernels(factor=7)
    assert isinstance(bench.run(LOAD)[0], str)
    assert "kernel `scale` of module user_kernels" in bench.errors and "has changed since" in bench.errors
    (bench.folder / "user_kernels.py").unlink()
    assert isinstance(bench.run(LOAD)[0], str)
    assert "put the module on the path, or import user_kernels" in bench.errors
