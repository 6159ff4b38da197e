"""torch's own database of operators through Inductor's Triton code on the CPU: the long job of `make test-inductor`.

    python -m tilewright.as_triton -m tests.triton_names.operators                       all operators in float32
    ... --types bfloat16,int64 --backward --every 5                                      a fifth, forward and backward
    ... --report operators.jsonl                                                         go on where it ended

Each case is one operator in one type: the first sample of the database, compiled, against eager. Where the two differ,
Inductor's C++ code is asked as well: Inductor rounds some results differently from eager, and that is right here. The
report has a line of JSON a case. `KNOWN` has the cases that are known to fail, with the reasons; any other failure, and
a case of `KNOWN` that has come to pass, is an error of the job.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor
from torch._inductor import metrics
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as tree

inductor.cpu_backend = "triton"
inductor.compile_threads = 1
inductor.triton.autotune_pointwise = False
warnings.simplefilter("ignore")

KNOWN: dict[str, str] = {
    **{
        f"jiterator_{name} {kind} forward": "torch compiles these for GPUs only"
        for name in ("unary", "binary", "4inputs_with_extra_args", "binary_return_by_ref", "2inputs_2outputs")
        for kind in ("float32", "float64", "float16", "bfloat16", "int64", "bool")
    },
    **{
        f"{name} {kind} backward": "Inductor reads a number through the pointer of the result that takes its place"
        for name in ("__rmod__", "copysign", "index_reduce.amax", "masked.logsumexp", "remainder")
        for kind in ("float32", "float64", "float16", "bfloat16")
        if kind.endswith("16") or not name.startswith("index")
    },
    "nn.functional.l1_loss float32 backward": (
        "Inductor reads a number through the pointer of the result that takes its place"
    ),
}
"""Case, as "name type direction", -> why it fails."""
RANDOM = (
    "bernoulli cauchy dropout empty exponential fractional geometric log_normal multinomial normal rand rrelu uniform"
)
"""Parts of names of operators whose results are arbitrary: only their shapes and types are compared."""
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 1e-4}


class TooLongError(Exception):
    """A case met its time limit."""


def cases(types: list[torch.dtype], every: int, backward: bool) -> Iterator[tuple[str, Any, torch.dtype, bool]]:
    """(key, operator, type, whether backward) of the cases that are asked for."""
    for op in op_db[::every]:
        for dtype in types:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            name = f"{op.name}{f'.{op.variant_test_name}' if op.variant_test_name else ''}"
            kind = str(dtype).removeprefix("torch.")
            yield f"{name} {kind} forward", op, dtype, False
            if backward and dtype.is_floating_point and op.supports_autograd:
                yield f"{name} {kind} backward", op, dtype, True


def outcome(fn: Any, sample: Any, backward: bool) -> list[Any]:
    """What a call gives on copies of a sample's tensors; with `backward` the gradients of the sum of it too."""
    again = lambda x: x.detach().clone().requires_grad_(x.requires_grad)
    inputs = tree.tree_map_only(torch.Tensor, again, (sample.input, *sample.args))
    keywords = tree.tree_map_only(torch.Tensor, again, sample.kwargs)
    found = [x for x in tree.tree_leaves(fn(inputs, keywords)) if isinstance(x, torch.Tensor)]
    if backward:
        wanted = [x for x in tree.tree_leaves((inputs, keywords)) if isinstance(x, torch.Tensor) and x.requires_grad]
        outputs = [x for x in found if x.requires_grad]
        if outputs:
            sums = sum(x.abs().sum() if x.is_complex() else x.sum() for x in outputs)
            found += [x for x in torch.autograd.grad(sums, wanted, allow_unused=True) if x is not None]
    return [x.detach() for x in found]


def compare(found: list[Any], expected: list[Any], exact: bool) -> None:
    """Raise AssertionError if results differ.

    Args:
        found, expected: tensors.
        exact: compare values too, and not shapes and types alone.
    """
    assert len(found) == len(expected), f"{len(found)} results instead of {len(expected)}"
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, f"{a.shape} {a.dtype} instead of {b.shape} {b.dtype}"
        if exact:
            limit = TOLERANCE.get(b.dtype)
            close = {} if limit is None else {"atol": limit, "rtol": limit}
            torch.testing.assert_close(a, b, equal_nan=True, **close)


def check(op: Any, dtype: torch.dtype, backward: bool) -> str:
    """The verdict on one case: "right", or "as C++" where eager rounds differently.

    Raises:
        AssertionError: the results differ from both.
    """
    torch.manual_seed(0)
    samples = iter(op.sample_inputs("cpu", dtype, requires_grad=backward))
    sample = next(samples, None)
    if sample is None:
        return "no sample"
    call = lambda inputs, keywords: op.op(*inputs, **keywords)
    exact = not any(part in op.name for part in RANDOM.split())
    expected = outcome(call, sample, backward)
    try:
        compare(outcome(torch.compile(call), sample, backward), expected, exact)
    except AssertionError:
        torch._dynamo.reset()
        with inductor.patch(cpu_backend="cpp"):
            rounded = outcome(torch.compile(call), sample, backward)
        torch._dynamo.reset()
        compare(outcome(torch.compile(call), sample, backward), rounded, exact)
        return "as C++"
    return "right"


def run(key: str, op: Any, dtype: torch.dtype, backward: bool, limit: int) -> dict[str, Any]:
    """The line of the report for one case."""
    torch._dynamo.reset()
    metrics.reset()
    begin, verdict, error = time.perf_counter(), "FAILED", ""
    signal.alarm(limit)
    try:
        verdict = check(op, dtype, backward)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"[-1500:]
    finally:
        signal.alarm(0)
    seconds = round(time.perf_counter() - begin, 2)
    return {"case": key, "verdict": verdict, "kernels": metrics.generated_kernel_count, "s": seconds, "error": error}


def on_alarm(*_: Any) -> None:
    """Of the time limit."""
    raise TooLongError


def main() -> None:
    """Run what is asked for and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", default="float32")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose keys hold this")
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--limit", type=int, default=300, help="seconds for a case")
    asked = parser.parse_args()
    signal.signal(signal.SIGALRM, on_alarm)
    lines = asked.report.read_text().splitlines() if asked.report and asked.report.exists() else []
    done = {row["case"]: row for row in map(json.loads, lines)}
    types = [getattr(torch, name) for name in asked.types.split(",")]
    rows = []
    for key, *case in cases(types, asked.every, asked.backward):
        if asked.only not in key:
            continue
        if key not in done:
            done[key] = run(key, *case, asked.limit)  # type: ignore[misc]
            if asked.report:
                with asked.report.open("a") as file:
                    print(json.dumps(done[key]), file=file)
            print(key, done[key]["verdict"], done[key]["kernels"], done[key]["s"], done[key]["error"][:300], flush=True)
        rows.append(done[key])
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    failed = {row["case"] for row in rows if row["verdict"] == "FAILED"}
    new = sorted(failed - KNOWN.keys())
    passed = sorted({row["case"] for row in rows if row["verdict"] != "no sample"} & KNOWN.keys() - failed)
    print(json.dumps({"cases": len(rows), **counts, "new failures": new, "known failures that passed": passed}))
    sys.exit(bool(new or passed))


if __name__ == "__main__":
    main()
