"""Arguments with `tma_desc_cpu_ptr`: tensor maps that the host writes, as programs of Triton 3.1 to 3.4 pass them."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError
from tilewright.runtime import driver

torch = pytest.importorskip("torch")


class KernelParam:
    """128 bytes of the host, written by the driver."""

    def __init__(self, tensor: Any, *block: int) -> None:
        self.memory = torch.zeros(128, dtype=torch.uint8)
        utils = driver.active.utils
        fill = utils.fill_1d_tma_descriptor if tensor.dim() == 1 else utils.fill_2d_tma_descriptor
        fill(tensor.data_ptr(), *tensor.shape, *block, tensor.element_size(), self.memory.data_ptr())

    def tma_desc_cpu_ptr(self) -> int:
        return int(self.memory.data_ptr())


@tilewright.jit
def doubled(source, drain, BM: tl.constexpr, BN: tl.constexpr, dtype: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    block = tl._experimental_descriptor_load(source, [row, column], [BM, BN], dtype)
    tl._experimental_descriptor_store(drain, block * 2, [row, column])


@tilewright.jit
def copied(source, target, B: tl.constexpr):
    i = tl.program_id(0) * B
    tl._experimental_descriptor_store(target, tl._experimental_descriptor_load(source, [i], [B], tl.int32), [i])


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(("dtype", "element"), [(torch.float16, tl.float16), (torch.float32, tl.float32)])
def test_blocks_move_by_maps_of_the_host(dtype: Any, element: Any, interpret: bool) -> None:
    x, out = torch.randn(40, 48).to(dtype), torch.zeros(40, 48, dtype=dtype)
    kernel = tilewright.jit(doubled.fn, interpret=interpret)
    for _ in range(3):
        out.zero_()
        kernel[(3, 2)](KernelParam(x, 16, 32), KernelParam(out, 16, 32), 16, 32, element)
        assert out.equal(x * 2)
    other = torch.randn(16, 48).to(dtype)
    kernel[(1, 2)](KernelParam(other, 16, 32), KernelParam(out, 16, 32), 16, 32, element)
    assert out[:16].equal(other * 2)


def test_rows_move_by_maps_of_the_host() -> None:
    x, out = torch.arange(100, dtype=torch.int32), torch.zeros(100, dtype=torch.int32)
    copied[(2,)](KernelParam(x, 64), KernelParam(out, 64), 64)
    assert out.equal(x)


def test_a_gpu_moves_them_with_its_copy_engine() -> None:
    x = torch.zeros(128, 128, dtype=torch.float16)
    kernel = doubled.warmup(
        KernelParam(x, 64, 64), KernelParam(x, 64, 64), 64, 64, tl.float16, grid=(1,), target="cuda:90"
    )
    assert "cp.async.bulk.tensor.2d" in kernel.asm["ptx"] and len(kernel.metadata["tensor_maps"]) == 2
    assert all("u16" == recipe["element"] for recipe in kernel.metadata["tensor_maps"])


def test_a_map_that_the_driver_encoded_is_refused_with_the_reason() -> None:
    param = KernelParam(torch.zeros(16, 16), 16, 16)
    param.memory.fill_(7)
    with pytest.raises(
        ArgumentError, match=r"`source` is a tensor map that CUDA's driver has encoded.*\n.*TensorDescriptor"
    ):
        doubled[(1,)](param, param, 16, 16, tl.float32)
