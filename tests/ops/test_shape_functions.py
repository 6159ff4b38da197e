"""User functions that change shapes, run through the front end and compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.errors import CompilationError
from tilewright.language.library import library

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(8)
M, N = 4, 8


def pair_kernel(x, y, out, F: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + tl.arange(0, K), tl.ravel(F(tl.load(x + i), tl.load(y + i))))


@library
def transposed(x, y):
    return tl.trans(x)


@library
def transposed_property(x, y):
    return x.T


@library
def permuted(x, y):
    return tl.permute(tl.reshape(x, (M_, 2, N_ // 2)), 2, 0, 1)


@library
def transposed_three(x, y):
    return tl.trans(tl.reshape(x, M_, 2, N_ // 2))


@library
def reshaped(x, y):
    return x.reshape(2, -(-M_ * N_ // 2))


@library
def joined(x, y):
    return tl.join(x, y)


@library
def split_sum(x, y):
    a, b = tl.split(tl.reshape(x, M_, N_ // 2, 2))
    return a * 2 + b


@library
def interleaved(x, y):
    return tl.interleave(x, y)


@library
def concatenated_rows(x, y):
    return tl.cat(x, y)


@library
def concatenated_columns(x, y):
    return tl.cat(x, y, dim=1)


@library
def repeated(x, y):
    return tl.broadcast_to(tl.sum(x, 1, keep_dims=True), M_, N_)


@library
def expanded(x, y):
    return tl.expand_dims(x, (0, 3)) + tl.unsqueeze(tl.unsqueeze(y, -1), 0)


@library
def squeezed(x, y):
    return tl.squeeze(tl.expand_dims(x, 1), 1) + tl.squeeze(y[None, :, :], 0)


@library
def both(x, y):
    a, b = tl.broadcast(tl.sum(x, 0, keep_dims=True), y)
    return a + b


@library
def only_one(x, y):
    return x + tl.full((1,), 3.0, tl.float32).item()


M_, N_ = tl.constexpr(M), tl.constexpr(N)


def _interleave(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([x, y], -1).reshape(M, 2 * N)


CASES: list[tuple[Any, Any]] = [
    (transposed, lambda x, y: x.T),
    (transposed_property, lambda x, y: x.T),
    (permuted, lambda x, y: x.reshape(M, 2, N // 2).transpose(2, 0, 1)),
    (transposed_three, lambda x, y: x.reshape(M, 2, N // 2).transpose(0, 2, 1)),
    (reshaped, lambda x, y: x),
    (joined, lambda x, y: np.stack([x, y], -1)),
    (split_sum, lambda x, y: x[:, ::2] * 2 + x[:, 1::2]),
    (interleaved, _interleave),
    (concatenated_rows, lambda x, y: np.concatenate([x, y])),
    (concatenated_columns, lambda x, y: np.concatenate([x, y], 1)),
    (repeated, lambda x, y: np.broadcast_to(x.sum(1, keepdims=True), (M, N))),
    (expanded, lambda x, y: x + y),
    (squeezed, lambda x, y: x + y),
    (both, lambda x, y: x.sum(0, keepdims=True) + y),
    (only_one, lambda x, y: x + 3),
]


@pytest.mark.parametrize(("function", "wanted"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_functions_agree_with_numpy(function: Any, wanted: Any) -> None:
    x, y = RNG.integers(-99, 99, (2, M, N)).astype(np.float32)
    expected = np.ascontiguousarray(wanted(x, y)).ravel()
    out = np.zeros(expected.size, np.float32)
    run(pair_kernel, x, y, out, F=function, M=M, N=N, K=expected.size)
    np.testing.assert_array_equal(out, expected)


def reorder_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + tl.arange(0, 2 * N), tl.cat(v, v + 100, can_reorder=True))
    tl.store(out + 2 * N + i, tl.ravel(tl.view(v, 2, N // 2)))


def test_reordering_functions_keep_the_elements() -> None:
    x, out = np.arange(8, dtype=np.int32), np.zeros(24, np.int32)
    with pytest.warns(UserWarning, match="view is deprecated"):
        run(reorder_kernel, x, out, N=8)
    assert sorted(out[:16].tolist()) == [*range(8), *range(100, 108)]
    assert sorted(out[16:].tolist()) == list(range(8))


def scalar_kernel(out):
    pair = tl.join(tl.program_id(0) + 5, 7)
    a, b = tl.split(pair)
    tl.static_assert(len(a.shape) == 0)
    tl.store(out, a * 10 + b)
    tl.store(out + 1 + tl.arange(0, 2), pair)
    tl.store(out + 3, tl.reshape(tl.full((1, 1), 9, tl.int32), ()))
    tl.store(out + 4 + tl.arange(0, 1), tl.expand_dims(tl.program_id(0) + 4, 0))


def test_scalars_join_to_two_elements_and_split_again() -> None:
    out = np.zeros(5, np.int32)
    run(scalar_kernel, out)
    assert out.tolist() == [57, 5, 7, 9, 4]


def bad_kernel(out, F: tl.constexpr):
    F(tl.zeros((4, 8), tl.float32))
    tl.store(out, 0)


@library
def wrong_count(x):
    return tl.reshape(x, 4, 4)


@library
def not_two(x):
    return tl.split(x)


@library
def not_a_permutation(x):
    return tl.permute(x, 0, 0)


@library
def wrong_rank(x):
    return tl.permute(x, 0, 1, 2)


@library
def one_dimension(x):
    return tl.trans(tl.ravel(x))


@library
def duplicate_axes(x):
    return tl.expand_dims(x, (0, -4))


@library
def not_constant(x):
    return tl.reshape(x, tl.program_id(0), 8)


@library
def not_positive(x):
    return tl.broadcast_to(x, 0, 8)


@library
def no_broadcast(x):
    return tl.broadcast_to(x, 8, 8)


@library
def different_shapes(x):
    return tl.cat(x, tl.trans(x))


@library
def not_one(x):
    return tl.item(x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (wrong_count, "cannot change total number of elements"),
        (not_two, "last dimension of size 2"),
        (not_a_permutation, "permutation of 0, 1"),
        (wrong_rank, "same length as shape"),
        (one_dimension, "1-dimensional"),
        (duplicate_axes, "duplicate axes"),
        (not_constant, "Shape element 0 must have type `constexpr"),
        (not_positive, "Shape element 0 must be positive"),
        (no_broadcast, "Cannot broadcast"),
        (different_shapes, "same shape"),
        (not_one, "one element"),
    ],
)
def test_mistakes(function: Any, message: str) -> None:
    with pytest.raises(CompilationError) as error:
        build(bad_kernel, np.zeros(1, np.int32), F=function)
    assert message in str(error.value)
