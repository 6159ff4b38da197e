"""Gradients of the kernels of `examples/hl` on CUDA tensors against autograd of eager PyTorch there: as the files have
them, in float64 where nothing is multiplied, and in a random configuration."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch

from tests.gpu.hl.test_language import moved
from tests.hl.gradients.compare import check, gradients
from tests.hl.gradients.examples import CASES, ORDERED, Draw, Sizes, kernel
from tests.hl.gradients.forms import in_a_random_configuration
from tilewright import hl

pytestmark = pytest.mark.gpu
SIZES = Sizes(70, 100, 40)
PRODUCTS = {"attention", "grouped", "matmul"}  # tf32 operands have 10 bits


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    """Tensors are made on the GPU unless a program says otherwise."""
    before = torch.get_default_device()
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(before)


def multiplies(name: str) -> bool:
    """Whether a kernel multiplies matrices."""
    return name.split(".")[0] in PRODUCTS or name == "jagged.jagged_dense"


@pytest.mark.parametrize("name", CASES)
def test_example(name: str) -> None:
    where, example = CASES[name]
    args, tolerance = moved(example.make(Draw(torch.float32), SIZES)), 3e-2 if multiplies(name) else 1e-4
    check(kernel(where), example.reference, *args, tolerance=tolerance)
    if not multiplies(name):
        check(kernel(where, wide=True), example.reference, *moved(example.make(Draw(), SIZES)))


@pytest.mark.parametrize("name", [name for name in CASES if name != "delta.delta_rule"])
def test_random_configuration(name: str) -> None:
    where, example = CASES[name]
    args, tolerance = moved(example.make(Draw(torch.float32), SIZES)), 3e-2 if multiplies(name) else 1e-4

    def agrees(made: hl.Kernel) -> None:
        check(made, example.reference, *args, tolerance=tolerance)

    in_a_random_configuration(kernel(where), random.Random(name), agrees)


@pytest.mark.parametrize("name", sorted(ORDERED))
def test_runs_give_the_same_bits(name: str) -> None:
    where, example = CASES[name]
    args = moved(example.make(Draw(torch.float32), Sizes(300, 100, 64)))
    first, *others = (gradients(kernel(where), args) for _ in range(3))
    assert all(torch.equal(one, other) for found in others for one, other in zip(first, found, strict=True))
