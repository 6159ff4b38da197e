"""Random kernels: their gradients against autograd through the tiled reference, which runs them as plain Python.

`python -m tests.hl.gradients.fuzz --count 2000 [--first 0]` prints how many are right, and how many are refused.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from contextlib import nullcontext
from random import Random
from typing import Any

import torch

from tests.hl.fuzz.compare import configuration
from tests.hl.fuzz.programs import Program, program
from tests.hl.gradients.compare import leaves, tiles_by_default
from tilewright import hl
from tilewright.hl.runtime.gradient_slot import wants

_STORES_MEET = re.compile(r"^ *out\[.*[%/].*\] = ", re.MULTILINE)
_SIZED = re.compile(r"hl\.tile\(.*block_size=\d")


def check(made: Program, seed: int = 0) -> str:
    """Compare the gradients of one kernel: "right", "refused", or "no reference".

    Raises:
        AssertionError: they differ; with the kernel and the seed.
    """
    bound = made.kernel.bind(made.args)
    rng = Random(seed)
    meet = _STORES_MEET.search(made.text)  # of which pass the store counts, the tiles say then
    if meet and _SIZED.search(made.text):
        return "no reference"  # passes meet, and nobody sees it
    bound.set_config(bound.default_config() if meet else configuration(bound, rng, made.args[0].size(1)))
    mine, theirs = leaves(made.args[:-2]), leaves(made.args[:-2])
    try:
        with nullcontext() if meet else tiles_by_default(rng.choice((1, 4, 16, 64))):
            ours = _gradients(made.kernel, mine, made.args[-2:], seed)
    except hl.exc.NotDifferentiable as error:
        assert error.location is not None, seed
        return "refused"

    def reference(*args: Any) -> Any:
        return bound.run_ref(*args, mode=hl.RefMode.TILED, gradients=True)

    try:
        expected = _gradients(reference, theirs, made.args[-2:], seed)
    except RuntimeError:
        return "no reference"  # PyTorch has no derivative of what the reference does in place
    # PyTorch rounds gradients of 16 bits between operations.
    relative, absolute = (1e-2, 5e-3) if "float16" in made.text else (1e-3, 1e-4)
    ours, expected = (one or [torch.zeros_like(arg) for arg in mine if wants(arg)] for one in (ours, expected))
    for one, other in zip(ours, expected, strict=True):
        scale = float(other.nan_to_num(0, 0, 0).abs().max()) if other.numel() else 0.0
        try:
            torch.testing.assert_close(one, other, rtol=relative, atol=absolute * max(scale, 1.0), equal_nan=True)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{made.text}") from None
    return "right"


def _gradients(run: Any, args: tuple[Any, ...], forms: tuple[Any, ...], seed: int) -> list[Any] | None:
    outs = [torch.zeros_like(form) for form in forms]
    run(*args, *outs)
    generator = torch.Generator().manual_seed(seed)
    ups = [torch.randn(one.shape, generator=generator).to(one.dtype) for one in outs]
    pairs = [(one, up) for one, up in zip(outs, ups, strict=True) if one.requires_grad]
    if not pairs:
        return None
    outs, ups = map(list, zip(*pairs, strict=True))
    wanted = [arg for arg in args if wants(arg)]
    found = torch.autograd.grad(outs, wanted, ups, allow_unused=True)
    return [torch.zeros_like(arg) if one is None else one for arg, one in zip(wanted, found, strict=True)]


def main() -> int:
    """Check many; 1 where a gradient is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        try:
            found[check(program(seed), seed)] += 1
        except AssertionError as error:
            found["wrong"] += 1
            print(error, flush=True)
    print(dict(found))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
