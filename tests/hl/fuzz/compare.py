"""One random kernel: its configurations against the tiled reference."""

from __future__ import annotations

import random
from typing import Any

import torch

from tests.hl.fuzz.programs import Program, program
from tilewright import hl

_CALLS = 4  # of the kernel itself: one in Python, one that is recorded, two by machine code


class DifferenceError(AssertionError):
    """A configuration computes something else than the reference."""


def _is_ambiguous(bound: Any, config: Any, columns: int) -> bool:
    """Whether a registered block leaves a last tile of one column, which PyTorch broadcasts against the block."""
    sizes = zip(bound.traced.slots, config.get("block_sizes", ()), strict=False)
    return any(axis.kind == "block" and columns % size == 1 for axis, size in sizes)


def configuration(bound: Any, rng: random.Random, columns: int) -> Any:
    """A random configuration in which the tiles mean one thing."""
    drawn = (bound.config_spec.random(rng) for _ in range(200))
    for config in drawn:
        if not _is_ambiguous(bound, config, columns):
            return config
    raise ValueError(f"every block leaves a last tile of one of {columns} columns")


def check(seed: int, configurations: int = 1) -> Program:
    """Compare random configurations of the kernel with a number to its reference.

    Raises:
        DifferenceError: with the kernel, the configuration and the seed.
    """
    made = program(seed)
    bound = made.kernel.bind(made.args)
    rng = random.Random(seed)
    for _ in range(configurations):
        config = configuration(bound, rng, made.args[0].size(1))
        bound.set_config(config)
        expected = made.outputs(lambda *args: bound.run_ref(*args, mode=hl.RefMode.TILED))
        try:
            for call in (bound, *[made.kernel] * _CALLS):
                torch.testing.assert_close(made.outputs(call), expected, atol=1e-4, rtol=1e-3)
        except AssertionError as error:
            raise DifferenceError(f"seed {seed}: {error}\n{made.text}\n{bound.config!r}\n{bound.to_code()}") from None
    return made
