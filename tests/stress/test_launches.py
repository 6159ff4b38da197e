"""Launches without number leave nothing behind: a million of each form in `make stress`, 20,000 in `make test`."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")
LAUNCHES = 1_000_000 if os.environ.get("TILEWRIGHT_STRESS") else 5_000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@tilewright.jit
def nothing(x, y, n, m, BLOCK: tl.constexpr):
    pass


@tilewright.jit
def with_scratch(x_ptr, y_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(y_ptr + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :], tl.dot(x, tl.trans(x)))


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forms() -> dict[str, Any]:
    x, y, grid = torch.zeros(64), np.zeros(64, np.float32), (1,)
    box = TensorDescriptor.from_tensor(torch.zeros(16, 16), [4, 4])
    kept = nothing[grid]
    a, b = torch.zeros(16, 16), torch.zeros(16, 16)
    return {
        "plain": lambda i: nothing[grid](x, y, i, 5, BLOCK=64),
        "kept": lambda i: kept(x, y, i, 5, BLOCK=64),
        "tuple": lambda i: nothing[grid]((x, i), y, 7, 5, BLOCK=64),
        "descriptor": lambda i: nothing[grid](box, y, i, 5, BLOCK=64),
        "grid function": lambda i: nothing[lambda meta: (1,)](x, y, i, 5, BLOCK=64),
        "scratch": lambda i: with_scratch[grid](a, b, 16),
    }


@pytest.mark.parametrize("form", forms())
def test_launches_leave_nothing_behind(form: str) -> None:
    launch = forms()[form]
    for i in range(2000):
        launch(i)
    gc.collect()
    blocks, memory = sys.getallocatedblocks(), resident()
    for i in range(LAUNCHES):
        launch(i)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 500
    assert resident() - memory < 4 << 20
