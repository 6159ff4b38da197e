"""Every kernel of `examples/hl`: differentiated in float64, and equal to autograd of eager PyTorch.

`python -m tests.hl.gradients.at_length` does more of each.
"""

from __future__ import annotations

import random

import pytest
import torch

from tests.hl.gradients.compare import check, gradcheck, gradients
from tests.hl.gradients.examples import CASES, EXAMPLES, NAMES, ORDERED, WITHOUT, Draw, Sizes, kernel, module
from tests.hl.gradients.forms import EMPTY, configured, expanded, is_defined, is_viewed
from tilewright import hl


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_eager_pytorch(name):
    where, example = CASES[name]
    check(kernel(where, wide=True), example.reference, *example.make(Draw(), Sizes(21, 37, 11)))


@pytest.mark.parametrize("name", [name for name in CASES if name != "delta.delta_rule"])
def test_gradients_are_quotients_of_small_differences(name):
    where, example = CASES[name]
    gradcheck(kernel(where, wide=True), example.make(Draw(), Sizes(5, 7, 3)))


@pytest.mark.parametrize("name", CASES)
def test_no_elements_and_one(name):
    where, example = CASES[name]
    for sizes in (*EMPTY, Sizes(1, 1, 1)):
        if is_defined(name, sizes):
            check(kernel(where, wide=True), example.reference, *example.make(Draw(), sizes))


@pytest.mark.parametrize("name", [name for name in CASES if not is_viewed(name) and name != "delta.delta_rule"])
def test_inputs_that_are_expanded_or_transposed(name):
    where, example = CASES[name]
    for form in (expanded, lambda args: expanded(args, transposed=True)):
        check(kernel(where, wide=True), example.reference, *form(example.make(Draw(), Sizes(5, 7, 3))))


@pytest.mark.parametrize("name", ["softmax.softmax_online", "gather.rope", "matmul.bmm", "attention.attention"])
def test_random_configurations_agree(name):
    where, example = CASES[name]
    for seed in range(2):
        with configured(kernel(where, wide=True), random.Random(seed)) as made:
            check(made, example.reference, *example.make(Draw(), Sizes(9, 13, 5)))


def test_every_kernel_is_in_one_of_the_tables():
    files = {name: module(name) for name in NAMES}
    kernels = {
        f"{name}.{key}"
        for name, file in files.items()
        for key, value in vars(file).items()
        if isinstance(value, hl.Kernel) and value.fn.__module__ == file.__name__
    }
    assert kernels == EXAMPLES.keys() | WITHOUT


@pytest.mark.parametrize("name", sorted(ORDERED))
def test_no_atomics_where_programs_can_own_elements(name):
    where, example = CASES[name]
    plans = hl.grad(kernel(where, wide=True)).plan(example.make(Draw(), Sizes(37, 70, 19)))
    assert {owner.form for plan in plans for owner in plan.owners} <= {"store", "add", "partial"}


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["norms.layer_norm", "attention.attention"])
def test_runs_give_the_same_bits(name):
    where, example = CASES[name]
    args = example.make(Draw(torch.float32), Sizes(150, 70, 16))
    first, *others = (gradients(kernel(where), args) for _ in range(4))
    assert all(torch.equal(one, other) for found in others for one, other in zip(first, found, strict=True))
