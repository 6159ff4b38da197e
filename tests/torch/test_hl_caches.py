"""Kernels of `tilewright.hl` in saved programs and caches: every run is a fresh process; the folders begin empty."""

from __future__ import annotations

from pathlib import Path

from tests.torch.test_caches import Bench

KERNELS = """
import torch, tilewright.torch
from tilewright import hl
FACTOR = 2
def callee(v):
    return v * FACTOR
@hl.kernel
def scaled(x, power: hl.constexpr, dtype):
    out = torch.empty_like(x, dtype=dtype)
    for tile in hl.tile(x.size(0)):
        out[tile] = callee(x[tile]) ** power
    return out
"""
SCRIPT = """
import json, os, sys, torch, tilewright.torch
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx
x, report = torch.full((100,), 3.0), {}
def value(f):
    try:
        return f()[3].item()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
if os.path.exists("saved.pt2"):
    report["saved"] = value(lambda: torch.export.load("saved.pt2").module()(x))
    report["imported"] = "user_kernels" in sys.modules
if os.path.exists("user_kernels.py"):
    import user_kernels
    f = lambda x: user_kernels.scaled(x, 2, torch.float64) + 1
    report["name"] = [str(n.target) for n in make_fx(f)(x).graph.nodes if "scaled" in str(n.target)]
    if sys.argv[1] == "compile":
        report["compiled"] = value(lambda: torch.compile(f, fullgraph=True)(x))
        report["hits"] = counters["inductor"]["fxgraph_cache_hit"]
    if not os.path.exists("saved.pt2"):
        class Module(torch.nn.Module):
            def forward(self, x):
                return f(x)
        n = torch.export.Dim("n", min=8)
        torch.export.save(torch.export.export(Module(), (x,), dynamic_shapes=({0: n},)), "saved.pt2")
print(json.dumps(report))
"""


def test_caches_and_saved_programs(tmp_path: Path) -> None:
    """Unchanged and moved kernels are found again; an edit of a callee or a global misses; old code never runs."""
    bench = Bench(tmp_path, KERNELS, SCRIPT)
    first = bench.run("compile")
    assert (first["compiled"], first["hits"]) == (37.0, 0)

    bench.edit(("@hl.kernel", "\n\n# moved\n@hl.kernel"))
    second = bench.run("compile")
    assert second == {"name": first["name"], "saved": 37.0, "imported": True, "compiled": 37.0, "hits": 1}

    bench.edit(("FACTOR = 2", "FACTOR = 4"))
    third = bench.run("")
    assert third["name"] != second["name"] and isinstance(third["saved"], str)
    assert "kernel `scaled` of module user_kernels" in bench.errors and "has changed since" in bench.errors

    bench.module.unlink()
    assert isinstance(bench.run("")["saved"], str)
    assert "put the module on the path, or import user_kernels" in bench.errors
