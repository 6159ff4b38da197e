"""Divisions and roots beside wgmma, bit by bit as torch makes them on the GPU."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tilewright.language.extra import libdevice

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")
COUNT = 1 << 24


@tilewright.jit
def rounded(x_ptr, y_ptr, out_ptr, z_ptr, HOW: tl.constexpr):
    m, n, k = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, 16)
    i = tl.program_id(0) * 8192 + m[:, None] * 64 + n[None, :]
    product = tl.dot(tl.load(z_ptr + m[:, None] * 16 + k[None, :]), tl.load(z_ptr + k[:, None] * 64 + n[None, :]))
    x = tl.load(x_ptr + i)
    if HOW == "div":
        result = tl.div_rn(x, tl.load(y_ptr + i))
    elif HOW == "sqrt":
        result = tl.sqrt_rn(x)
    else:
        result = libdevice.rcp_rn(x)
    tl.store(out_ptr + i, result)
    tl.store(z_ptr + 4096 + m[:, None] * 64 + n[None, :], product)


def _bits(seed: int, near_one: bool) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    bits = torch.randint(-(1 << 31), 1 << 31, (COUNT,), device="cuda", generator=generator).to(torch.int32)
    return ((bits & ~0x7F800000) | 0x3F800000 if near_one else bits).view(torch.float32)


@pytest.mark.parametrize("near_one", [False, True])
@pytest.mark.parametrize("how", ["div", "sqrt", "rcp"])
def test_every_bit(how: str, near_one: bool) -> None:
    x, y = _bits(1, near_one), _bits(2, near_one)
    want = {"div": x / y, "sqrt": torch.sqrt(x), "rcp": 1 / x}[how]
    out, zeros = torch.empty_like(x), torch.zeros(4096 + 8192, device="cuda", dtype=torch.float16)
    kernel = rounded[(COUNT // 8192,)](x, y, out, zeros, how, num_warps=4)
    wrong = (out.view(torch.int32) != want.view(torch.int32)) & ~(out.isnan() & want.isnan())
    assert not wrong.any()
    if kernel is not None and torch.cuda.get_device_capability() == (9, 0):
        assert "wgmma" in kernel.asm["ptx"] and "call" not in kernel.asm["ptx"]
