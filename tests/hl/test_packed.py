"""Pairs of four-bit floats in bytes: tensors of `torch.float4_e2m1fn_x2`, and the functions that take them apart."""

from __future__ import annotations

import pytest
import torch

import tilewright.hl as hl
from tilewright.hl import exc

VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
VALUES = torch.cat([VALUES, -VALUES])
MODES = [{}, {"ref_mode": hl.RefMode.EAGER}]


def halves(codes):
    return VALUES[(codes & 15).long()], VALUES[(codes >> 4).long()]


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float4_e2m1fn_x2])
def test_every_byte_is_taken_apart(options, dtype):
    @hl.kernel(**options)
    def apart(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low = torch.empty(packed.shape, device=packed.device)
        high = torch.empty_like(low)
        for rows, columns in hl.tile(packed.size()):
            low[rows, columns], high[rows, columns] = hl.float4_e2m1fn_x2_to_float32(packed[rows, columns])
        return low, high

    codes = torch.arange(256).to(torch.uint8).reshape(8, 32)
    for made, expected in zip(apart(codes.view(dtype)), halves(codes), strict=True):
        assert torch.equal(made, expected) and torch.equal(made.signbit(), expected.signbit())


@pytest.mark.parametrize("options", MODES)
def test_a_product_with_packed_weights(options):
    @hl.kernel(dot_precision="ieee", **options)
    def product(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.size(0), packed.size(1), device=x.device)
        for rows, columns in hl.tile(out.size()):
            acc = hl.zeros([rows, columns])
            for pairs in hl.tile(packed.size(0)):
                low, high = hl.float4_e2m1fn_x2_to_float32(packed[pairs, columns])
                acc = torch.addmm(acc, x[rows, pairs.index * 2], low)
                acc = torch.addmm(acc, x[rows, pairs.index * 2 + 1], high)
            out[rows, columns] = acc * scale[columns]
        return out

    x, codes, scale = torch.randn(30, 76), torch.randint(0, 256, (38, 45), dtype=torch.uint8), torch.rand(45)
    weights = torch.stack(halves(codes), 1).reshape(76, 45)
    made = product(x, codes.view(torch.float4_e2m1fn_x2), scale)
    torch.testing.assert_close(made, x @ weights * scale, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", MODES)
def test_groups_of_sixteen(options):
    @hl.kernel(**options)
    def dots(packed: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.numel() // 16, dtype=torch.float32, device=x.device)
        bytes_of, values = packed.view(-1), x.view(-1)
        for group in hl.tile(out.size(0)):
            acc = hl.zeros([group])
            weights = hl.load_float4_e2m1fn_x16_to_float16(bytes_of, group.index)
            others = hl.load_bfloat16_x16_to_float16(values, group.index, group.index != 3)
            for weight, other in zip(weights, others, strict=True):
                acc = acc + weight.to(torch.float32) * other.to(torch.float32)
            out[group] = acc
        return out

    codes, x = torch.randint(0, 256, (5, 24), dtype=torch.uint8), torch.randn(5, 48).to(torch.bfloat16)
    weights = torch.stack(halves(codes.reshape(-1)), 1).reshape(-1, 16)
    expected = (weights * x.to(torch.float16).float().reshape(-1, 16)).sum(1)
    expected[3] = 0
    torch.testing.assert_close(dots(codes, x), expected)
    torch.testing.assert_close(dots(codes.view(torch.float4_e2m1fn_x2), x), expected)


def test_gradients_of_sixteen_values():
    @hl.kernel(autotune_effort="none")
    def weighted(x: torch.Tensor, n: hl.constexpr) -> torch.Tensor:
        out = torch.empty(n, dtype=torch.float32)
        for group in hl.tile(n):
            total = hl.zeros([group])
            for number, value in enumerate(hl.load_bfloat16_x16_to_float16(x, group.index)):
                total = total + value.to(torch.float32) * (number + 1)
            out[group] = total
        return out

    x, up = torch.randn(16 * 37).to(torch.bfloat16).requires_grad_(), torch.arange(37.0)
    weighted(x, 37).backward(up)
    expected = up[:, None] * torch.arange(1.0, 17.0)
    torch.testing.assert_close(x.grad, expected.reshape(-1).to(torch.bfloat16))


def test_what_is_not_packed_is_refused():
    @hl.kernel
    def wrong(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = hl.float4_e2m1fn_x2_to_float32(x[tile])[0]
        return out

    @hl.kernel
    def rows(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.size(0), dtype=torch.float16, device=x.device)
        for tile in hl.tile(x.size(0)):
            out[tile] = hl.load_bfloat16_x16_to_float16(x, tile.index)[0]
        return out

    with pytest.raises(exc.InvalidAPIUsage, match=r"float4_e2m1fn_x2_to_float32 of torch\.float32"):
        wrong(torch.randn(8))
    with pytest.raises(exc.InvalidAPIUsage, match="with 2 dimensions"):
        rows(torch.randn(8, 16, dtype=torch.bfloat16))
