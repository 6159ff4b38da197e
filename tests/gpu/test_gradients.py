"""`tilewright.grad` on CUDA tensors: the kernels of tests/gradients against torch's gradients of the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tests.gradients import test_kernels

pytestmark = pytest.mark.gpu
CALLS: dict[str, tuple[Any, ...]] = {
    "test_add": (),
    "test_softmax": (),
    "test_layer_norm": (),
    "test_matmul": (torch.bfloat16,),
    "test_attention": (),
    "test_gather_of_repeated_rows": (),
    "test_scatter_by_atomic_additions": (),
    "test_loop_whose_history_is_wanted": (5,),
    "test_branches": (),
    "test_number": (),
    "test_what_is_overwritten_has_no_gradient": (),
    "test_shapes": (),
}


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    """Tensors are made on the GPU."""
    before = torch.get_default_device()
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(before)


@pytest.mark.parametrize("name", CALLS)
def test_gradient(name: str) -> None:
    getattr(test_kernels, name)(*CALLS[name])


def test_every_test_is_called() -> None:
    assert CALLS.keys() == {name for name in vars(test_kernels) if name.startswith("test_")}
