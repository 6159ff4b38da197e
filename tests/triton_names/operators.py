"""torch's own database of operators through Inductor's Triton code on the CPU: the long job of `make test-inductor`.

    python -m tilewright.as_triton -m tests.triton_names.operators                       all operators in float32
    ... --types bfloat16,int64 --backward --every 5                                      a fifth, forward and backward
    ... --report operators.jsonl                                                         go on where it ended
    python -m tests.triton_names.operator_jobs --report operators.jsonl                  everything, on every core

Each case is one operator in one type: the first sample of the database, compiled, against eager. Where the two differ,
Inductor's C++ code is asked as well: Inductor rounds some results differently from eager, and that is right here. The
report has a line of JSON a case. A failure that `operator_jobs.KNOWN` does not have, and a case of it that has come to
pass, is an error of the job. All types go forward before any goes backward, so a job
that is cut short has seen every operator.
"""

from __future__ import annotations

import argparse
import faulthandler
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

from tests.triton_names.operator_jobs import note, read, summary

inductor.cpu_backend = "triton"
inductor.compile_threads = 1
inductor.triton.autotune_pointwise = False
warnings.simplefilter("ignore")

RANDOM = (
    "bernoulli cauchy dropout empty exponential fractional geometric log_normal multinomial normal rand rrelu uniform"
)
"""Parts of names of operators whose results are arbitrary: only their shapes and types are compared."""
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 1e-4}


class TooLongError(Exception):
    """A case met its time limit."""


def cases(types: list[torch.dtype], every: int, backward: bool) -> Iterator[tuple[str, Any, torch.dtype, bool]]:
    """(key, operator, type, whether backward) of the cases that are asked for."""
    for direction in ("forward", "backward")[: 1 + backward]:
        for dtype in types:
            for op in op_db[::every]:
                if dtype not in op.supported_dtypes("cpu"):
                    continue
                if direction == "backward" and not (dtype.is_floating_point and op.supports_autograd):
                    continue
                name = f"{op.name}{f'.{op.variant_test_name}' if op.variant_test_name else ''}"
                kind = str(dtype).removeprefix("torch.")
                yield f"{name} {kind} {direction}", op, dtype, direction == "backward"


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
    """The verdict on one case: "right", "as C++" where eager rounds differently, "not in eager" where that has no code.

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
    try:
        expected = outcome(call, sample, backward)
    except NotImplementedError:
        return "not in eager"
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


def in_turn(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The rows of the cases of this process's shard, as many as there is time for."""
    begin = time.monotonic()
    types = [getattr(torch, name) for name in asked.types.split(",")]
    chosen = [case for case in cases(types, asked.every, asked.backward) if asked.only in case[0]]
    report, done = asked.report, read(*[asked.report] if asked.report else [])
    if asked.shard:
        shard, shards = map(int, asked.shard.split("/"))
        chosen, report = chosen[shard::shards], Path(f"{asked.report}.{shard}")
        done |= read(report)
    for key, *case in chosen:
        if key in done or time.monotonic() - begin > asked.seconds:
            continue
        note(report, {"case": key, "verdict": "FAILED", "kernels": 0, "s": 0, "error": "it ended its process"})
        faulthandler.dump_traceback_later(asked.limit + 30, exit=True)  # an alarm waits until native code returns
        done[key] = row = run(key, *case, asked.limit)  # type: ignore[call-arg]
        faulthandler.cancel_dump_traceback_later()
        note(report, row)
        print(key, row["verdict"], row["kernels"], row["s"], row["error"][:300], flush=True)
    return {key: done[key] for key, *_ in chosen if key in done}


def main() -> None:
    """Run what is asked for and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", default="float32")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose keys hold this")
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--limit", type=int, default=300, help="seconds for a case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no case is begun")
    parser.add_argument("--shard", help="2/16: every sixteenth case from the third on; its report has .2 at its end")
    asked = parser.parse_args()
    signal.signal(signal.SIGALRM, on_alarm)
    text, wrong = summary(in_turn(asked))
    print(text)
    sys.exit(wrong and not asked.shard)


if __name__ == "__main__":
    main()
