"""Launches under transforms of `torch.func`: recorded, or refused where derivatives would be 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tilewright
import tilewright.language as tl
import tilewright.torch
from tilewright.base.errors import GradientError


@tilewright.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)


def doubled(x):
    out = torch.empty_like(x)
    twice[(1,)](x, out, x.numel(), BLOCK=16)
    return out


ROOT = Path(__file__).parents[2]
TRANSFORMS = {
    "grad": lambda x: torch.func.grad(lambda v: doubled(v).sum())(x),
    "vjp": lambda x: torch.func.vjp(doubled, x),
    "jacrev": lambda x: torch.func.jacrev(doubled)(x),
    "jvp": lambda x: torch.func.jvp(doubled, (x,), (x,)),
    "grad of vmap": lambda x: torch.func.grad(lambda v: torch.func.vmap(doubled)(v[None]).sum())(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_launches_have_no_derivatives(name):
    with pytest.raises(
        GradientError, match="kernel `twice` was launched on tensors by which torch.func differentiates"
    ):
        TRANSFORMS[name](torch.randn(5))


def test_launches_on_what_is_not_differentiated_are_made():
    x = torch.randn(5)
    torch.testing.assert_close(torch.func.grad(lambda v: (v * doubled(x)).sum())(x), 2 * x)
    torch.testing.assert_close(torch.func.grad(lambda v: (v * doubled(v.detach())).sum())(x), 2 * x)
    torch.testing.assert_close(torch.func.vmap(doubled)(x[:, None]), 2 * x[:, None])


def test_gradients_may_be_lost_in_silence_where_that_is_wanted(monkeypatch):
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "silent")
    assert not torch.func.grad(lambda v: doubled(v).sum())(torch.randn(5)).any()


MAKE_FX = """
import sys
import torch
import tilewright
import tilewright.language as tl
from torch.fx.experimental.proxy_tensor import make_fx

@tilewright.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)

def doubled(x):
    out = torch.empty_like(x)
    twice[(1,)](x, out, x.numel(), BLOCK=16)
    return out

for _ in range(2):
    doubled(torch.ones(5))
assert "tilewright.torch" not in sys.modules
for mode in "real", "fake", "symbolic":
    graph = make_fx(doubled, tracing_mode=mode)(torch.ones(5))
    assert "twice" in graph.code
    assert torch.equal(graph(torch.arange(5.0)), 2 * torch.arange(5.0))
"""


def test_make_fx_records_launches_without_the_import(tmp_path):
    (tmp_path / "program.py").write_text(MAKE_FX)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, tmp_path / "program.py"], cwd=ROOT, env=environment, check=True)
