"""The kernels of `examples/hl` at length, compiled: `python -m tests.hl.gradients.at_length [--configurations 5]`.

Gradients against quotients of differences in every direction, several sizes against eager PyTorch, random
configurations, 16-bit types, and the same bits in ten runs where nothing is summed atomically. Prints a line for each
kernel.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator

import torch

from tests.hl.gradients import test_twice
from tests.hl.gradients.compare import check, gradcheck, gradients
from tests.hl.gradients.examples import CASES, ORDERED, Draw, Sizes, kernel
from tests.hl.gradients.forms import EMPTY, SIZES, configured, expanded, is_defined, is_viewed


def checks(name: str, configurations: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is checked of a kernel: (name, a call that raises where it fails)."""
    where, example = CASES[name]
    small = example.make(Draw(), Sizes(5, 7, 3))
    yield "quotients", lambda: gradcheck(kernel(where, wide=True), small, fast=False)
    for sizes in (*SIZES, *EMPTY, Sizes(1, 1, 1)):
        if is_defined(name, sizes):
            args = example.make(Draw(), sizes)
            yield f"{tuple(sizes)}", lambda args=args: check(kernel(where, wide=True), example.reference, *args)
    if not is_viewed(name):
        yield "expanded", lambda: check(kernel(where, wide=True), example.reference, *expanded(small))
    for dtype in (torch.bfloat16, torch.float16) if name != "delta.delta_rule" else ():
        yield str(dtype), lambda dtype=dtype: _rounds_as_eager(name, dtype)
    for at in range(configurations):

        def run(at: int = at) -> None:
            with configured(kernel(where, wide=True), random.Random(f"{name} {at}")) as made:
                check(made, example.reference, *example.make(Draw(), SIZES[at % len(SIZES)]))

        yield f"configuration {at}", run
    if name not in test_twice.REFUSED:
        args = example.make(Draw(), Sizes(9, 14, 5))
        yield "twice", lambda args=args: test_twice.agree(kernel(where, wide=True), example.reference, args)
    if name in ORDERED:
        yield "bits", lambda: _same_bits(name)


def _rounds_as_eager(name: str, dtype: torch.dtype) -> None:
    """In 16 bits gradients are about as far from those in float64 as PyTorch's are."""
    where, example = CASES[name]
    args = example.make(Draw(dtype), Sizes(21, 37, 11))
    wide = tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
    exact = gradients(example.reference, wide)
    found = zip(gradients(kernel(where), args), gradients(example.reference, args), exact, strict=True)
    for ours, theirs, right in found:
        mine, eager = (float((one.double() - right).abs().max()) for one in (ours, theirs))
        assert mine <= 4 * eager + 2 * torch.finfo(dtype).eps * float(right.abs().max()), (mine, eager)


def _same_bits(name: str) -> None:
    where, example = CASES[name]
    args = example.make(Draw(torch.float32), Sizes(300, 70, 16))
    first, *others = (gradients(kernel(where), args) for _ in range(10))
    assert all(torch.equal(one, other) for found in others for one, other in zip(first, found, strict=True))


def main() -> int:
    """Check everything; the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=5)
    parser.add_argument("names", nargs="*", default=list(CASES))
    given = parser.parse_args()
    failed = 0
    for name in given.names:
        made = 0
        for what, run in checks(name, given.configurations):
            try:
                run()
                made += 1
            except Exception as error:
                failed += 1
                print(f"{name}, {what}: {type(error).__name__}: {error}", flush=True)
        print(f"{name:30} {made} right", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
