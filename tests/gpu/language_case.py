"""A kernel with its arguments, and how to run it where: what `language_kernels.py` lists.

What a case leaves in its arrays must be what the reference evaluator leaves there, or what `want` says where only a
GPU can know. `names_used` tells which names of the language a source file mentions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tilewright.language as tl
from tests.language.kernel_runner import run, running_on
from tilewright.backends.nvidia.options import CudaOptions

Array = np.ndarray[Any, Any]
N = 64  # elements of most arrays


@dataclass(frozen=True)
class Case:
    """A kernel and what it is run on.

    Args:
        kernel: a jit function.
        arrays: its array parameters, in order; each run gets copies.
        constants: its compile-time parameters.
        tolerance: relative difference that floats may have; a tenth of it is the absolute one.
        grid, options: of the launch.
        want: gives the arrays after the run where the reference cannot.
        least: compute capability that it needs.
    """

    kernel: Any
    arrays: tuple[Array, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    grid: tuple[int, ...] = (1,)
    options: dict[str, Any] = field(default_factory=dict)
    want: Callable[..., None] | None = None
    least: int = 80


CASES: dict[str, Case] = {}


def add(name: str, kernel: Any, *arrays: Array, **more: Any) -> None:
    """A case; keywords that `Case` does not have are compile-time parameters of the kernel."""
    own = {key: more.pop(key) for key in ("tolerance", "grid", "options", "want", "least") if key in more}
    assert name not in CASES
    CASES[name] = Case(kernel, arrays, more, **own)


def floats(*shape: int) -> Array:
    """Between 1/4 and 4."""
    return np.random.default_rng(3).uniform(0.25, 4.0, shape or (N,)).astype(np.float32)


def integers(*shape: int) -> Array:
    """Between 1 and 99."""
    return np.random.default_rng(4).integers(1, 100, shape or (N,)).astype(np.int32)


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    """For results."""
    return np.zeros(shape or (N,), dtype)


def check(case: Case, way: str) -> None:
    """Run a case and compare its arrays with what they must be.

    Args:
        case: the case.
        way: as for `running_on`: "cuda" or "simulated".
    """
    found, wanted = ([array.copy() for array in case.arrays] for _ in range(2))
    launch: dict[str, Any] = {"grid": case.grid, "options": CudaOptions(**case.options), **case.constants}
    with running_on(way):
        run(case.kernel, *found, **launch)
    if case.want is not None:
        case.want(*wanted)
    else:
        with running_on("reference"):
            run(case.kernel, *wanted, **launch)
    for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
        what = f"array {number}"
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=case.tolerance, atol=case.tolerance / 10, err_msg=what)
        else:
            np.testing.assert_array_equal(got, want, err_msg=what)


def names_used(path: Path) -> Iterator[Any]:
    """Objects of the language that the source of a file mentions as `tl.x.y`, the modules on the way among them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id == "tl" and parts:
            yield operator.attrgetter(".".join(parts))(tl)
