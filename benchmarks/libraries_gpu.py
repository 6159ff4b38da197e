"""`python -m benchmarks.libraries_gpu`: libraries of Triton kernels on an NVIDIA GPU, on Tilewright and on Triton.

Each library is run by each side in a fresh process with empty caches, after one small kernel that loads the compiler.
Of a function, with its backward pass where it has one, are measured the seconds of its first call (compilers, and a
library's own search), the microseconds that a call takes on the GPU, its cache overwritten before, and those of the
host until a call is queued. A library that is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import report

_ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("liger_kernel", "conch", "flag_gems", "fla")
SIDES = {"triton": ["-m"], "tilewright": ["-m", "tilewright.as_triton", "-m"]}
"""What comes before the name of a module on the command line of each side's process."""
CACHES = ("TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_DIR", "FLAGGEMS_CACHE_DIR")
ROUNDS, FLUSH_BYTES, WAIT_CYCLES = 20, 256 << 20, 2_000_000
TOLERANCE = 0.03  # of the largest element of a result


def on_gpu(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a call on the GPU and of the host until it is queued, medians.

    The GPU is kept busy for a millisecond before each, so that the host is ahead of it.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    pairs, host = [], []
    for _ in range(ROUNDS + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(WAIT_CYCLES)
        begin.record()
        before = time.perf_counter()
        call()
        host.append(time.perf_counter() - before)
        end.record()
        torch.cuda.synchronize()
        pairs.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(pairs[3:]), statistics.median(host[3:])


def forward(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a function."""
    found = fn(*inputs)
    return [x for x in (found if isinstance(found, tuple) else (found,)) if isinstance(x, torch.Tensor)]


def gradients(outputs: list[torch.Tensor], inputs: list[torch.Tensor], weights: list[torch.Tensor]) -> Any:
    """Gradients of a weighted sum of the outputs."""
    return torch.autograd.grad(outputs, [x for x in inputs if x.requires_grad], weights)


def noise_like(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same noise for the same shapes."""
    torch.manual_seed(1)
    return [torch.randn_like(x) for x in outputs]


def results(fn: Callable[..., Any], inputs: list[torch.Tensor], backward: bool) -> list[torch.Tensor]:
    """Outputs and, if asked for, gradients."""
    outputs = forward(fn, inputs)
    kept = [x.detach().clone() for x in outputs]  # a backward pass may work in place
    return [*kept, *(gradients(outputs, inputs, noise_like(outputs)) if backward else ())]


def compare(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Raise AssertionError where results are not PyTorch's."""
    assert len(found) == len(expected), f"{len(found)} results, not {len(expected)}"
    for one, other in zip(found, expected):
        most = max(other.float().abs().max().item(), 1e-6)
        wrong = (one.float() - other.float()).abs().max().item() / most
        assert wrong <= TOLERANCE, f"{wrong:.3g} of the largest element, shape {tuple(other.shape)}"


def measure(case: Any) -> dict[str, Any]:
    """The row of a function in this process.

    Args:
        case: of `benchmarks.library_cases`.

    Raises:
        AssertionError: the result is not PyTorch's.
    """
    torch.manual_seed(0)
    made = [x() if callable(x) else torch.randn(x, device="cuda", dtype=case.dtype) for x in case.inputs]

    def fresh() -> list[torch.Tensor]:  # no leaves of autograd: some functions work in place
        graded = case.backward
        return [x.clone().requires_grad_() * 1 if graded and x.is_floating_point() else x.clone() for x in made]

    inputs = fresh()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    found = results(case.fn, inputs, case.backward)
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    compare(found, results(case.expected, fresh(), case.backward))
    inputs = fresh()
    weights = noise_like(forward(case.fn, inputs)) if case.backward else []

    def call() -> None:
        outputs = forward(case.fn, inputs)
        if case.backward:
            gradients(outputs, inputs, weights)

    gpu, host = on_gpu(call)
    return {"function": case.name, "first": first, "gpu": gpu, "host": host}


def child(library: str, only: str) -> None:
    """Print a line of JSON for each function of a library; an error in place of times where it failed."""
    cases = importlib.import_module("benchmarks.library_cases")  # imports `triton`, which the parent may not have
    torch.set_default_device("cuda")  # some functions make tensors of their own
    cases.load_compiler()
    begin = time.perf_counter()
    for case in cases.LIBRARIES[library]():
        if not re.search(only, f"{library} {case.name}"):
            continue
        try:
            row = measure(case)
        except Exception as error:
            row = {"function": case.name, "error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(row), flush=True)
    print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)


def side(name: str, library: str, only: str, limit: float) -> Iterator[dict[str, Any]]:
    """The rows of a library by one side; those that were done within `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = {variable: f"{folder}/{at}" for at, variable in enumerate(CACHES)}
        path = f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        command = [sys.executable, *SIDES[name], "benchmarks.libraries_gpu", "--child", library, "--only", only]
        with tempfile.TemporaryFile("w+") as out:
            try:
                subprocess.run(command, env={**os.environ, "PYTHONPATH": path, **fresh}, stdout=out, timeout=limit)
            except subprocess.TimeoutExpired:
                print(f"{library}: {name} was stopped after {limit:.0f} s", flush=True)
            out.seek(0)
            yield from (json.loads(line) for line in out if line.startswith("{"))


def table(library: str, only: str, limit: float) -> Iterator[dict[str, Any]]:
    """A row for each function of a library that both sides have run."""
    sides: dict[str, dict[str, Any]] = {}
    for name in SIDES:
        rows = [row for row in side(name, library, only, limit) if "function" in row]
        sides[name] = {row.pop("function"): row for row in rows}
    for function in sides["tilewright"] | sides["triton"]:
        ours, its = (sides[name].get(function, {"error": "not reached"}) for name in ("tilewright", "triton"))
        yield {"library": library, "function": function, "tilewright": ours, "triton": its}
        said = [ours.get("error"), its.get("error")]
        shown = [
            f"{key} {its[key]:.3g} / {ours[key]:.3g} = {its[key] / ours[key]:5.2f}" for key in ours if not any(said)
        ]
        print(f"{library} {function}".ljust(36), *(said if any(said) else shown), flush=True)


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Triton's time divided by ours: geometric mean and least of each measure; first calls also of their sums."""
    both = [row for row in rows if "gpu" in row["tilewright"] and "gpu" in row["triton"]]
    if not both:
        return {}
    pairs = {key: [(row["triton"][key], row["tilewright"][key]) for row in both] for key in ("gpu", "host", "first")}
    ratios = {key: [its / ours for its, ours in found] for key, found in pairs.items()}
    found = {key: {"mean": statistics.geometric_mean(r), "least": min(r)} for key, r in ratios.items()}
    found["first"]["of the sums"] = sum(its for its, _ in pairs["first"]) / sum(ours for _, ours in pairs["first"])
    return found


def main() -> None:
    """Measure both sides of each library, print and write the table."""
    parser = argparse.ArgumentParser(
        description="libraries of Triton kernels on a GPU: Tilewright as Triton, and Triton"
    )
    parser.add_argument("libraries", nargs="*", help=f"of {', '.join(LIBRARIES)}; default is all")
    parser.add_argument(
        "--only", default="", help="functions whose names, after their library's, match this regular expression"
    )
    parser.add_argument("--seconds", type=float, default=1800, help="for each side of a library")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        return child(asked.child, asked.only)
    rows: list[dict[str, Any]] = []
    for library in asked.libraries or LIBRARIES:
        if importlib.util.find_spec("triton") is None or importlib.util.find_spec(library) is None:
            print(f"{library} is left out: it, or Triton, is not installed here")
            continue
        rows += table(library, asked.only, asked.seconds)
    if rows:
        gpu, totals = torch.cuda.get_device_name(), summary(rows)
        print(json.dumps(totals, indent=1))
        document = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), **report.where(),
            "gpu": gpu, "torch": torch.__version__, "functions": rows, "summary": totals,
        }  # fmt: skip
        path = asked.out or report.results(f"{gpu}-libraries")
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
