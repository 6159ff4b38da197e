"""Kernels of `examples/hl` and their gradients with the code that a GPU gets, on the simulated one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch

from tests.backends.nvidia import simt_math, simt_tensor
from tests.hl.gradients.compare import check
from tests.hl.gradients.examples import CASES, Draw, Sizes, kernel
from tests.language.kernel_runner import run, running_on
from tilewright import hl
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.hl.tune import spec
from tilewright.hl.tune.machine import Machine
from tilewright.launch.jit import JITFunction

assert simt_math and simt_tensor  # importing them adds their instructions
OPTIONS = {field.name for field in fields(CudaOptions)}
PRODUCTS = ("attention", "grouped", "matmul", "jagged.jagged_dense")  # tf32 operands have 10 bits
LONG = ("dropout", "delta", "gather.rope")  # seconds each: a GPU runs them in tests/gpu
LAUNCHES: list[str] = []


def memory(value: Any) -> Any:
    """What a kernel reaches through an argument: the elements of a tensor, and those between them."""
    if not isinstance(value, torch.Tensor):
        return value
    reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.detach().as_strided([reach if value.numel() else 0], [1]).numpy()


def launcher(fn: JITFunction, grid: tuple[int, ...]) -> Callable[..., None]:
    """Launches a kernel on the simulated GPU."""

    def launch(*args: Any, **named: Any) -> None:
        options = CudaOptions(**{name: value for name, value in named.items() if name in OPTIONS})
        constants = {name: value for name, value in named.items() if name not in OPTIONS}
        LAUNCHES.append(fn.__name__)
        with running_on("simulated"):
            run(fn, *map(memory, args), grid=grid, options=options, **constants)

    return launch


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(LONG)])
def test_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "machine_of", lambda device: Machine("cuda", 132, 227 << 10))
    monkeypatch.setattr(JITFunction, "__getitem__", launcher)
    LAUNCHES.clear()
    where, example = CASES[name]
    known = kernel(where)
    fresh = hl.kernel(known.fn, configs=known.configs)  # of which nothing is bound for a CPU, nor will be for this
    check(fresh, example.reference, *example.make(Draw(torch.float32), Sizes(20, 36, 24)), tolerance=tolerance_of(name))
    assert len(LAUNCHES) >= 2 and any("backward" in launched for launched in LAUNCHES)


def tolerance_of(name: str) -> float:
    """Of a gradient, relative to its largest element."""
    return 3e-2 if name.startswith(PRODUCTS) else 1e-4
