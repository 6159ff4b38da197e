"""Loops whose count is an argument: a constant of the derivation where the way back needs every pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.hl.gradients.compare import check
from tilewright import hl
from tilewright.hl.grad import calls


@hl.kernel(autotune_effort="none")
def repeated(x, count):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        for _ in range(count):
            values = torch.tanh(values * x[rows, :])
        out[rows, :] = values
    return out


@hl.kernel(autotune_effort="none")
def recurrence(x, count):
    out = torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        state = hl.zeros([rows], dtype=x.dtype)
        for at in hl.grid(count + 1):
            state = torch.tanh(state + x[rows, at])
        out[rows] = state
    return out


@hl.kernel(autotune_effort="none")
def summed(x, count):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        total = torch.zeros_like(x[rows, :])
        for at in range(count):
            total = total + torch.sin(x[rows, :] * at)
        out[rows, :] = total
    return out


def of_all(x: Any, count: int) -> Any:
    values = x
    for _ in range(count):
        values = torch.tanh(values * x)
    return values


def last(x: Any, count: int) -> Any:
    state = torch.zeros_like(x[:, 0])
    for at in range(count + 1):
        state = torch.tanh(state + x[:, at])
    return state


@pytest.mark.parametrize(("kernel", "reference"), [(repeated, of_all), (recurrence, last)])
def test_counts_that_are_arguments(kernel: hl.Kernel, reference: Any) -> None:
    x = torch.randn(7, 6, dtype=torch.float64)
    for count in (3, 0, 5, 3):
        check(kernel, reference, x, count)


def test_sums_have_one_derivation_for_all_counts() -> None:
    x = torch.randn(7, 6, dtype=torch.float64)
    found = [calls.differentiated(summed, (x, count)) for count in (2, 4)]
    assert found[0] is found[1]
    for count in (2, 4):
        check(summed, lambda x, count: sum(torch.sin(x * at) for at in range(count)), x, count)
