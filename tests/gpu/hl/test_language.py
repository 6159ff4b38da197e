"""Kernels of tests/hl on CUDA tensors: what they give on the CPU they give here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.hl import test_language, test_outside, test_random, test_text_for_a_gpu
from tilewright import hl

pytestmark = pytest.mark.gpu


def moved(tree: Any) -> Any:
    """Tensors of nested containers on the GPU."""
    if isinstance(tree, torch.Tensor):
        return tree.cuda()
    return type(tree)(map(moved, tree)) if isinstance(tree, list | tuple) else tree


def agree(kernel: Any, *args: Any, tolerance: float = 1e-5) -> None:
    ours, here = kernel(*args), kernel(*moved(args))
    for left, right in zip(*(made if isinstance(made, tuple) else (made,) for made in (ours, here)), strict=True):
        torch.testing.assert_close(left, right.cpu(), atol=tolerance, rtol=tolerance, equal_nan=True)


def test_functions_that_combine() -> None:
    agree(test_language.reductions, torch.randn(10, 37))


def test_text_of_the_block_language() -> None:
    agree(test_language.own_text, torch.randn(20))


def test_streams_of_random_numbers() -> None:
    agree(test_random.with_seed, torch.ones(40, 33), 5)


def test_functions_as_arguments() -> None:
    agree(test_outside.applied, torch.randn(20), lambda value, tile: torch.relu(value) * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32])
def test_extremes_carry_nan(dtype: torch.dtype) -> None:
    x = torch.randn(9, 5, 12).mul(100).to(dtype)
    if dtype.is_floating_point:
        x[2, 3, 4] = x[7, 0, 11] = float("nan")
    agree(hl.kernel(test_text_for_a_gpu.extremes, config=hl.Config(block_sizes=[4])), x)
