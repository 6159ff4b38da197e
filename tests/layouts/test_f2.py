"""Bit matrices against dense numpy ones and against exhaustive search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.layouts.strategies import invertible, matrices
from tilewright.layouts import f2
from tilewright.layouts.f2 import LayoutError, Span


def span_of(vectors) -> set[int]:
    """Every sum of the vectors, by brute force."""
    found = {0}
    for vector in vectors:
        found |= {other ^ vector for other in found}
    return found


def dense(columns, rows) -> np.ndarray:
    return np.array([[column >> row & 1 for column in columns] for row in range(rows)]).reshape(rows, len(columns))


@given(matrices())
def test_rank_and_kernel(matrix):
    columns, _ = matrix
    assert 2 ** f2.rank(columns) == len(span_of(columns))
    kernel = f2.kernel(columns)
    mapped_to_zero = {x for x in range(1 << len(columns)) if f2.multiply(columns, x) == 0}
    assert span_of(kernel) == mapped_to_zero
    assert f2.rank(columns) + len(kernel) == len(columns)


@given(matrices(), st.data())
def test_products_are_those_of_numpy(matrix, data):
    columns, rows = matrix
    width = data.draw(st.integers(0, 6))
    inner = data.draw(st.lists(st.integers(0, (1 << len(columns)) - 1), min_size=width, max_size=width))
    expected = dense(columns, rows) @ dense(inner, len(columns)) % 2
    np.testing.assert_array_equal(dense(f2.matmul(columns, inner), rows), expected)
    np.testing.assert_array_equal(dense(f2.transpose(columns, rows), len(columns)), dense(columns, rows).T)


@given(matrices(), st.data())
def test_solve(matrix, data):
    columns, rows = matrix
    target = data.draw(st.integers(0, (1 << rows) - 1))
    solution = f2.solve(columns, target)
    assert (solution is not None) == (target in span_of(columns))
    if solution is not None:
        assert f2.multiply(columns, solution) == target


@given(matrices())
def test_generalized_inverse(matrix):
    columns, rows = matrix
    inverse = f2.generalized_inverse(columns, rows)
    assert f2.matmul(columns, f2.matmul(inverse, columns)) == list(columns)  # M G M = M
    assert f2.matmul(inverse, f2.matmul(columns, inverse)) == inverse  # G M G = G
    identity = [1 << i for i in range(rows)]
    if f2.rank(columns) == rows:
        assert f2.matmul(columns, inverse) == identity
    if f2.rank(columns) == len(columns):
        assert f2.matmul(inverse, columns) == [1 << i for i in range(len(columns))]


@given(st.randoms(use_true_random=False), st.integers(0, 8), st.integers(0, 20))
def test_inverse(rng, size, mixing):
    columns = invertible(rng, size, mixing)
    inverse, identity = f2.inverse(columns, size), [1 << i for i in range(size)]
    assert f2.matmul(columns, inverse) == identity == f2.matmul(inverse, columns)
    assert f2.inverse(inverse, size) == columns


@given(matrices())
def test_singular_matrices_have_no_inverse(matrix):
    columns, rows = matrix
    assume(len(columns) != rows or f2.rank(columns) < rows)
    with pytest.raises(LayoutError, match="no inverse"):
        f2.inverse(columns, rows)


@given(matrices(rows=st.just(6)), matrices(rows=st.just(6)))
def test_subspaces(first, second):
    a, b = first[0], second[0]
    assert span_of(f2.independent(a)) == span_of(a) and len(f2.independent(a)) == f2.rank(a)
    both = f2.intersection(a, b)
    assert span_of(both) == span_of(a) & span_of(b) and f2.rank(both) == len(both)
    extension = f2.complement(a, b)
    assert span_of([*a, *extension]) == span_of([*a, *b])
    assert f2.rank(a) + len(extension) == f2.rank([*a, *b])


@given(matrices(rows=st.just(6)), matrices(rows=st.just(6)))
def test_common_complement(first, second):
    size = min(f2.rank(first[0]), f2.rank(second[0]))
    a, b = f2.independent(first[0])[:size], f2.independent(second[0])[:size]
    found = f2.common_complement(a, b, [1 << i for i in range(6)])
    for side in (a, b):
        assert f2.rank([*side, *found]) == 6 == len(side) + len(found)


def test_common_complement_needs_one_dimension():
    with pytest.raises(LayoutError, match="dimensions 1 and 2"):
        f2.common_complement([1], [1, 2], [1, 2, 4])


@given(matrices(), st.integers(0, 255))
def test_least_and_largest_of_a_coset(matrix, vector):
    columns, rows = matrix
    vector &= (1 << rows) - 1
    span = Span(columns)
    coset = {vector ^ other for other in span_of(columns)}
    residue, members = span.reduce(vector)
    assert (residue, span.largest(vector)) == (min(coset), max(coset))
    assert residue ^ f2.multiply(columns, members) == vector


def test_span_keeps_count_of_dependent_vectors():
    span = Span([1, 1, 2])
    assert (span.rank, span.count) == (2, 3)
    assert span.reduce(3) == (0, 0b101)  # the second vector is never used
    assert all(vector in span for vector in range(4)) and 4 not in span
    assert [span.add(vector) for vector in (4, 7)] == [True, False]


def test_bits():
    for size in range(1 << 5):
        assert sum(1 << i for i in f2.bits(size)) == size
    assert list(itertools.chain.from_iterable(map(f2.bits, (0, 1, 6)))) == [0, 1, 2]
