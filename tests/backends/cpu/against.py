"""Comparison of the CPU back end with the reference evaluator on whole kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.backends.cpu.harness import Compiled
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module


def check(
    text: str, grid: Sequence[int], *arguments: Any, tolerance: float = 1e-5, isa: CpuFeatures | None = None
) -> Compiled:
    """Run `text` both ways on copies of the arrays and compare every array; gives the compiled kernel.

    `tolerance` is relative to 1 + the size of the expected element; integers must be equal.
    """
    ours = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    theirs = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    module = parse_module(text)
    kernel = next(op for op in module.ops if isinstance(op, FuncOp) and op.is_kernel)
    memory = Memory()
    addresses = [memory.register(a) if isinstance(a, np.ndarray) else a for a in theirs]
    Evaluator(module, memory).launch(kernel.symbol, tuple(grid), addresses)
    compiled = Compiled(text, isa=isa)
    compiled(grid, *ours)
    for number, (got, want) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(got, np.ndarray):
            equal(got, want, tolerance, f"argument {number}")
    return compiled


def equal(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], tolerance: float, what: str) -> None:
    """Assert that two arrays agree; NaN agrees with NaN."""
    if got.dtype.kind != "f":
        assert np.array_equal(got, want), f"{what}: {np.flatnonzero(got.ravel() != want.ravel())[:8]}"
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        close = np.abs(a - b) <= tolerance * (1 + np.abs(b))
    wrong = ~(same | close)
    assert not wrong.any(), f"{what} at {np.flatnonzero(wrong.ravel())[:8]}: {a[wrong][:4]} instead of {b[wrong][:4]}"
