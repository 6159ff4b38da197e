"""Caches and saved programs across processes: every run is a fresh process; the folders begin empty.

Processes are slow to start, so each does everything that is looked at in its turn, for kernels of `tl` and of `hl`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

KERNELS = """
import torch, tilewright, tilewright.language as tl, tilewright.torch as tt
from tilewright import hl
FACTOR: tl.constexpr = 2
@tilewright.jit
def callee(v):
    return v * 2
@tilewright.jit
def by_source(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * 2, i < n)
@tilewright.jit
def by_callee(x, o, n, F: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, F(tl.load(x + i, i < n)), i < n)
@tilewright.jit
def by_global(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * FACTOR, i < n)
def source(x: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    by_source[(tilewright.cdiv(n, 64),)](x, o, n, 64)
    return o
def call(x: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    by_callee[(tilewright.cdiv(n, 64),)](x, o, n, callee, 64)
    return o
def space(x: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    by_global[(tilewright.cdiv(n, 64),)](x, o, n, 64)
    return o
operators = {f.__name__: tt.triton_op(f"twcache::{f.__name__}", f, mutates_args=()) for f in (source, call, space)}
POWER = 2
def raised(v, power):
    return v ** (POWER + power)
@hl.kernel
def scaled(x, power: hl.constexpr, dtype):
    out = torch.empty_like(x, dtype=dtype)
    for tile in hl.tile(x.size(0)):
        out[tile] = raised(x[tile] * 2, power)
    return out
def of_hl(x):
    return scaled(x, 1, torch.float64)
"""
SCRIPT = """
import json, os, sys, torch, tilewright.torch
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx
x, report = torch.ones(100), {}
def value(f):
    try:
        return f()[3].item()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def packaged(x):
    tilewright.torch.define_operators("package.pt2")
    return torch._inductor.aoti_load_package("package.pt2")(x)
if os.path.exists("package.pt2"):
    report["package"] = value(lambda: packaged(x))
for name in ("saved", "saved_hl"):
    if os.path.exists(f"{name}.pt2"):
        report[name] = value(lambda: torch.export.load(f"{name}.pt2").module()(x))
        report["imported"] = "user_kernels" in sys.modules
class Module(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
    def forward(self, x):
        return self.f(x)
def export(f, name, shapes):
    program = torch.export.export(Module(f), (x,), dynamic_shapes=shapes)
    torch.export.save(program, f"{name}.pt2")
    return program
if os.path.exists("user_kernels.py"):
    import user_kernels
    calls = {f"object {name}": op for name, op in user_kernels.operators.items()}
    calls |= {"bare": user_kernels.call, "name": torch.ops.twcache.source, "hl": user_kernels.of_hl}
    for name, f in calls.items():
        counters.clear()
        found = value(lambda: torch.compile(lambda x: f(x), fullgraph=True)(x))
        cache = ("inductor", "fxgraph_cache_hit") if name == "hl" else ("aot_autograd", "autograd_cache_hit")
        report[name] = [found, counters[cache[0]][cache[1]]]
    graph = make_fx(user_kernels.of_hl)(x).graph
    report["operators"] = [str(n.target) for n in graph.nodes if "scaled" in str(n.target)]
    if not os.path.exists("saved.pt2"):
        program = export(lambda x: user_kernels.call(user_kernels.source(x)), "saved", None)
        export(user_kernels.of_hl, "saved_hl", ({0: torch.export.Dim("n", min=8)},))
        if sys.argv[1] == "package":
            quickly = {"aot_inductor.compile_wrapper_opt_level": "O0"}
            torch._inductor.aoti_compile_and_package(program, package_path="package.pt2", inductor_configs=quickly)
print(json.dumps(report))
"""


def torch_version() -> tuple[int, ...]:
    """Of the torch that the processes load, which this one need not."""
    return tuple(map(int, version("torch").split(".")[:2]))


class Bench:
    """A folder with a module of kernels, caches of its own, and processes that run in it."""

    def __init__(self, folder: Path, kernels: str, script: str) -> None:
        self.folder, self.errors = folder, ""
        self.module = folder / "user_kernels.py"
        self.module.write_text(kernels)
        (folder / "script.py").write_text(script)

    def edit(self, *changes: tuple[str, str]) -> None:
        text = self.module.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.module.write_text(text)

    def run(self, *args: str) -> dict[str, Any]:
        environment = os.environ | {
            "TILEWRIGHT_CACHE_DIR": str(self.folder / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # these three only save time
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
            "PYTHONPATH": f"{self.folder}{os.pathsep}{os.getcwd()}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, "script.py", *args], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        self.errors = done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def test_caches_and_saved_programs(tmp_path: Path) -> None:
    """Unchanged and moved kernels hit; an edit of a kernel, a callee or a global misses; old code never runs."""
    bench = Bench(tmp_path, KERNELS, SCRIPT)
    # Packages hold a shared library; the loader of torch 2.11 dies of operators that nobody has registered.
    with_package = shutil.which("g++") is not None and torch_version() >= (2, 12)
    values = {"object source": 2.0, "object call": 2.0, "object space": 2.0, "bare": 2.0, "name": 2.0, "hl": 8.0}
    first = bench.run("package" if with_package else "")
    operators = first.pop("operators")
    assert first == {name: [value, 0] for name, value in values.items()}

    bench.edit(
        ("@tilewright.jit\ndef by_", "\n\n# moved\n@tilewright.jit\ndef by_"), ("@hl.kernel", "\n# moved\n@hl.kernel")
    )
    second = bench.run("")
    assert (second.pop("saved"), second.pop("saved_hl")) == (4.0, 8.0) and second.pop("imported")
    assert second.pop("operators") == operators and second.pop("package", 4.0) == 4.0
    assert second == {name: [value, 1] for name, value in values.items()}

    bench.edit(
        ("i < n) * 2,", "i < n) * 3,"),
        ("v * 2", "v * 5"),
        ("FACTOR: tl.constexpr = 2", "FACTOR: tl.constexpr = 7"),
        ("POWER = 2", "POWER = 4"),
    )
    third = bench.run("")
    for name, value in {"object source": 3.0, "object call": 5.0, "object space": 7.0, "hl": 32.0}.items():
        found, hits = third[name]
        # Caches of torch 2.11 may still hold the graph of the old kernel, which is refused.
        refused = torch_version() < (2, 12) and str(found).startswith("MissingKernelError")
        assert refused or (found, hits) == (value, 0)
    assert third["bare"] == [5.0, 0] and third["operators"] != operators
    stale = third["name"][0]
    for text in (stale, bench.errors):  # torch says of a saved program only that it lacks an operator
        assert "kernel `by_source` of module user_kernels" in text and "has changed since" in text
    assert "kernel `scaled` of module user_kernels" in bench.errors
    assert all(text.startswith("MissingKernelError") for text in (stale, third.get("package", stale)))
    assert isinstance(third["saved"], str) and isinstance(third["saved_hl"], str)

    bench.module.unlink()
    fourth = bench.run("")
    assert isinstance(fourth["saved"], str) and isinstance(fourth["saved_hl"], str)
    assert "put the module on the path, or import user_kernels" in bench.errors
    if not with_package:
        pytest.skip("AOTInductor packages need a C++ compiler and torch 2.12; everything else was checked")
