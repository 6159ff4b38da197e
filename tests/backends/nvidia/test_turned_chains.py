"""Chains of products turned over, operands that stay, and loops divided where masks end: meaning, and code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import gradient_kernels as kernels
from tests.backends.nvidia.descriptor_kernels import Described
from tests.backends.nvidia.laying import ops
from tilewright.backends.nvidia.plan.subjects import TURNED

Array = np.ndarray[Any, Any]
WIDTH = 64


class Case:
    """Inputs of a gradient of attention of one head, and what it is in float64.

    Args:
        fn: a kernel of `gradient_kernels`.
        length: queries and keys that the loop reaches; there is one block at least.
        causal: whether a query sees the keys up to its own only.
        blocks: of queries and keys.
        width: of a head.
        options: of the compilation.
    """

    def __init__(
        self,
        fn: Any,
        length: int,
        *,
        causal: bool = False,
        blocks: tuple[int, int] = (64, 64),
        width: int = WIDTH,
        **options: Any,
    ) -> None:
        rng, held = np.random.default_rng(length), max(length, *blocks)
        self.q, self.k, self.v, self.g = (
            (rng.standard_normal((held, width)) * 0.3).astype(np.float16) for _ in range(4)
        )
        self.less = rng.standard_normal(held).astype(np.float32)
        q, k, v, g = (x.astype(np.float64) for x in (self.q, self.k, self.v, self.g))
        scores = q @ k.T
        if causal:
            scores = np.where(np.arange(held)[:, None] >= np.arange(held), scores, -np.inf)
        self.most = scores.max(1).astype(np.float32)
        shares = np.exp2(scores - self.most[:, None])
        parts = (g @ v.T - self.less[:, None]) * shares
        shares, parts = (x.astype(np.float16).astype(np.float64) * (length > 0) for x in (shares, parts))
        self.made = [np.full((held, width), 9, np.float32) for _ in range(2 if fn is kernels.of_keys else 1)]
        self.expected = [parts.T @ q, shares.T @ g] if fn is kernels.of_keys else [parts @ k]
        self.grid = (held // blocks[fn is kernels.of_keys], 1)
        given = [self.q, self.k, self.v, self.g, self.most, self.less, *self.made, length]
        m, n = blocks
        self.whole = Described(fn, given, CAUSAL=causal, M=m, N=n, WIDTH=width, **{"num_stages": 2, **options})

    def check(self) -> None:
        """Run it, and compare."""
        self.whole.run(self.grid)
        for made, expected in zip(self.made, self.expected, strict=True):
            np.testing.assert_allclose(made, expected, rtol=2e-3, atol=2e-3 * max(1, np.abs(expected).max()))

    def count(self, name: str) -> int:
        """How many operations of a name there are."""
        return len(ops(self.whole.whole.module, name))


@pytest.mark.parametrize(("length", "boxes"), [(0, True), (128, True), (192, False)])
def test_of_keys(length: int, boxes: bool) -> None:
    Case(kernels.of_keys, length, tensor_maps=boxes).check()


@pytest.mark.parametrize(
    ("fn", "length", "blocks"),
    [(kernels.of_keys, 192, (64, 64)), (kernels.of_keys, 256, (64, 128)), (kernels.of_queries, 192, (64, 64))],
)
def test_causal(fn: Any, length: int, blocks: tuple[int, int]) -> None:
    """Blocks of keys of which some see no mask, all but one, or two."""
    case = Case(fn, length, causal=True, blocks=blocks, tensor_maps=True)
    assert case.count("scf.for") == 2
    case.check()


def test_nothing_of_the_loop_goes_through_shared_memory() -> None:
    case = Case(kernels.of_keys, 192, tensor_maps=True)
    (loop,) = ops(case.whole.whole.module, "scf.for")
    inside = [op.name for op in loop.walk()]
    assert "ttg.convert_layout" not in inside and "ttg.local_alloc" not in inside
    assert inside.count("ttng.async_tma_copy_global_to_local") <= 4  # keys and values stay
    assert inside.count("ttg.barrier") == 1


def test_two_views_of_one_buffer() -> None:
    """Keys are operand B of both products of a loop over keys, as they are and transposed."""
    case = Case(kernels.of_queries, 128, tensor_maps=True)
    (loop,) = ops(case.whole.whole.module, "scf.for")
    assert not any(op.name in ("ttg.local_load", "ttg.local_alloc") for op in loop.walk())
    case.check()


def test_eight_warps() -> None:
    Case(kernels.of_keys, 128, blocks=(64, 128), num_warps=8, tensor_maps=True).check()


def test_what_others_read_stays() -> None:
    rng = np.random.default_rng(3)
    q, k, v = ((rng.standard_normal((128, WIDTH)) * 0.3).astype(np.float16) for _ in range(3))
    out, sums = np.zeros((128, WIDTH), np.float32), np.zeros(128, np.float32)
    made = Described(kernels.read_otherwise, [q, k, v, out, sums, 128], M=64, N=64, WIDTH=WIDTH)
    assert len(made.refusals(TURNED.name)) == 1
    made.run((2, 1))
    shares = np.exp2(q.astype(np.float64) @ k.astype(np.float64).T)
    np.testing.assert_allclose(sums, shares.sum(0), rtol=2e-3)
    np.testing.assert_allclose(out, shares.T @ v.astype(np.float64), rtol=5e-3, atol=5e-2)
