"""Backward passes that hl derives, against kernels written by hand and eager autograd.

`python -m benchmarks.hl_gradients [--threads 1] [--device cuda] [--out FILE] [NAME ..]`.
Calls are made in turns, each through `torch.autograd.grad`; times are medians in milliseconds, ratios medians of the
ratios of neighbours. The kernels are those of `examples/hl` and of `hl_gradients_kernels` beside this file, those by
hand mostly the ones of `hand_written_gradients` there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import hand_written_gradients as by_hand
from benchmarks import hl_gradients_kernels as own
from benchmarks import hl_gradients_peers, hl_gradients_stencils
from tilewright import hl
from tilewright.hl.grad import again
from tilewright.hl.grad.overwritten import share_storage

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "hl"))
import attention
import dropout
import elementwise
import gather
import jagged
import matmul
import norms
import softmax

Call = Callable[[], Any]
Contest = dict[str, Call]
OVERHEAD = "calls, microseconds"


def backward(function: Callable[..., Any], *args: Any) -> Call:
    """The backward pass of a call."""
    given = [a.detach().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    out = function(*given)
    wanted = [a for a in given if isinstance(a, torch.Tensor) and a.requires_grad]
    up = torch.randn(out.shape).to(out)
    return lambda: torch.autograd.grad(out, wanted, up, retain_graph=True)


def through(run: Callable[[Any], Any], out: Any, *leaves: Any) -> Call:
    """A backward pass by hand as a step of autograd: `run` makes the gradients of `leaves` of that of `out`."""
    return backward(lambda *given: by_hand.Step.apply(run, out, *given), *leaves)


def contests(device: str) -> dict[str, Callable[[], Contest]]:
    """By name: what makes the derived backward, the one by hand where there is one, and that of eager autograd."""
    torch.set_default_device(device)
    m, n = (8192, 4096) if device == "cuda" else (2048, 1024)
    x, other, w, b = torch.randn(m, n), torch.randn(m, n), torch.rand(n), torch.randn(n)
    return {
        "softmax": lambda: {
            "derived": backward(softmax.softmax, x),
            "by hand": through(lambda up: by_hand.softmax(up, x), x, x),
            "eager": backward(lambda x: x.softmax(-1), x),
        },
        "layer norm": lambda: {
            "derived": backward(norms.layer_norm, x, w, b, 1e-5),
            "by hand": through(lambda up: norms.layer_norm_backward(up, x, w, 1e-5), x, x, w, b),
            "eager": backward(lambda x, w, b: F.layer_norm(x, [n], w, b), x, w, b),
        },
        "rms norm": lambda: {
            "derived": backward(norms.rms_norm, x, w, 1e-5),
            "by hand": through(lambda up: norms.rms_norm_backward(up, x, w, 1e-5), x, x, w),
            "eager": backward(lambda x, w: F.rms_norm(x, [n], w, 1e-5), x, w),
        },
        "dropout": lambda: {
            "derived": backward(dropout.dropout, x.view(-1), 0.3, 17),
            "by hand": through(lambda up: dropout.dropout_backward(up, 0.3, 17), x.view(-1), x.view(-1)),
            "eager": backward(lambda x: F.dropout(x, 0.3), x.view(-1)),
        },
        "geglu": lambda: {
            "derived": backward(elementwise.geglu, x, other),
            "by hand": through(lambda up: by_hand.geglu(up, x, other), x, x, other),
            "eager": backward(lambda x, y: F.gelu(x, approximate="tanh") * y, x, other),
        },
        "cross entropy": lambda: _cross_entropy(x, torch.randint(n, (m,))),
        "rope": lambda: _rope(m, device),
        "group norm": lambda: _group_norm(m, n),
        **_products(device),
        **_by_index(device),
        **(hl_gradients_peers.contests(backward) if device == "cuda" else {}),
    }


def _group_norm(m: int, n: int) -> Contest:
    x = torch.randn(m // 32, 32, 4, n // 4)
    weight, bias = torch.rand(32, 4), torch.randn(32, 4)
    return {
        "derived": backward(own.group_norm, x, weight, bias, 1e-5),
        "by hand": through(lambda up: own.group_norm_backward(up, x, weight, 1e-5), x, x, weight, bias),
        "eager": backward(own.group_norm_reference, x, weight, bias, 1e-5),
    }


def _by_index(device: str) -> dict[str, Callable[[], Contest]]:
    """Rows of different lengths, subscripts that are data, and a loss over a vocabulary: against eager autograd."""
    many = 16 if device == "cuda" else 1

    def jagged_sum() -> Contest:
        starts = own.offsets(512 * many, 64)
        x = torch.randn(int(starts[-1]), 256)
        return {
            "derived": backward(jagged.jagged_sum, x, starts),
            "eager": backward(own.jagged_sum_reference, x, starts),
        }

    def embedding() -> Contest:
        table, tokens = torch.randn(10_000 * many, 256), torch.randint(0, 10_000 * many, (4096 * many,))
        return {
            "derived": backward(gather.embedding, table, tokens),
            "eager": backward(lambda table, tokens: F.embedding(tokens, table), table, tokens),
        }

    def segment_sum() -> Contest:
        x, segments = torch.randn(8192 * many, 256), torch.randint(0, 512 * many, (8192 * many,))
        return {
            "derived": backward(own.segment_sum, x, segments, 512 * many),
            "eager": backward(own.segment_sum_reference, x, segments, 512 * many),
        }

    def loss() -> Contest:
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        x, table = torch.randn(256 * many, 128).to(dtype), torch.randn(4096 * many, 128).to(dtype)
        labels = torch.randint(0, 4096 * many, (256 * many,))
        return {
            "derived": backward(own.linear_cross_entropy, x, table, labels),
            "eager": backward(own.linear_cross_entropy_reference, x, table, labels),
        }

    return {
        **hl_gradients_stencils.contests(backward, many),
        "jagged sum": jagged_sum,
        "embedding": embedding,
        "segment sum": segment_sum,
        "linear + cross entropy": loss,
    }


def _cross_entropy(x: Any, labels: Any) -> Contest:
    return {
        "derived": backward(gather.cross_entropy, x, labels),
        "by hand": through(lambda up: by_hand.cross_entropy(up, x, labels), torch.ones([]), x),
        "eager": backward(F.cross_entropy, x, labels),
    }


def _rope(m: int, device: str) -> Contest:
    x, angles = torch.randn(32 if device == "cuda" else 8, m // 4, 256), torch.randn(m // 4, 128)
    cos, sin = angles.cos(), angles.sin()

    def only_x(function: Callable[..., Any]) -> Call:  # the angles are constants of a model
        return backward(lambda x: function(x, cos, sin), x)

    return {
        "derived": only_x(gather.rope),
        "by hand": through(lambda up: by_hand.rope(up, cos, sin), x, x),
        "eager": only_x(gather.rope_reference),
    }


def _products(device: str) -> dict[str, Callable[[], Contest]]:
    """Products and attention: in bfloat16 on a GPU."""
    side, dtype = (4096, torch.bfloat16) if device == "cuda" else (512, torch.float32)
    square = [torch.randn(side, side).to(dtype) for _ in range(2)]
    lengths = (4, 16, 2048) if device == "cuda" else (1, 4, 512)

    def product() -> Contest:
        x, y = square
        out = matmul.matmul(x, y, torch.relu)
        return {
            "derived": backward(matmul.matmul, x, y, torch.relu),
            "by hand": through(lambda up: by_hand.product_with_relu(up, out, x, y), out, x, y),
            "eager": backward(lambda x, y: torch.relu(x @ y), x, y),
        }

    def attend(causal: bool, width: int = 64) -> Contest:
        heads = [torch.randn(*lengths, width).to(dtype) for _ in range(3)]
        own_tiles = hl.kernel(attention.attention.fn, autotune_effort="none")  # the example says how large they are
        return {
            "derived": backward(attention.attention, *heads, causal),
            "derived, tiles by default": backward(own_tiles, *heads, causal),
            "eager": backward(lambda *a: F.scaled_dot_product_attention(*a, is_causal=causal), *heads),
        }

    return {
        "product with relu": product,
        "attention": lambda: attend(False),
        "causal attention": lambda: attend(True),
        "attention of width 128": lambda: attend(False, 128),
        "causal attention of width 128": lambda: attend(True, 128),
    }


def overhead() -> dict[str, list[float]]:
    """Seconds of a small forward call: without the check, with it, with gradients on, and by a Function by hand."""
    x, y = torch.randn(64, device="cpu"), torch.randn(64, device="cpu")
    bare, kernel = hl.kernel(elementwise.add.fn, backward=None), elementwise.add
    watched, out = x.clone().requires_grad_(), torch.empty_like(x)
    calls: Contest = {
        "without the check": lambda: bare(x, y),
        "with the check": lambda: kernel(x, y),
        "with gradients on": lambda: kernel(watched, y),
        "a Function by hand": lambda: by_hand.Add.apply(bare, watched, y),
        "of these to see that no tensors share memory": lambda: share_storage((watched, y, out)),
    }
    return in_turns(calls, 2.0, "cpu")


def deriving() -> dict[str, float]:
    """Milliseconds of a processor to bind kernels, and to derive and bind their backward passes.

    A fresh kernel each time; where sizes are open, at another size as well.
    """
    rows = [(torch.randn(m, n, device="cpu"), torch.rand(n, device="cpu"), 1e-5) for m, n in ((64, 128), (81, 145))]
    heads = [(*(torch.randn(1, 2, n, 32, device="cpu") for _ in range(3)), True) for n in (64, 81)]
    found = {}
    for name, kernel, sets, open_sizes in (
        ("softmax", softmax.softmax, [args[:1] for args in rows], False),
        ("rms norm", norms.rms_norm, rows, False),
        ("attention", attention.attention, heads, False),
        ("softmax, open sizes", softmax.softmax, [args[:1] for args in rows], True),
        ("rms norm, open sizes", norms.rms_norm, rows, True),
    ):
        times: dict[str, list[float]] = {}
        for _ in range(7):
            made = hl.kernel(kernel.fn, static_shapes=not open_sizes)
            calls = [("bind", lambda made=made, args=sets[0]: made.bind(args))]
            for args, who in zip(sets, ("derive and bind", "the same at another size"), strict=True):
                watched = tuple(a.clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in args)
                calls.append((who, lambda made=made, watched=watched: again.check(made, watched, nullcontext())))
            for who, call in calls[: 3 if open_sizes else 2]:
                start = time.process_time()
                call()
                times.setdefault(who, []).append(time.process_time() - start)
        found |= {f"{name}: {who}": statistics.median(several) * 1e3 for who, several in times.items()}
    return found


def in_turns(calls: Contest, seconds: float, device: str) -> dict[str, list[float]]:
    """Seconds of each of calls that are made in turns, in another order each time: a slow one leaves cold caches."""
    for call in (*calls.values(), *calls.values()):
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, chance = list(calls), random.Random(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        chance.shuffle(order)
        for name, took in _round({name: calls[name] for name in order}, device):
            times[name].append(took)
    return times


def _round(calls: Contest, device: str) -> Iterator[tuple[str, float]]:
    for name, call in calls.items():
        if device == "cuda":
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(
                10_000_000
            )  # the calls are queued behind it: one through autograd takes 0.2 ms of the host
            first.record()
            for _ in range(5):
                call()
            last.record()
            torch.cuda.synchronize()
            yield name, first.elapsed_time(last) / 5e3
        else:
            start = time.perf_counter()
            call()
            yield name, time.perf_counter() - start


def summary(times: dict[str, list[float]]) -> dict[str, float]:
    """Medians in milliseconds, and how many times as long as the derived one the others take.

    "undisturbed" are ratios of tenth percentiles, which other work on the machine changes less.
    """
    made = {name: statistics.median(found) * 1e3 for name, found in times.items()}
    ours = times.get("derived")
    for name, found in times.items() if ours is not None else ():
        if name != "derived" and ours is not None:
            made[f"{name} / derived"] = statistics.median(b / a for a, b in zip(ours, found, strict=True))
            made[f"{name} / derived, undisturbed"] = _undisturbed(found) / _undisturbed(ours)
    return made


def _peaks(calls: Contest) -> dict[str, float]:
    """MiB that a call takes on the GPU at most, besides what is there before."""
    found = {}
    for name, call in calls.items():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        found[f"{name}, MiB"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    return found


def _undisturbed(times: list[float]) -> float:
    """The tenth percentile: what a call takes when the machine does nothing else meanwhile."""
    return sorted(times)[len(times) // 10]


def main() -> None:
    """Time everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="contests; all for none")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each contest")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    results: dict[str, dict[str, float]] = {}
    for name, make in contests(given.device).items():
        if not given.names or name in given.names:
            calls = make()
            results[name] = summary(in_turns(calls, given.seconds, given.device))
            if given.device == "cuda":
                results[name] |= _peaks(calls)
            print(f"{name:20}", "  ".join(f"{who} {ms:.3f}" for who, ms in results[name].items()), flush=True)
    if not given.names and given.device == "cpu":
        results["deriving, milliseconds"] = deriving()
        results[OVERHEAD] = {who: statistics.median(found) * 1e6 for who, found in overhead().items()}
        for name in ("deriving, milliseconds", OVERHEAD):
            print(f"{name:20}", "  ".join(f"{who} {took:.2f}" for who, took in results[name].items()))
    ratios = [found["eager / derived"] for found in results.values() if "eager / derived" in found]
    mean = math.exp(statistics.mean(map(math.log, ratios))) if ratios else 0.0
    print(f"eager autograd / derived, geometric mean of {len(ratios)}: {mean:.2f}")
    if given.out:
        name = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor() or platform.machine()
        load = round(os.getloadavg()[0], 1)
        head = {"machine": name, "torch": torch.__version__, "threads": given.threads, "load of the machine": load}
        given.out.write_text(json.dumps({**head, "geometric mean": mean, "ms": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
