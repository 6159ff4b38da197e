"""The rows of hl: default configurations against eager PyTorch and against the language below, and what a kernel costs.

Binding is both traces of a kernel; emission is its text for one configuration, compiling not included. The last rows
are calls of a bound kernel less its host function, and importing on top of torch and tilewright.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import hl_kernels
from benchmarks.contests import Contest, Function
from benchmarks.startup import Timing
from tilewright import hl
from tilewright.tools import examples
from tilewright.tools.timing import compare

_ROOT = Path(__file__).resolve().parents[1]
_ROWS, _COLUMNS = 1024, 1024
_IMPORT = """
import json, sys, time
import torch, tilewright
start = time.perf_counter()
from tilewright import hl
seconds = time.perf_counter() - start
from benchmarks import hl_kernels
hl_kernels.geglu(torch.ones(4), torch.ones(4))
heavy = ("sympy", "torch._dynamo", "torch._inductor")
print(json.dumps([seconds, [name for name in heavy if name in sys.modules]]))
"""

Prepared = tuple[dict[str, Function], Function]


def _rows(name: str) -> Callable[[], Prepared]:
    """A kernel of rows in its default configuration, and eager PyTorch."""

    def prepare() -> Prepared:
        x, weight, bias = torch.randn(_ROWS, _COLUMNS), torch.rand(_COLUMNS), torch.randn(_COLUMNS)
        out, labels = torch.empty_like(x), torch.randint(0, _COLUMNS, (_ROWS,))
        a, b = torch.randn(1 << 20), torch.randn(1 << 20)
        lengths = torch.randint(1, 2000, (512,))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        values, sizes = torch.randn(int(offsets[-1])), lengths.tolist()
        cases: dict[str, tuple[tuple[Any, ...], Function]] = {
            "softmax": ((x, out), lambda: torch.softmax(x, -1)),
            "layer_norm": ((x, weight, bias), lambda: F.layer_norm(x, [_COLUMNS], weight, bias)),
            "rms_norm": ((x, weight), lambda: F.rms_norm(x, [_COLUMNS], weight, 1e-5)),
            "cross_entropy": ((x, labels), lambda: F.cross_entropy(x, labels)),
            "geglu": ((a, b), lambda: F.gelu(a, approximate="tanh") * b),
            "jagged_softmax": (
                (values, offsets),
                lambda: torch.cat([torch.softmax(part, 0) for part in values.split(sizes)]),
            ),
        }
        args, rival = cases[name]
        kernel = getattr(hl_kernels, name)
        return {"default": lambda: kernel(*args)}, rival

    return prepare


def _beside_tl(name: str) -> Callable[[], Prepared]:
    """A generated kernel and the one of `examples/` that is written by hand, with the same blocks."""

    def prepare() -> Prepared:
        example, wide = examples.load(name), torch.randn(_ROWS, _COLUMNS)
        out, theirs = torch.empty_like(wide), torch.empty_like(wide)
        weight, bias, (q, k, v, heads) = torch.rand(_COLUMNS), torch.randn(_COLUMNS), torch.randn(4, 8, 1024, 64)
        heads = heads.unsqueeze(0)
        cases: dict[str, tuple[tuple[Any, ...], list[int], Function]] = {
            "softmax": ((wide, out), [1], lambda: example.softmax(wide, out=theirs)),
            "layer_norm": ((wide, weight, bias), [1], lambda: example.layer_norm(wide, weight, bias)),
            "matmul": ((wide, wide, out), [128, 128, 64], lambda: example.matmul(wide, wide, theirs)),
            "attention": ((q, k, v), [1, 64, 64], lambda: example.attention(q[None], k[None], v[None], out=heads)[0]),
        }
        args, blocks, rival = cases[name]
        config = hl.Config(block_sizes=blocks, l2_groupings=[8] if name == "matmul" else [])
        run = getattr(hl_kernels, name).bind(args).compile_config(config)
        return {"same blocks": lambda: run(*args)}, rival

    return prepare


def _contests() -> Iterator[Contest]:
    for name in ("softmax", "layer_norm", "rms_norm", "cross_entropy", "geglu", "jagged_softmax"):
        yield Contest(f"hl {name.replace('_', ' ')}", "f32, default configuration", 0.9, _rows(name), 1e-4)
    for name in ("softmax", "layer_norm", "matmul", "attention"):
        yield Contest(f"hl {name.replace('_', ' ')} beside tl", "f32 1024²", 0.97, _beside_tl(name), 1e-4)


CONTESTS = tuple(_contests())


def times(runs: int) -> Iterator[Timing]:
    """Binding, emission, a call and the import.

    Args:
        runs: how often each is repeated; the median counts.
    """
    x, out = torch.randn(256, 256), torch.empty(256, 256)
    q = torch.randn(4, 256, 64)
    cases = {"softmax": ((x, out), 0.015), "matmul": ((x, x, out), 0.012), "attention": ((q, q, q), 0.040)}
    for name, (args, target) in cases.items():
        kernel = getattr(hl_kernels, name)
        bind, emit = [], []
        for _ in range(2 * runs + 1):
            kernel.reset()
            bind.append(_elapsed(lambda kernel=kernel, args=args: kernel.bind(args)))
            bound = kernel.bind(args)
            emit.append(_elapsed(bound.to_code))
        yield Timing("hl binding", name, statistics.median(bind), target)
        yield Timing("hl emission", name, statistics.median(emit), 0.006)
    yield _hit()
    yield _import(runs)


def _elapsed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _hit() -> Timing:
    """What finding the binding of a call costs: a call of the kernel less a call of its host function."""
    kernel = hl_kernels.softmax
    args = torch.randn(8, 8), torch.empty(8, 8)
    kernel(*args)
    kernel(*args)
    run = kernel.bind(args).run
    samples = compare({"kernel": lambda: kernel(*args), "host": lambda: run(*args)}, seconds=1.0)
    return Timing(
        "hl call", "2 tensors, over the host function", min(samples["kernel"].times) - min(samples["host"].times), 2e-6
    )


def _import(runs: int) -> Timing:
    found = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", _IMPORT], cwd=_ROOT, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    heavy = sorted({name for _, names in found for name in names})
    median = statistics.median(seconds for seconds, _ in found)
    return Timing("hl import", "on top of torch", median, 0.060, f"loads {', '.join(heavy)}" if heavy else "")
