"""The forms in which the kernels of `examples/hl` are called: sizes, strides, configurations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from tests.hl.gradients.examples import Sizes
from tilewright import errors, hl
from tilewright.hl.runtime.bound import BoundKernel

SIZES = (Sizes(37, 70, 19), Sizes(33, 65, 17), Sizes(64, 32, 16), Sizes(16, 129, 40), Sizes(2, 3, 100))
"""Tiles that are cut in every dimension, and tiles that are not."""
EMPTY = (Sizes(0, 7, 3), Sizes(5, 0, 3), Sizes(5, 7, 0))
_DRAWS, _DRAWS_OF_TILES = 20, 3  # of configurations until one fits; with certain tiles, which mostly do or do not
_NO_COLUMNS = {"softmax.softmax_by_hand", "gather.cross_entropy"}  # the largest of no elements
_NO_PARTS = {"jagged.jagged_sum", "jagged.jagged_mean", "jagged.jagged_softmax", "jagged.to_dense"}


def is_defined(name: str, sizes: Sizes) -> bool:
    """Whether PyTorch and the host code have a result for these sizes."""
    file = name.split(".")[0]
    if file == "attention":
        return 0 not in sizes  # reshape([-1, 0, ..]) says nothing of the first extent
    if sizes.m == 0 and name in ("gather.cross_entropy", "delta.delta_rule"):
        return False
    if sizes.k == 0 and (name in _NO_PARTS or file == "jagged"):
        return False
    return sizes.n > 0 or name not in _NO_COLUMNS


def is_viewed(name: str) -> bool:
    """Whether the host code takes a view of an argument, which has to be contiguous for that."""
    return name == "gather.cross_entropy"


def expanded(args: tuple[Any, ...], transposed: bool = False) -> tuple[Any, ...]:
    """Arguments whose tensors of floats have a stride of 0, or strides that go down the other way."""

    def change(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor) or not arg.is_floating_point() or not arg.numel():
            return arg
        if transposed:
            return arg.mT.contiguous().mT if arg.dim() > 1 else arg
        return arg[:1].expand(arg.shape)

    return tuple(map(change, args))


@contextmanager
def configured(kernel: hl.Kernel, rng: random.Random) -> Iterator[hl.Kernel]:
    """Inside, a kernel and those that are derived of it have random configurations, drawn at their first calls."""
    made = hl.kernel(kernel.fn, settings=kernel.settings)
    assert isinstance(made, hl.Kernel)

    def choose(bound: BoundKernel, args: Any) -> None:
        draws = _DRAWS_OF_TILES if bound.configs else _DRAWS
        for left in reversed(range(0 if bound.config is not None else draws)):
            config = dict(bound.config_spec.random(rng))
            if bound.configs:  # tiles that must be those of the forward pass
                config["block_sizes"] = bound.configs[0]["block_sizes"]
            try:
                bound.set_config(config)
                bound.precompile(config, args)
                return
            except errors.OutOfResources:  # a search leaves such a configuration out, too
                bound.config = None
                if not left:
                    raise

    with mock.patch.object(BoundKernel, "ensure_config_exists", choose):
        yield made


def in_a_random_configuration(kernel: hl.Kernel, rng: random.Random, check: Callable[[hl.Kernel], None]) -> None:
    """Check a kernel in a random configuration for which a GPU has room.

    A backward pass that must have the tiles of the forward pass has no room for some that fit there.

    Raises:
        OutOfResources: none of several has any.
    """
    for left in reversed(range(_DRAWS)):
        try:
            with configured(kernel, rng) as made:
                check(made)
            return
        except errors.OutOfResources:
            if not left:
                raise
