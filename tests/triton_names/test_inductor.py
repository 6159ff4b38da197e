"""Inductor's Triton code on the CPU: the fixed list of graphs, in fresh processes with empty caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.meta.sources import ROOT

PARTS = 2  # processes: Inductor loads for seconds in each

WORKERS = """
import torch
import torch._inductor.config as inductor
from torch._dynamo.utils import counters
from torch._inductor.async_compile import AsyncCompile

if __name__ == "__main__":
    inductor.cpu_backend, inductor.compile_threads, inductor.worker_start_method = "triton", 2, "subprocess"
    AsyncCompile.warm_pool()
    AsyncCompile.wait_pool_ready()
    x = torch.randn(100, 90)
    compiled = torch.compile(lambda x: (x.relu() + 1).softmax(-1), fullgraph=True)
    torch.testing.assert_close(compiled(x), (x.relu() + 1).softmax(-1))
    print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


def posing(folder, *program: str) -> str:
    """Standard output of a program in a fresh process that poses, with its caches in `folder`."""
    pytest.importorskip("torch")
    fresh = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TILEWRIGHT_CACHE_DIR": str(folder / "kernels")}
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.as_triton", *program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **fresh},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_graphs(part, tmp_path):
    found = posing(tmp_path, "-m", "tests.triton_names.inductor", "--part", f"{part}/{PARTS}")
    summary = json.loads(found.splitlines()[-1])
    assert not summary["failures"]
    assert summary["graphs"] >= 80 and summary["kernels"] >= 80  # the kernels are Triton's code, made here


@pytest.mark.slow
def test_compile_workers_and_a_warm_cache(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(WORKERS)
    assert posing(tmp_path, str(program)).split() == ["0", "1"]
    assert posing(tmp_path, str(program)).split() == ["1", "0"]  # another process, and nothing is compiled


@pytest.mark.slow
def test_kernels_of_users_in_torchs_own_integration(tmp_path):
    if pytest.importorskip("torch").__version__ < "2.12":
        pytest.skip("torch 2.11 has another analysis of what a kernel writes")
    assert len(posing(tmp_path, "-m", "tests.triton_names.user_kernels").splitlines()) == 10
