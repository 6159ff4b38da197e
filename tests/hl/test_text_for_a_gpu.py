"""Text that is generated for a GPU alone, executed here; warps mean nothing to a CPU."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.hl.tune import spec
from tilewright.hl.tune.machine import Machine


@pytest.fixture(autouse=True)
def for_a_gpu(monkeypatch):
    monkeypatch.setattr(spec, "machine_of", lambda device: Machine("cuda", 132, 227 << 10))


def extremes(x):
    largest, smallest = torch.empty_like(x[:, 0, 0]), torch.empty_like(x[:, :, 0])
    for rows in hl.tile(x.size(0)):
        largest[rows] = x[rows, :, :].amax((1, 2))
        smallest[rows, :] = x[rows, :, :].amin(-1)
    return largest, smallest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_extremes_are_found_by_one_reduction(dtype):
    x = torch.randn(9, 5, 12).mul(100).to(dtype)
    if dtype.is_floating_point:
        x[2, 3, 4] = x[7, 0, 11] = float("nan")
    bound = hl.kernel(extremes, config=hl.Config(block_sizes=[4])).bind((x,))
    assert "tl.where" not in bound.to_code() and "num_warps" in bound.to_code()
    largest, smallest = bound(x)
    torch.testing.assert_close(largest, x.amax((1, 2)), equal_nan=True)
    torch.testing.assert_close(smallest, x.amin(-1), equal_nan=True)
