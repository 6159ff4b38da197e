"""Loads through pointers that become copies of boxes: which ones, and that what they bring is what the pointers say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import box_kernels as kernels
from tests.backends.nvidia.box_kernels import TILES, operands
from tests.backends.nvidia.descriptor_kernels import Described
from tilewright.backends.nvidia.device import tensormap
from tilewright.backends.nvidia.tgir.ops import AsyncCopyOp, MemDescIndexOp, TmaLoadOp


def run(kernel: Any, args: list[Any], grid: tuple[int, ...], **constants: Any) -> Described:
    made = Described(kernel, args, tensor_maps=True, **{**TILES, **constants})
    made.run(grid)
    return made


def copies(made: Described) -> tuple[int, int]:
    """How many loads of loops the engine makes, and how many threads make."""
    found: dict[type, set[Any]] = {TmaLoadOp: set(), AsyncCopyOp: set()}
    for op in made.whole.module.walk():
        if isinstance(op, TmaLoadOp | AsyncCopyOp):
            buffer = op.dst.owner
            found[type(op)].add(buffer.operands[0] if isinstance(buffer, MemDescIndexOp) else op.dst)
    return len(found[TmaLoadOp]), len(found[AsyncCopyOp])


def check(a: Any, b: Any, c: Any) -> None:
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("mask", [0, 1, 2])
def test_a_product(mask: int, wide: bool) -> None:
    m, n, k = [(128, 128, 64), (96, 80, 64), (96, 80, 48)][mask]
    a, b, c = operands(m, n, k)
    made = run(kernels.product, [a, b, c, m, n, k, k, 1, n, 1, n], (-(-m // 64), -(-n // 64)), MASK=mask, WIDE=wide)
    check(a, b, c)
    assert copies(made) == ((0, 2) if wide and not mask else (2, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16])
def test_types(dtype: Any) -> None:
    """tf32 and 8 bits are multiplied turned over, B read as fragments from where the engine puts it."""
    accumulator = {"ACC": kernels.tl.int32} if dtype is np.int8 else {}
    a, b, c = operands(70, 96, 80, np.float16 if dtype is np.uint16 else dtype, np.int32 if accumulator else np.float32)
    made = run(
        kernels.product, [a, b, c, 70, 96, 80, 80, 1, 96, 1, 96], (2, 2), **accumulator, BK=64 if accumulator else 32
    )
    check(a, b, c)
    assert copies(made) == (2, 0)
    rounded = [recipe["round_to_tf32"] for recipe in made.whole.lowered().tensor_maps]
    assert rounded == [dtype is np.float32] * 2


def test_rows_that_are_columns() -> None:
    """The dim of a tile that is contiguous in memory may be either."""
    a, b, c = operands(80, 72, 64)
    left, right = a.T.copy(), kernels.aligned(72, 64)
    right[:] = b.T
    aligned = kernels.aligned(64, 80)
    aligned[:] = left
    made = run(kernels.product, [aligned, right, c, 80, 72, 64, 1, 80, 1, 64, 72], (2, 2))
    check(a, b, c)
    assert copies(made) == (2, 0)


def test_batches() -> None:
    z, m, n, k = 2, 80, 72, 48
    a, b, c = kernels.aligned(z * m, k), kernels.aligned(z * n, k), kernels.aligned(z * m, n, np.float32)
    random = np.random.default_rng(1)
    for array in (a, b):
        array[:] = random.integers(-3, 4, array.shape)
    made = run(kernels.batched, [a, b, c, m, n, k, m * k, k, n * k, k, m * n, n], (2, 2, z))
    for i in range(z):
        check(a[i * m : (i + 1) * m], b[i * n : (i + 1) * n].T, c[i * m : (i + 1) * m])
    assert copies(made) == (2, 0)
    assert [recipe["box"] for recipe in made.whole.lowered().tensor_maps] == [[1, 64, 32]] * 2


def test_strides_that_are_numbers() -> None:
    a, b, c = operands(100, 64, 96)
    made = run(kernels.of_numbers, [a, b, c, 100], (2,), N=64, K=96)
    check(a, b, c)
    assert copies(made) == (2, 0)


@pytest.mark.parametrize("warps", [4, 8])
def test_tiles_in_a_loop(warps: int) -> None:
    """With eight warps and enough to copy, roles divide such loops, as they do those of descriptors."""
    a, b, c = operands(150, 144, 80)
    made = Described(
        kernels.persistent, [a, b, c, 150, 144, 80, 4], tensor_maps=True, num_warps=warps, BM=128, BN=128, BK=64
    )
    made.run((3,))
    check(a, b, c)
    assert bool(made.roles) is (warps == 8)


@pytest.mark.parametrize("used", [False, True])
def test_rows_that_wrap(used: bool) -> None:
    """They are zeros behind the last one, as long as nobody stores what is made of them."""
    a, b, c = operands(80, 96, 64)
    if used:
        c = kernels.aligned(128, 128, np.float32)
    made = run(kernels.wrapped, [a, b, c, 80, 96, 64], (2, 2), ALL=used)
    exact = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(c, exact[np.arange(128) % 80][:, np.arange(128) % 96] if used else exact)
    assert copies(made) == ((0, 2) if used else (2, 0))


def test_rows_that_wrap_and_are_added() -> None:
    """Atomics ask for rows as stores do."""
    a, b, _ = operands(80, 96, 64)
    c = kernels.aligned(80, 96, np.float32)
    c[:] = 1
    made = run(kernels.wrapped_and_added, [a, b, c, 80, 96, 64], (2, 2))
    check(a, b, c - 1)
    assert copies(made) == (2, 0)


def test_rows_that_wrap_before_they_are_summed() -> None:
    """A sum of a row is of that row; a column of B is in all sums."""
    a, b, _ = operands(80, 64, 64)
    c = kernels.aligned(80, 1, np.float32)
    made = run(kernels.wrapped_sums, [a, b, c, 80, 64, 64], (2,))
    np.testing.assert_array_equal(c[:, 0], (a.astype(np.float32) @ b.astype(np.float32)).sum(1))
    assert copies(made) == (1, 1)


def test_offsets_that_planners_make() -> None:
    """With 64 bits, of what loops carry; they go as far as the loop does."""
    a, b, c = operands(128, 64, 112)
    made = run(kernels.ahead, [a, b, c, 128, 64, 112], (2, 1))
    check(a, b, c)
    assert copies(made) == (2, 0)


def test_rows_that_wrap_behind_an_offset() -> None:
    """Columns of B would end at no parameter; of rows of A, which no mask ends, 8 more may be too many."""
    a, b, c = operands(80, 96, 64)
    left, right = kernels.aligned(81, 64), kernels.aligned(65, 96)
    left.reshape(-1)[8 : 8 + a.size], right.reshape(-1)[8 : 8 + b.size] = a.reshape(-1), b.reshape(-1)
    made = run(kernels.wrapped, [left, right, c, 80, 96, 64], (2, 2), FIRST=8)
    check(a, b, c)
    assert copies(made) == (0, 2)


def test_parameters_that_must_not_be_negative() -> None:
    a, b, c = operands(64, 64, 64)
    made = run(kernels.shifted, [a, b, c, 64, 64, 64, 0], (1, 1))
    check(a, b, c)
    recipes = made.whole.lowered().tensor_maps
    assert [recipe["natural"] for recipe in recipes] == [[6], []]
    values = [a.ctypes.data, b.ctypes.data, c.ctypes.data, 64, 64, 64, 0]
    assert tensormap.suits(recipes, values) and not tensormap.suits(recipes, [*values[:-1], -1])


@pytest.mark.parametrize("depth", [64, 192, 112, 48])
@pytest.mark.parametrize(("way", "own"), [(0, False), (0, True), (1, False), (1, True), (2, True)])
def test_loops_that_count_down(way: int, own: bool, depth: int) -> None:
    """K is the stride of rows of A, whose places may be taken for those of the next row."""
    a, b, c = operands(64, 64, depth)
    made = run(kernels.downwards, [a, b, c, 64, 64, depth, depth, 64], (1, 1), WAY=way, OWN=own)
    blocks = depth if way == 2 else depth // TILES["BK"] * TILES["BK"]  # the others leave out what is no whole block
    check(a[:, depth - blocks :], b[depth - blocks :], c)
    assert copies(made) == (2, 0)


def test_strides_of_descriptors_are_multiples_of_16_bytes() -> None:
    """As a program has to make them; the launch looks whether they are, where they are none of 16 elements."""
    a, b, c = operands(96, 88, 72)
    made = run(kernels.described, [a, b, c, 96, 88, 72], (2, 2))
    check(a, b, c)
    assert copies(made) == (2, 0)
    recipes = made.whole.lowered().tensor_maps
    assert tensormap.suits(recipes, [0, 0, 0, 96, 88, 72])
    assert not tensormap.suits(recipes, [0, 0, 0, 96, 88, 73]) and not tensormap.suits(recipes, [0, 0, 0, 96, 89, 72])
    assert copies(run(kernels.product, [a, b, c, 96, 88, 72, 72, 1, 88, 1, 88], (2, 2))) == (0, 0)


def test_pointers_that_go_further_in_each_iteration() -> None:
    a, b, c = operands(64, 64, 128)
    made = run(kernels.growing, [a, b, c, 64, 64, 128, 3], (1, 1))
    taken = np.r_[0:64, 96:128]  # blocks 0, 1 and 3
    check(a[:, taken], b[taken], c)
    assert copies(made) == (0, 2)


REFUSED = {
    "other": (kernels.product, {"OTHER": 1}, 11, "a copy puts zeros where the mask is off"),
    "backwards": (kernels.backwards, {}, 6, "may be negative"),
    "nested": (kernels.nested, {}, 6, "not known to fit 32 bits"),
    "far": (kernels.far, {}, 7, "not known to fit 32 bits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_with_pointers(name: str) -> None:
    kernel, constants, count, why = REFUSED[name]
    a, b, c = operands(64, 64, 64)
    args = [a, b, c, 64, 64, 64, *([64, 1, 64, 1, 64] if count == 11 else [2] * (count - 6))]
    made = run(kernel, args, (1, 1), **constants)
    check(a, b, c) if name != "other" else None
    assert any(why in text for text in made.refusals("copy engine")), made.refusals("copy engine")
