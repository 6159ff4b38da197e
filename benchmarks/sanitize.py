"""What checks cost: `python -m benchmarks.sanitize`; what proofs cost: `python -m benchmarks.sanitize --proofs`.

Each kernel is compiled as it is and with checks, and all forms take turns on one thread (`tools/timing.py`). The first
columns are the kernels, all of them launched in the same way, and prove nothing. The last two are whole launches beside
a plain one: what Python does is in them, and what is proved is not checked. Proofs are those of the first launches of
the kernels of `tests/corpus`, in processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import tilewright
import tilewright.language as tl
from benchmarks.report import where
from tests.corpus import every
from tests.corpus.case import New
from tilewright.base.checks import ALL, BOUNDS, OVERFLOW, RACES, Checks
from tilewright.launch import checked, proved
from tilewright.sanitize import checking
from tilewright.tools.timing import compare, duration

FORMS: dict[str, Checks] = {
    "bounds": (BOUNDS,),
    "bounds, overflow": (BOUNDS, OVERFLOW),
    "bounds, races": (BOUNDS, RACES),
    "all": ALL,
}
AS_LAUNCHED: dict[str, bool | str] = {'launched, "bounds,overflow"': "bounds,overflow", "launched, True": True}


@tilewright.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    """A sum of two vectors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(z + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@tilewright.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    """Softmax of rows."""
    row = tl.program_id(0) * columns
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at, at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + at, powers / tl.sum(powers, 0), at < columns)


@tilewright.jit
def layer_norm(x, w, b, y, columns, eps, BLOCK: tl.constexpr):
    """Layer norm of rows."""
    row = tl.program_id(0) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row + at, inside, other=0.0)
    centred = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + eps)
    tl.store(y + row + at, centred * scale * tl.load(w + at, inside) + tl.load(b + at, inside), inside)


