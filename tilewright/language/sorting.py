"""Sorting networks in the block language: `sort`, `topk`, `bitonic_merge`.

A bitonic network compares each element with a partner whose index differs in one bit (Batcher, 1968). The
partner is fetched with `gather`; both ends of a pair take the same decision, so elements are only permuted.
Types narrower than 32 bits are compared, and exchanged, as 32-bit ones: widening keeps the order, shuffles move
registers of 32 bits, and half floats would be widened for each of the comparisons.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.language.annotations import constexpr
from tilewright.language.library import constexpr_function, library
from tilewright.language.standard import int_log2, last_axis, positions
from tilewright.ops.control import static_range
from tilewright.ops.functions.debug import static_assert
from tilewright.ops.functions.operators import where
from tilewright.ops.functions.shape import reshape
from tilewright.ops.gather import gather
from tilewright.ops.reduce import reduce
from tilewright.ops.values import Element, Flag, Size, tensor, tuple


@constexpr_function
def split_last(shape: tuple, size: Size) -> Any:
    """`shape` with its last dimension cut into blocks of `size`."""
    return [*shape[:-1], shape[-1] // size, size]


@constexpr_function
def pair_blocks(shape: tuple) -> Any:
    """Shape [.., n, k] with neighbouring blocks paired: [.., n / 2, 2, k]."""
    return [*shape[:-2], shape[-2] // 2, 2, shape[-1]]


@constexpr_function
def drop_block(shape: tuple) -> Any:
    """Shape [.., 1, k] without its block dimension."""
    return [*shape[:-2], shape[-1]]


@constexpr_function
def _work_type(element: Element) -> Any:
    """The type of at least 32 bits that numbers of `element` are ordered in."""
    if element.primitive_bitwidth >= 32:
        return element
    return dtypes.float32 if element.is_floating() else dtypes.int32


@library
def _exchange(x: tensor, index: tensor, bit: Size, descending: Flag) -> Any:
    """Order each pair of elements whose last index differs in `bit`; `descending` is a flag or a tile of them."""
    partner = gather(x, index ^ (1 << bit), len(x.shape) - 1)
    is_upper = (index & (1 << bit)) != 0
    lower = where(is_upper, partner, x)
    upper = where(is_upper, x, partner)
    swap = (lower > upper) ^ descending
    return where(swap, partner, x)


@library
def _merge(x: tensor, index: tensor, stage: Size, descending: Flag) -> Any:
    """Order runs of 2 ** `stage` elements, each of which rises and then falls (or the reverse)."""
    for step in static_range(stage):
        x = _exchange(x, index, stage - 1 - step, descending)
    return x


@library
def _sort_runs(x: tensor, index: tensor, stages: Size) -> Any:
    """Order runs of 2 ** `stages` elements, in turn rising and falling."""
    for stage in static_range(1, stages + 1):
        x = _merge(x, index, stage, (index & (1 << stage)) != 0)
    return x


@library
def _larger(a: tensor, b: tensor) -> Any:
    return where(a > b, a, b)


@library
def _smaller(a: tensor, b: tensor) -> Any:
    return where(a < b, a, b)


@library
def sort(x: tensor, dim: Size | None = None, descending: Flag = False) -> Any:
    """Elements in order along the last dimension.

    Args:
        x: tile of numbers; the place of NaN is undefined.
        dim: must be the last dimension, or `None`.
        descending: largest first.
    """
    static_assert(last_axis(len(x.shape), dim), "only minor dimension is currently supported")
    stages: constexpr = int_log2(x.shape[-1])
    if stages == 0:
        return x
    else:
        index = positions(x, len(x.shape) - 1)
        runs = _sort_runs(x.to(_work_type(x.dtype)), index, int_log2(x.shape[-1]) - 1)
        return _merge(runs, index, stages, descending != 0).to(x.dtype)


@library
def bitonic_merge(x: tensor, dim: Size | None = None, descending: Flag = False) -> Any:
    """Order a last dimension that rises and then falls, or falls and then rises.

    Args:
        x: tile of numbers.
        dim: must be the last dimension, or `None`.
        descending: largest first.
    """
    static_assert(last_axis(len(x.shape), dim), "only minor dimension is currently supported")
    wide = x.to(_work_type(x.dtype))
    return _merge(wide, positions(x, len(x.shape) - 1), int_log2(x.shape[-1]), descending != 0).to(x.dtype)


@library
def _best_of_pairs(x: tensor, descending: Flag) -> Any:
    """Of two neighbouring blocks, one rising and one falling, the better half as one bitonic block."""
    pairs = reshape(x, pair_blocks(x.shape))
    if descending:
        return reduce(pairs, len(pairs.shape) - 2, _larger)
    else:
        return reduce(pairs, len(pairs.shape) - 2, _smaller)


@library
def topk(x: tensor, k: Size, dim: Size | None = None, descending: Flag = True) -> Any:
    """The `k` largest elements along the last dimension, in order; the smallest without `descending`.

    Args:
        x: tile of numbers; the place of NaN is undefined.
        k: power of two, at most the size of the dimension.
        dim: must be the last dimension, or `None`.
        descending: largest first.
    """
    static_assert(last_axis(len(x.shape), dim), "only minor dimension is currently supported")
    static_assert(k <= x.shape[-1], "k must not be larger than the dimension")
    size: constexpr = int_log2(k)
    rounds: constexpr = int_log2(x.shape[-1]) - size
    last_round: constexpr = int_log2(x.shape[-1]) - size - 1
    wide = x.to(_work_type(x.dtype))
    runs = wide if size == 0 else _sort_runs(wide, positions(x, len(x.shape) - 1), size)
    y = reshape(runs, split_last(runs.shape, k))
    for round in static_range(rounds):
        y = _best_of_pairs(y, descending)
        if round < last_round:
            falling = (positions(y, len(y.shape) - 2) & 1) != 0
            y = _merge(y, positions(y, len(y.shape) - 1), size, falling)
    z = reshape(y, drop_block(y.shape))
    return _merge(z, positions(z, len(z.shape) - 1), size, descending != 0).to(x.dtype)
