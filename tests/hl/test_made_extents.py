"""Extents of tensors and tiles that programs make, which are no products of sizes: quotients, sums, powers of two."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc

SHAPES = pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])


def parts_by_block(x, divided: hl.constexpr):
    block = hl.register_block_size(x.size(0))
    count = (x.size(0) + block - 1) // block if divided else hl.cdiv(x.size(0), block)
    parts = x.new_full([count, x.size(1)], float("nan"))
    for t in hl.tile(x.size(0), block_size=block):
        parts[t.id, :] = x[t, :].sum(0)
    out = torch.empty_like(parts)
    for t in hl.tile(parts.size(0)):
        out[t, :] = parts[t, :] * 2
    return out.sum(0)


@SHAPES
@pytest.mark.parametrize("divided", [True, False])
def test_a_row_for_each_block(static, divided):
    """The extent differs from configuration to configuration, and so does what is masked by it."""
    x = torch.randn(40, 5)
    bound = hl.kernel(parts_by_block, static_shapes=static).bind((x, divided))
    for block in (1, 3, 8, 16, 64):
        found = bound.compile_config(hl.Config(block_sizes=[block, 4]))(x, divided)
        torch.testing.assert_close(found, x.sum(0) * 2)


def test_all_rows_of_blocks_at_once():
    @hl.kernel
    def kernel(x):
        block = hl.register_block_size(x.size(0))
        parts = x.new_empty([hl.cdiv(x.size(0), block), x.size(1)])
        for t in hl.tile(x.size(0), block_size=block):
            parts[t.id, :] = x[t, :].sum(0)
        out = x.new_empty([x.size(1)])
        for t in hl.tile(x.size(1)):
            out[t] = parts[:, t].sum(0)
        return out

    x = torch.randn(40, 21)
    bound = kernel.bind((x,))
    for block in (1, 3, 8, 64):
        torch.testing.assert_close(bound.compile_config(hl.Config(block_sizes=[block, 8]))(x), x.sum(0))
    dynamic = hl.kernel(kernel.fn, static_shapes=False)
    with pytest.raises(exc.SizeUsedAsNumber, match=r"(?s)a block size and a size of the call.*hl.specialize"):
        dynamic(x)


def halves_and_more(x, k: int):
    n = x.size(1)
    half, more, few = x.new_zeros([x.size(0), n // 2]), x.new_zeros([x.size(0), n + 1]), x.new_zeros([k % 7, n - 3])
    for t in hl.tile(half.size(0)):
        row = hl.zeros([t, n // 2]) + x[t, hl.arange(n // 2)]
        half[t, :] = row * half.size(1) + row.amax(-1)[:, None]
    for t, c in hl.tile([x.size(0), n]):
        more[t, c.index + 1] = x[t, c]
    for t in hl.tile(few.size(0)):
        few[t, :] = t.index[:, None] + x[0, hl.arange(n - 3)][None, :]
    return half, more, few


@SHAPES
def test_quotients_and_sums(static):
    kernel = hl.kernel(halves_and_more, static_shapes=static)
    for columns in (10, 21, 64):
        x = torch.randn(9, columns)
        row = x[:, : columns // 2]
        expected = (
            row * (columns // 2) + row.amax(1, keepdim=True),
            torch.cat([torch.zeros(9, 1), x], 1),
            torch.arange(5)[:, None] + x[:1, : columns - 3],
        )
        torch.testing.assert_close(kernel(x, 12), expected)


@SHAPES
def test_rows_padded_to_powers_of_two(static):
    """Lanes beyond a row are read as 0, whatever is made of them."""

    @hl.kernel(static_shapes=static)
    def kernel(x):
        lanes = hl.next_power_of_2(x.size(1))
        out, count = x.new_empty([x.size(0)]), x.new_empty([x.size(0)])
        for t in hl.tile(x.size(0)):
            row = hl.zeros([t, lanes]) + x[t, hl.arange(lanes)]
            out[t] = torch.where(hl.arange(lanes)[None, :] < x.size(1), torch.exp(row), 0.0).sum(-1)
            count[t] = (row == 0).sum(-1).to(x.dtype)
        return out, count

    for columns in (3, 40, 64):
        x = torch.rand(10, columns) + 1
        missing = float(hl.next_power_of_2(columns) - columns)
        torch.testing.assert_close(kernel(x), (x.exp().sum(1), torch.full((10,), missing)))


def test_an_extent_of_one_tile_is_none_of_a_tensor():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + hl.zeros([t.end - t.begin])
        return out

    with pytest.raises(exc.SizeUsedAsNumber):
        kernel(torch.zeros(10))


def a_tile_of_rows_beside_a_block(x, y):
    out = torch.empty_like(x)
    for i, j in hl.tile(x.size()):
        out[i, j] = x[i, j] + y[i]
    return out


def a_tile_expanded_as_a_block(x, y):
    out = torch.empty_like(x)
    for i, j in hl.tile(x.size()):
        out[i, j] = x[i, j] * y[i].expand_as(x[i, j])
    return out


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (a_tile_of_rows_beside_a_block, r"\(j\) must match .*\(i\).*hint: .*value\[:, None\]"),
        (a_tile_expanded_as_a_block, r"expand.*i.*j"),
    ],
)
def test_extents_line_up_as_in_pytorch(function, message):
    """What Helion lines up by its tiles is refused with the names of the extents."""
    with pytest.raises(exc.TorchOpTracingError, match=f"(?s){message}"):
        hl.kernel(function, static_shapes=False)(torch.randn(10, 20), torch.randn(10))


def test_extents_that_happen_to_be_equal():
    def added(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t, :] = x[t, :] + y[t, :]
        return out

    def asserted(x, y):
        assert x.size() == y.size()
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t, :] = x[t, :] + y[t, :]
        return out

    x, y = torch.randn(10, 20), torch.randn(10, 20)
    for function in (added, asserted):
        kernel = hl.kernel(function, static_shapes=False)
        torch.testing.assert_close(kernel(x, y), x + y)
        with pytest.raises((exc.TorchOpTracingError, AssertionError)):
            kernel(x, torch.randn(10, 21))


def test_a_reshape_splits_an_open_size_by_half_of_another():
    @hl.kernel(static_shapes=False)
    def kernel(x, y):
        half = x.size(1) // 2
        out = torch.empty_like(y)
        for t in hl.tile(y.size(0)):
            first, second = hl.split(y[t, :].reshape([t, 2, half]).permute(0, 2, 1))
            out[t, :] = hl.join(second, first).permute(0, 2, 1).reshape([t, 2 * half])
        return out

    for n in (64, 32):
        x, y = torch.randn(3, n), torch.randn(5, n)
        torch.testing.assert_close(kernel(x, y), torch.cat([y[:, n // 2 :], y[:, : n // 2]], 1))
