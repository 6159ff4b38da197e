"""Inductor's Triton code on the CPU: every graph of the list, in fresh processes with empty caches.

Fourteen graphs are compiled as one, which halves what Inductor takes for each. `make test-inductor` compiles each
alone, starts compile workers, and runs torch's database of operators.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.meta.sources import ROOT

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


AHEAD = [
    "from tests.triton_names import scenarios; scenarios.main([])",
    "from tests.triton_names import user_kernels; user_kernels.main()",
]
"""What runs ahead of each half of the graphs, in the process that has loaded Inductor for it."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(len(AHEAD)))
def test_graphs_and_what_they_rely_on(part, tmp_path):
    torch = pytest.importorskip("torch")
    ahead = part == 0 or tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12)  # 2.11 analyses kernels otherwise
    graphs = f"inductor.main(['--part', '{part}/{len(AHEAD)}', '--together', '14'])"
    program = [
        "import gc; gc.disable()",
        "from tests.triton_names import inductor",
        AHEAD[part] if ahead else "",
        graphs,
    ]
    (tmp_path / "part.py").write_text("\n".join(program))
    lines = posing(tmp_path, str(tmp_path / "part.py")).splitlines()
    summaries = [json.loads(line) for line in lines if line.startswith("{")]
    assert [summary["failures"] for summary in summaries] == [{}] * len(summaries)
    assert summaries[-1]["graphs"] >= 75 and summaries[-1]["kernels"] >= 75  # the kernels are Triton's code, made here
    if part:
        assert sum(line.startswith(("eager ", "aot_eager ", "inductor ")) for line in lines) == 9 * ahead
    else:
        assert summaries[0]["scenarios"] == 6


@pytest.mark.slow
@pytest.mark.skipif("TILEWRIGHT_STRESS" not in os.environ, reason="of make test-inductor: forty seconds")
def test_compile_workers_and_a_warm_cache(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(WORKERS)
    assert posing(tmp_path, str(program)).split() == ["0", "1"]
    assert posing(tmp_path, str(program)).split() == ["1", "0"]  # another process, and nothing is compiled


@pytest.mark.slow
def test_what_packages_of_aot_inductor_hold(tmp_path):
    pytest.importorskip("torch")
    posing(tmp_path, "-m", "tests.triton_names.packing_rules")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="the programs are built by a C++ compiler, and there is none")
def test_exported_models_run_in_programs_without_python(tmp_path):
    torch = pytest.importorskip("torch")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip("PyTorch packs kernels for a CPU since 2.13")
    said = posing(tmp_path, "-m", "tests.triton_names.exported_models", str(tmp_path))
    assert said.splitlines() == ["3 inputs agree", "1 inputs agree"]
