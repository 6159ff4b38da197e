"""One random kernel: its configurations against the tiled reference."""

from __future__ import annotations

import random

import torch

from tests.hl.fuzz.programs import Program, program
from tilewright import hl


class DifferenceError(AssertionError):
    """A configuration computes something else than the reference."""


def check(seed: int, configurations: int = 1) -> Program:
    """Compare random configurations of the kernel with a number to its reference.

    Raises:
        DifferenceError: with the kernel, the configuration and the seed.
    """
    made = program(seed)
    bound = made.kernel.bind(made.args)
    rng = random.Random(seed)
    for _ in range(configurations):
        bound.set_config(bound.config_spec.random(rng))
        expected = made.outputs(lambda *args: bound.run_ref(*args, mode=hl.RefMode.TILED))
        try:
            torch.testing.assert_close(made.outputs(bound), expected, atol=1e-4, rtol=1e-3)
        except AssertionError as error:
            raise DifferenceError(f"seed {seed}: {error}\n{made.text}\n{bound.config!r}\n{bound.to_code()}") from None
    return made
