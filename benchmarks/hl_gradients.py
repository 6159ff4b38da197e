"""Backward passes that hl derives, against kernels written by hand and eager autograd.

`python -m benchmarks.hl_gradients [--threads 1] [--out FILE]`.
Calls are made in turns; times are medians in milliseconds. The kernels are those of `examples/hl`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tilewright import hl

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "hl"))
import attention
import dropout
import elementwise
import gather
import matmul
import norms
import softmax

Call = Callable[[], Any]
M, N = 2048, 1024


@hl.kernel
def softmax_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """By hand, all computed again."""
    made = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        y, g = torch.softmax(x[rows, :], -1), grad[rows, :]
        made[rows, :] = y * (g - (g * y).sum(-1, keepdim=True))
    return made


def backward(function: Callable[..., Any], *args: Any) -> Call:
    """The backward pass of a call."""
    given = [a.detach().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    out = function(*given)
    wanted = [a for a in given if isinstance(a, torch.Tensor) and a.requires_grad]
    up = torch.randn(out.shape)
    return lambda: torch.autograd.grad(out, wanted, up, retain_graph=True)


def contests() -> dict[str, dict[str, Call]]:
    """By name: the derived backward, the one by hand where there is one, and eager autograd."""
    x, up, w, b = torch.randn(M, N), torch.randn(M, N), torch.rand(N), torch.randn(N)
    flat, labels = x.view(-1), torch.randint(N, (M,))
    square = torch.randn(512, 512), torch.randn(512, 512)
    heads = [torch.randn(1, 4, 512, 64) for _ in range(3)]
    found: dict[str, dict[str, Call]] = {
        "softmax": {
            "derived": backward(softmax.softmax, x),
            "by hand": lambda: softmax_backward(up, x),
            "eager": backward(lambda x: x.softmax(-1), x),
        },
        "layer norm": {
            "derived": backward(norms.layer_norm, x, w, b, 1e-5),
            "by hand": lambda: norms.layer_norm_backward(up, x, w, 1e-5),
            "eager": backward(lambda x, w, b: F.layer_norm(x, [N], w, b), x, w, b),
        },
        "rms norm": {
            "derived": backward(norms.rms_norm, x, w, 1e-5),
            "by hand": lambda: norms.rms_norm_backward(up, x, w, 1e-5),
            "eager": backward(lambda x, w: F.rms_norm(x, [N], w, 1e-5), x, w),
        },
        "dropout": {
            "derived": backward(dropout.dropout, flat, 0.3, 17),
            "by hand": lambda: dropout.dropout_backward(up.view(-1), 0.3, 17),
        },
        "geglu": {
            "derived": backward(elementwise.geglu, x, up),
            "eager": backward(lambda x, y: F.gelu(x, approximate="tanh") * y, x, up),
        },
        "cross entropy": {
            "derived": backward(gather.cross_entropy, x, labels),
            "eager": backward(F.cross_entropy, x, labels),
        },
        "product with relu": {
            "derived": backward(matmul.matmul, *square, torch.relu),
            "eager": backward(lambda x, y: torch.relu(x @ y), *square),
        },
    }
    for causal in (False, True):
        found["causal attention" if causal else "attention"] = {
            "derived": backward(attention.attention, *heads, causal),
            "eager": backward(lambda *a, c=causal: F.scaled_dot_product_attention(*a, is_causal=c), *heads),
        }
    return found


def overhead() -> dict[str, float]:
    """Microseconds of a small forward call: without the check, with it, and with gradients on."""
    x, y = torch.randn(64), torch.randn(64)
    bare, kernel = hl.kernel(elementwise.add.fn, backward=None), elementwise.add
    watched = x.clone().requires_grad_()
    calls: dict[str, Call] = {
        "without the check": lambda: bare(x, y),
        "with the check": lambda: kernel(x, y),
        "with gradients on": lambda: kernel(watched, y),
    }
    return {name: found * 1e3 for name, found in in_turns(calls, 2.0).items()}


def in_turns(calls: dict[str, Call], seconds: float) -> dict[str, float]:
    """Median milliseconds of calls made in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in (*calls.values(), *calls.values()):
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) * 1e3 for name, found in times.items()}


def main() -> None:
    """Time everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each contest")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    results = {"calls, microseconds": overhead()}
    for name, calls in contests().items():
        results[name] = in_turns(calls, given.seconds)
    for name, times in results.items():
        print(f"{name:20}", "  ".join(f"{who} {ms:.3f}" for who, ms in times.items()))
    if given.out:
        machine = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
        given.out.write_text(json.dumps({**machine, "threads": given.threads, "ms": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
