"""Loads through pointers by the copy engine, on a GPU: all masks, types and spellings, and values that have no map."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright.language as tl
from tests.backends.nvidia import box_kernels as kernels

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="needs a GPU of Hopper"
    ),
]
TILE = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8}


def integers(*shape: int, dtype: Any = None) -> Any:
    return torch.randint(-3, 4, shape, device="cuda").to(dtype or torch.float16)


def mapped(kernel: Any) -> bool:
    return bool(kernel.metadata.tensor_maps)


@pytest.mark.sanitize
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("mask", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "float8_e4m3fn"])
def test_products(dtype: str, mask: int, wide: bool) -> None:
    kind = getattr(torch, dtype)
    m, n, k = [(384, 256, 320), (272, 144, 320), (272, 144, 336)][mask]
    a, b = integers(m, k, dtype=kind), integers(k, n, dtype=kind)
    out = torch.full((m, n), -1, device="cuda", dtype=torch.int32 if dtype == "int8" else torch.float32)
    made = kernels.product[(-(-m // 128), -(-n // 128))](
        a, b, out, m, n, k, *a.stride(), *b.stride(), n, MASK=mask, WIDE=wide,
        ACC=tl.int32 if dtype == "int8" else tl.float32, **TILE,
    )  # fmt: skip
    assert torch.equal(out.double(), a.double() @ b.double())
    assert mapped(made) is (mask > 0 or not wide)


@pytest.mark.sanitize
def test_what_has_no_map() -> None:
    """Rows that are one row, or go backwards, and nothing to add up: by the kernel without maps, and back."""
    m, n, k = 256, 128, 128
    a, b, out = integers(m, k), integers(k, n), torch.empty(m, n, device="cuda")
    last = a[-1]

    def call(left: Any, am: int, depth: int = k) -> Any:
        out.fill_(-1)
        kernels.product[(2, 1)](left, b, out, m, n, depth, am, 1, n, 1, n, **TILE)
        return out.double()

    exact = a.double() @ b.double()
    for _ in range(3):
        assert torch.equal(call(a, k), exact)
        assert torch.equal(call(last, -k), exact.flip(0))
        assert torch.equal(call(last, 0), exact[-1:].expand(m, n))
        assert not call(a, k, 0).any()
    for first in (0, 8, -8, 8):
        kernels.shifted[(2, 1)](a[8:], b, out, m - 16, n, k, first, **TILE)
        assert torch.equal(out[: m - 16].double(), exact[8 + first :][: m - 16])


@pytest.mark.sanitize
def test_rows_that_wrap() -> None:
    m, n, k = 208, 144, 192
    a, b, out = integers(m, k), integers(k, n), torch.full((m, n), -1.0, device="cuda")
    made = kernels.wrapped[(2, 2)](a, b, out, m, n, k, **TILE)
    assert torch.equal(out.double(), a.double() @ b.double()) and mapped(made)
    every = torch.empty(256, 128, device="cuda")
    kernels.wrapped[(2, 1)](a, b, every, m, n, k, ALL=True, **TILE)
    assert torch.equal(every.double(), (a.double() @ b.double())[torch.arange(256) % m][:, :128])


@pytest.mark.sanitize
def test_spellings() -> None:
    z, m, n, k = 3, 200, 136, 96
    a, b, out = integers(z, m, k), integers(z, n, k), torch.empty(z, m, n, device="cuda")
    made = kernels.batched[(2, 2, z)](a, b, out, m, n, k, m * k, k, n * k, k, m * n, n, **TILE)
    assert torch.equal(out.double(), a.double() @ b.double().mT) and mapped(made)
    a, b, out = integers(m, k), integers(k, 128), torch.empty(m, 128, device="cuda")
    made = kernels.of_numbers[(2,)](a, b, out, m, N=128, K=k, **{**TILE, "BK": 32})
    assert torch.equal(out.double(), a.double() @ b.double()) and mapped(made)
    left, right = a.T.contiguous(), integers(128, k)
    made = kernels.product[(2, 1)](left, right, out, m, 128, k, 1, left.stride(0), 1, k, 128, **TILE)
    assert torch.equal(out.double(), a.double() @ right.double().T)
    a, b = integers(m, 192), integers(192, 128)
    for way in range(3):
        out.fill_(9)
        made = kernels.downwards[(2, 1)](a, b, out, m, 128, 192, 192, 128, WAY=way, **{**TILE, "BK": 64})
        assert torch.equal(out.double(), a.double() @ b.double()) and mapped(made)


@pytest.mark.sanitize
@pytest.mark.parametrize("warps", [4, 8])
def test_tiles_in_a_loop(warps: int) -> None:
    """By roles with eight warps; many launches beside another stream."""
    m, n, k = 1000, 784, 336
    a, b = integers(m, k), integers(k, n)
    exact = a.double() @ b.double()
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    outs = [torch.empty(m, n, device="cuda") for _ in streams]
    for _ in range(20):
        for stream, out in zip(streams, outs, strict=True):
            with torch.cuda.stream(stream):
                made = kernels.persistent[(40,)](a, b, out, m, n, k, 8 * 7, **{**TILE, "num_warps": warps})
    torch.cuda.synchronize()
    assert all(torch.equal(out.double(), exact) for out in outs) and mapped(made)
