"""What a case of the corpus is: a function that launches kernels and says what PyTorch computes.

A case is a function ``f(new, **sizes)`` under `case`: it makes tensors with `new`, launches kernels written in the
style of libraries, and returns pairs (what a kernel made, what it should be). Sizes come twice: small ones for the
CPU, in every run of the tests, and those of real programs for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Pairs = list[tuple[torch.Tensor, torch.Tensor]]
CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    """A registered case.

    Args:
        run: makes tensors, launches, returns pairs of results and references.
        small, large: its sizes for the tests and for a GPU.
        tolerance: largest difference, relative to the largest value of the reference.
    """

    run: Callable[..., Pairs]
    small: dict[str, Any]
    large: dict[str, Any]
    tolerance: float

    def check(self, device: str, sizes: dict[str, Any]) -> None:
        """Run on a device and compare.

        Raises:
            AssertionError: a result is not what PyTorch computes.
        """
        pairs = self.run(New(device), **sizes)
        assert pairs
        for number, (got, want) in enumerate(pairs):
            assert got.shape == want.shape, (number, got.shape, want.shape)
            if not want.dtype.is_floating_point:
                assert torch.equal(got.to(want.dtype), want), f"result {number} differs"
                continue
            got, want = got.detach().double(), want.detach().double()
            finite = torch.isfinite(want)
            assert torch.equal(got[~finite], want[~finite]), f"result {number}: infinities differ"
            error = (got[finite] - want[finite]).abs().max().item() if finite.any() else 0.0
            scale = max(want[finite].abs().max().item(), 1e-6) if finite.any() else 1.0
            assert error <= self.tolerance * scale, f"result {number}: {error / scale} > {self.tolerance}"


def case(
    small: dict[str, Any], large: dict[str, Any], tolerance: float = 1e-5
) -> Callable[[Callable[..., Pairs]], Callable[..., Pairs]]:
    """Register the function below as a case under its name."""

    def register(run: Callable[..., Pairs]) -> Callable[..., Pairs]:
        name = run.__name__
        assert name not in CASES, f"two cases are called {name}"
        CASES[name] = Case(run, small, large, tolerance)
        return run

    return register


class New:
    """Makes tensors on a device, the same ones for the same calls."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.generator = torch.Generator("cpu").manual_seed(0)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator).to(self.device, dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """float32 numbers between `low` and `high`."""
        return (torch.rand(shape, generator=self.generator) * (high - low) + low).to(self.device)

    def integers(self, high: int, *shape: int, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integers from `low` up to, but not including, `high`."""
        return torch.randint(low, high, shape, generator=self.generator).to(self.device, dtype)

    def permutation(self, count: int) -> torch.Tensor:
        """The numbers below `count` in some order."""
        return torch.randperm(count, generator=self.generator).to(self.device)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A tensor to be written: NaN, or the least integer, until it is."""
        value = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
        return torch.full(shape, value, dtype=dtype, device=self.device)

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Zeros."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def offsets(self, lengths: list[int]) -> torch.Tensor:
        """Where sequences of these lengths begin and end, int32."""
        return torch.tensor([0, *lengths], device=self.device).cumsum(0).to(torch.int32)


def leaves(*tensors: torch.Tensor) -> Iterator[torch.Tensor]:
    """float64 copies of tensors that gradients flow to."""
    return (t.detach().double().requires_grad_() for t in tensors)


def gradients(output: torch.Tensor, upstream: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Gradients of `output` with respect to `inputs`."""
    return torch.autograd.grad(output, inputs, upstream.double())
