"""Compiled kernels launched as `compiled[grid](...)`: usual arguments are read without a detour, others as ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compile import kernel as kernel_module
from tilewright.compile.slots import plain_values
from tilewright.devices.arrays import HOST

torch = pytest.importorskip("torch")


@tilewright.jit
def add(x, y, out, n, scale, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + scale * tl.load(y + i, mask=i < n)
    tl.store(out + i, value, mask=i < n)


def test_usual_arguments_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, out = torch.arange(8.0), np.ones(8, np.float32), torch.zeros(8)
    compiled = add[(1,)](x, y, out, 8, 2.0, 8)
    monkeypatch.setattr(kernel_module, "read", pytest.fail)
    for n in (8, 5):
        out.zero_()
        compiled[(1,)](x, y, out, n, 3.0, 8)
        assert torch.equal(out, torch.where(torch.arange(8) < n, x + 3, 0.0))
    compiled[(0,)](x, y, out.fill_(7), 8, 3.0, 8)
    assert torch.all(out == 7)


def test_other_arguments_take_the_long_way() -> None:
    class Wrapped:
        def __init__(self, value: Any) -> None:
            self.__array_interface__ = value.__array_interface__

    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    compiled = add[(1,)](x, x, out, 8, 2.0, 8)
    compiled[(1,)](Wrapped(x), x, out, np.int32(8), 1.0, 8)
    assert np.array_equal(out, 2 * x)


def test_what_is_plain() -> None:
    a, b = torch.zeros(4), np.zeros(4)
    assert plain_values((a, 3, b, 2.5, "text"), (0, 1, 2, 3)) == ([a.data_ptr(), 3, b.ctypes.data, 2.5], HOST)
    for odd in ("text", None, torch.zeros(0), torch.zeros(4, device="meta"), np.float32(1)):
        assert plain_values((a, odd), (0, 1)) is None
    assert plain_values((3,), (0,)) is None  # no array says where to launch
