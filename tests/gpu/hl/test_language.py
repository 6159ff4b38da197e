"""Kernels of tests/hl on CUDA tensors: what they give on the CPU they give here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.hl import test_language, test_outside, test_random

pytestmark = pytest.mark.gpu


def moved(tree: Any) -> Any:
    """Tensors of nested containers on the GPU."""
    if isinstance(tree, torch.Tensor):
        return tree.cuda()
    return type(tree)(map(moved, tree)) if isinstance(tree, list | tuple) else tree


def agree(kernel: Any, *args: Any, tolerance: float = 1e-5) -> None:
    ours, here = kernel(*args), kernel(*moved(args))
    for left, right in zip(*(made if isinstance(made, tuple) else (made,) for made in (ours, here)), strict=True):
        torch.testing.assert_close(left, right.cpu(), atol=tolerance, rtol=tolerance)


def test_functions_that_combine() -> None:
    agree(test_language.reductions, torch.randn(10, 37))


def test_text_of_the_block_language() -> None:
    agree(test_language.own_text, torch.randn(20))


def test_streams_of_random_numbers() -> None:
    agree(test_random.with_seed, torch.ones(40, 33), 5)


def test_functions_as_arguments() -> None:
    agree(test_outside.applied, torch.randn(20), lambda value, tile: torch.relu(value) * 2)
