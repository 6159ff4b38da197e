"""Random whole kernels: the CPU computes what the reference computes, on this CPU and as an older one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.against import check
from tests.backends.cpu.random_tiles import REGION, Writer
from tilewright.backends.llvm.features import describe, host

PROGRAMS = 3


def _arguments(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    floats = [rng.standard_normal(PROGRAMS * REGION).astype(np.float32) for _ in range(2)]
    integers = [rng.integers(-50, 50, PROGRAMS * REGION).astype(np.int32) for _ in range(2)]
    return [*floats, *integers, int(rng.integers(0, 200)), int(rng.integers(0, 4))]


@pytest.mark.parametrize("seed", range(12))
def test_random_kernel(seed: int) -> None:
    check(Writer(seed).write(14), (PROGRAMS,), *_arguments(seed), tolerance=1e-3)


# Kernels that once went wrong: values placed too late, carried tiles exchanged, masks at a reshaped index.
@pytest.mark.parametrize(
    ("seed", "size"),
    [
        (15, 12),
        (26, 12),
        (111, 25),
        (118, 25),
        (121, 25),
        (166, 25),
        (187, 25),
        (220, 16),
        (278, 16),
        (1058, 45),
        (1102, 45),
    ],
)
def test_known_hard_kernel(seed: int, size: int) -> None:
    check(Writer(seed).write(size), (PROGRAMS,), *_arguments(seed), tolerance=1e-3)


@pytest.mark.skipif(not host().is_x86, reason="names x86 CPUs")
@pytest.mark.parametrize("cpu", ["haswell", "x86-64"])
@pytest.mark.parametrize("seed", range(100, 103))
def test_random_kernel_on_an_older_cpu(cpu: str, seed: int) -> None:
    isa = describe(host().triple, cpu)
    if not host().available.issuperset(isa.available):
        pytest.skip(f"this CPU cannot run code for {cpu}")
    check(Writer(seed).write(14), (PROGRAMS,), *_arguments(seed), tolerance=1e-3, isa=isa)