@tilewright.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product of matrices."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        inner = first + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + inner, (rows[:, None] < M) & (inner < K), other=0.0)
        right = tl.load(b + inner[:, None] * N + columns, (inner[:, None] < K) & (columns < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns, total, (rows[:, None] < M) & (columns < N))


@tilewright.jit
def attention(q, k, v, out, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Flash attention of several heads."""
    rows, dims = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    head = tl.program_id(1) * n * D
    query = tl.load(q + head + rows[:, None] * D + dims, rows[:, None] < n, other=0.0)
    most, total = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, D), tl.float32)
    for first in range(0, n, BN):
        keys = first + tl.arange(0, BN)
        scores = tl.dot(query, tl.load(k + head + keys[None, :] * D + dims[:, None], keys < n, other=0.0)) * scale
        scores = tl.where(keys < n, scores, -float("inf"))
        larger = tl.maximum(most, tl.max(scores, 1))
        faded, weights = tl.exp(most - larger), tl.exp(scores - larger[:, None])
        values = tl.load(v + head + keys[:, None] * D + dims, keys[:, None] < n, other=0.0)
        result, total = tl.dot(weights, values, result * faded[:, None]), total * faded + tl.sum(weights, 1)
        most = larger
    tl.store(out + head + rows[:, None] * D + dims, result / total[:, None], rows[:, None] < n)


@tilewright.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    """Counts by atomics."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + at, at < n, other=0), 1, at < n)


@tilewright.jit
def gather(index, x, y, n, BLOCK: tl.constexpr):
    """Elements at places that were loaded."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + tl.load(index + at, at < n, other=0), at < n), at < n)


Case = tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, int]]


def cases() -> dict[str, Case]:
    """Kernel, grid, arguments and constants by title."""
    n = 1 << 20
    x, y, z = torch.randn(n), torch.randn(n), torch.zeros(n)
    rows, ones = torch.randn(1024, 1000), torch.ones(1000)
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    heads = [torch.randn(4, 512, 64) for _ in range(3)]
    small, index = torch.randint(0, 256, (n,), dtype=torch.int32), torch.randint(0, n, (n,), dtype=torch.int32)
    return {
        "add, 1 M": (add, (1024,), (x, y, z, n - 5), {"BLOCK": 1024}),
        "softmax, 1024 x 1000": (softmax, (1024,), (rows, torch.zeros_like(rows), 1000), {"BLOCK": 1024}),
        "layer norm, 1024 x 1000": (
            layer_norm, (1024,), (rows, ones, ones, torch.zeros_like(rows), 1000, 1e-5), {"BLOCK": 1024},
        ),
        "product, 256": (
            product, (4, 4), (a, b, torch.zeros_like(a), 256, 256, 256), {"BM": 64, "BN": 64, "BK": 32},
        ),
        "attention, 4 x 512 x 64": (
            attention, (8, 4), (*heads, torch.zeros(4, 512, 64), 512, 0.125), {"BM": 64, "BN": 64, "D": 64},
        ),
        "histogram, 1 M": (histogram, (1024,), (small, torch.zeros(256, dtype=torch.int32), n), {"BLOCK": 1024}),
        "gather, 1 M": (gather, (1024,), (index, x, z, n), {"BLOCK": 1024}),
    }  # fmt: skip


def with_checks(case: Case, wanted: Checks) -> Callable[[], object]:
    """A launch of the kernel with all checks of these names in its code, and no proof."""
    kernel, grid, arguments, constants = case
    call = kernel.request(*arguments, **constants)[1]
    compiled = checked.compile_checked(kernel, call.specialization, wanted, {}, shared=False)
    return checked.CheckedLaunch(compiled, call, checked.slots_of(call), (*grid, 1, 1)[:3]).run


def measure(case: Case, seconds: float) -> dict[str, float]:
    """Time of the kernel as it is in seconds, and of each form as a multiple of it."""
    kernel, grid, arguments, constants = case
    forms = {name: with_checks(case, wanted) for name, wanted in {"plain": (), **FORMS}.items()}
    forms["launch"] = lambda: kernel[grid](*arguments, **constants)
    for name, wanted in AS_LAUNCHED.items():
        forms[name] = lambda wanted=wanted: kernel[grid](*arguments, **constants, sanitize=wanted)  # type: ignore[misc]
    times = compare(forms, seconds=seconds, clock=time.thread_time)
    ratios = {name: 1 / times[name].ratio_to(times["plain"]) for name in FORMS}
    ratios |= {name: 1 / times[name].ratio_to(times["launch"]) for name in AS_LAUNCHED}
    return {"plain": times["plain"].median, **ratios}


def proof_times() -> list[float]:
    """Processor seconds of each proof of bounds, races and overflow that the corpus at its small sizes asks for."""
    times, prove = list[float](), proved.Provable._proved  # what is not remembered

    def timed(self: proved.Provable, *given: Any) -> proved.Proof:
        began = time.thread_time()
        proof = prove(self, *given)
        times.append(time.thread_time() - began)
        return proof

    proved.Provable._proved = timed  # type: ignore[method-assign]
    try:
        for case in every.CASES.values():
            with checking("bounds,races,overflow"):
                case.run(New("cpu"), **case.small)
    finally:
        proved.Provable._proved = prove  # type: ignore[method-assign]
    return times


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sanitize", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each kernel")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="kernels with this in their title")
    parser.add_argument("--proofs", action="store_true", help="the times of proofs alone")
    asked = parser.parse_args()
    if asked.proofs:
        times = proof_times()
        mean, median = (duration(of(times)) for of in (statistics.mean, statistics.median))
        quick = sum(seconds <= 0.005 for seconds in times) / len(times)
        print(f"{len(times)} proofs: mean {mean}, median {median}, {quick:.0%} in 5 ms, longest {duration(max(times))}")
        return 0
    tilewright.knobs.cpu.num_threads = 1
    rows = {title: measure(case, asked.seconds) for title, case in cases().items() if asked.only in title}
    if asked.json:
        print(json.dumps({"command": "python -m benchmarks.sanitize --json", **where(), "rows": rows}, indent=1))
        return 0
    names = [*FORMS, *AS_LAUNCHED]
    print("| kernel, one thread | plain |", " | ".join(names), "|")
    print("| --- | ---: |", " | ".join(["---:"] * len(names)), "|")
    for title, row in rows.items():
        print(
            f"| {title} | {duration(row['plain'])} |", " | ".join(f"{row[name]:.2f}" for name in names), "|", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
