"""Mistakes in kernels: each error names the place, the axes, and what to write instead."""

from __future__ import annotations

import math

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc


def _raises(error, kernel, *args):
    with pytest.raises(error) as caught:
        kernel(*args)
    assert caught.value.location is not None and caught.value.location.file == __file__
    return str(caught.value)


def test_axes_that_do_not_broadcast_are_named():
    @hl.kernel
    def kernel(x, y):
        out = torch.empty_like(x)
        for tile_m, tile_n in hl.tile(x.shape):
            out[tile_m, tile_n] = x[tile_m, tile_n] + y[tile_m]
        return out

    text = _raises(exc.TorchOpTracingError, kernel, torch.randn(10, 30), torch.randn(10))
    assert "tensor a (tile_n) must match the size of tensor b (tile_m)" in text
    assert "x[tile_m, tile_n] + y[tile_m]\n" in text and "^" * 29 in text


def test_products_of_other_types():
    """PyTorch converts no operand of a product either."""

    @hl.kernel
    def kernel(x, y):
        out = torch.empty(x.size(0), y.size(1))
        for tile_m, tile_n in hl.tile(out.shape):
            acc = hl.zeros([tile_m, tile_n])
            for tile_k in hl.tile(x.size(1)):
                acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
            out[tile_m, tile_n] = acc
        return out

    text = _raises(exc.TorchOpTracingError, kernel, torch.randn(32, 64), torch.randn(64, 48).half())
    assert "float32[tile_m, tile_k] and float16[tile_k, tile_n]: the types" in text and "a.to(b.dtype)" in text


def test_a_size_that_leaks_through_c_code():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            row = x[tile]
            out[tile] = row / row.untyped_storage().nbytes()
        return out

    text = _raises(exc.LeakedSample, kernel, torch.randn(30))
    assert "row / row.untyped_storage().nbytes()" in text and "div(%0, 44)" in text


def test_a_size_used_as_a_number():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * math.log(tile.begin + 1)
        return out

    assert "hl.specialize" in _raises(exc.SizeUsedAsNumber, kernel, torch.randn(30))


def test_a_whole_host_tensor():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] + x
        return out

    assert "x[tile]" in _raises(exc.HostTensorDirectUsage, kernel, torch.randn(30))


def test_a_host_variable_assigned_in_a_loop():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            x = out[tile]
        return out

    assert "x is a variable of the host" in _raises(exc.CannotModifyHostVariableOnDevice, kernel, torch.randn(30))


def test_a_loop_variable_read_on_the_host():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            y = x[tile] * 2
            out[tile] = y
        return y

    assert "y exists only inside the loop" in _raises(exc.CannotReadDeviceVariableOnHost, kernel, torch.randn(30))


def test_a_variable_that_changes_its_type_in_a_loop():
    @hl.kernel
    def kernel(x):
        out = torch.empty([x.size(0)])
        for tile_m in hl.tile(x.size(0)):
            total = hl.zeros([tile_m], dtype=torch.int32)
            for tile_n in hl.tile(x.size(1)):
                total = total + x[tile_m, tile_n].sum(-1)
            out[tile_m] = total
        return out

    text = _raises(exc.ControlFlowTensorMismatch, kernel, torch.randn(30, 30))
    assert "int32[tile_m] before the loop" in text and "float32[tile_m] after" in text


def test_no_loop():
    @hl.kernel
    def kernel(x):
        return x * 2

    assert "hl.tile" in _raises(exc.NoDeviceLoopsInKernel, kernel, torch.randn(3))


def test_an_unknown_operation():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = torch.nonzero(x[tile])
        return out

    assert "nonzero" in _raises(exc.UnsupportedOperation, kernel, torch.randn(3))


def test_a_function_of_tiles_on_the_host():
    @hl.kernel
    def kernel(x):
        y = hl.zeros([4])
        return y

    assert "inside a loop" in _raises(exc.DeviceAPIOnHost, kernel, torch.randn(3))


def test_outside_a_kernel():
    with pytest.raises(exc.NotInsideKernel):
        hl.zeros([3])


def test_no_tensor():
    @hl.kernel
    def kernel(n):
        for tile in hl.tile(n):
            pass

    with pytest.raises(exc.NoTensorArgs):
        kernel(3)


def test_a_wrong_number_of_block_sizes():
    @hl.kernel(config=hl.Config(block_sizes=[4, 4]))
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile]
        return out

    with pytest.raises(exc.InvalidConfig, match="2 entries, and the kernel has 1"):
        kernel(torch.randn(3))
