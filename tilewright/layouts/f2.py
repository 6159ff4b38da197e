"""Linear algebra over the field of two elements, on bit matrices.

A vector is an int (bit i is component i). A matrix is a sequence of columns, so that column j is the image of
the unit vector ``1 << j`` and a product is an exclusive or. Gaussian elimination is done by `Span`, which remembers
how each reduced vector was made; the rest of the file is a few lines each on top of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.base.errors import InternalError


class LayoutError(InternalError, ValueError):
    """Layouts were combined in a way that has no meaning (sizes, names, or a map without an inverse)."""


class Span:
    """The span of a growing list of vectors, in echelon form.

    Args:
        vectors: the first members of the list.
    """

    __slots__ = ("_echelon", "_pivots", "count")

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self.count = 0
        self._echelon: dict[int, tuple[int, int]] = {}  # leading bit -> (vector, members that sum to it)
        self._pivots: list[int] = []  # the leading bits, highest first
        for vector in vectors:
            self.add(vector)

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return len(self._pivots)

    def __contains__(self, vector: int) -> bool:
        return self.reduce(vector)[0] == 0

    def reduce(self, vector: int) -> tuple[int, int]:
        """(residue, members): `vector` minus the sum of `members` is the residue, zero if `vector` is in the span.

        The residue is the least number of its coset; only members that raised the rank are used.
        """
        members = 0
        for pivot in self._pivots:
            if vector >> pivot & 1:
                reduced, made_of = self._echelon[pivot]
                vector ^= reduced
                members ^= made_of
        return vector, members

    def add(self, vector: int) -> bool:
        """Append `vector` to the list; True if it raised the rank."""
        residue, members = self.reduce(vector)
        index = self.count
        self.count += 1
        if not residue:
            return False
        pivot = residue.bit_length() - 1
        self._echelon[pivot] = (residue, members ^ 1 << index)
        self._pivots.append(pivot)
        self._pivots.sort(reverse=True)
        return True

    def largest(self, vector: int) -> int:
        """The greatest number of the coset of `vector` (`reduce` gives the least)."""
        for pivot in self._pivots:
            if not vector >> pivot & 1:
                vector ^= self._echelon[pivot][0]
        return vector


def bits(vector: int) -> list[int]:
    """Positions of the bits that are set, lowest first."""
    return [i for i in range(vector.bit_length()) if vector >> i & 1]


def multiply(columns: Sequence[int], vector: int) -> int:
    """Matrix times vector."""
    result = 0
    for i in bits(vector):
        result ^= columns[i]
    return result


def matmul(outer: Sequence[int], inner: Sequence[int]) -> list[int]:
    """Columns of the product: first `inner`, then `outer`."""
    return [multiply(outer, column) for column in inner]


def transpose(columns: Sequence[int], rows: int) -> list[int]:
    """Columns of the transposed matrix of a matrix with `rows` rows."""
    return [sum((column >> row & 1) << j for j, column in enumerate(columns)) for row in range(rows)]


def rank(columns: Iterable[int]) -> int:
    """Dimension of the image."""
    return Span(columns).rank


def kernel(columns: Sequence[int]) -> list[int]:
    """A basis of the vectors that the matrix maps to zero."""
    span, found = Span(), []
    for j, column in enumerate(columns):
        residue, members = span.reduce(column)
        if not residue:
            found.append(members ^ 1 << j)
        span.add(column)
    return found


def solve(columns: Sequence[int], target: int) -> int | None:
    """A vector that the matrix maps to `target`, zero in every dependent column; None if there is none."""
    residue, members = Span(columns).reduce(target)
    return None if residue else members


def generalized_inverse(columns: Sequence[int], rows: int) -> list[int]:
    """Columns of a matrix G with M G M = M, for M of `rows` rows.

    G is zero on a complement of the image of M and gives every dependent column of M the value zero, so it is a right
    inverse of a surjective M, a left inverse of an injective M, and the inverse of an invertible one.
    """
    span = Span(columns)
    for row in range(rows):
        span.add(1 << row)
    own = (1 << len(columns)) - 1
    return [span.reduce(1 << row)[1] & own for row in range(rows)]


def inverse(columns: Sequence[int], rows: int) -> list[int]:
    """Columns of the inverse.

    Raises:
        LayoutError: the matrix is not square and of full rank.
    """
    if len(columns) != rows or rank(columns) != rows:
        raise LayoutError(f"a matrix of {rows} rows, {len(columns)} columns, rank {rank(columns)} has no inverse")
    return generalized_inverse(columns, rows)


def independent(vectors: Iterable[int]) -> list[int]:
    """The vectors that are not a sum of earlier ones: a basis of the span, in the given order."""
    span = Span()
    return [vector for vector in vectors if span.add(vector)]


def complement(vectors: Iterable[int], candidates: Iterable[int]) -> list[int]:
    """The candidates, taken in order, that extend the span of `vectors` to the span of both."""
    span = Span(vectors)
    return [candidate for candidate in candidates if span.add(candidate)]


def intersection(first: Iterable[int], second: Iterable[int]) -> list[int]:
    """A basis of the intersection of two spans (Zassenhaus: relations between the two bases).

    Vectors of `first` that lie in the second span come out as they are, in order.
    """
    basis, other = independent(first), Span(second)
    kept = [vector for vector in basis if vector in other]
    relations = kernel([*basis, *independent(second)])
    own = (1 << len(basis)) - 1
    return independent([*kept, *(multiply(basis, relation & own) for relation in relations)])


def common_complement(first: Sequence[int], second: Sequence[int], candidates: Sequence[int]) -> list[int]:
    """A subspace that meets neither of two subspaces and, with either, spans everything.

    Args:
        first, second: bases of two subspaces of one dimension.
        candidates: vectors that span the whole space.

    Two subspaces W + E and W + F (W the intersection, E and F of one dimension) have the common complement
    ``{e_i + f_i} + C`` with C any complement of W + E + F: a non-zero sum of its vectors has components in both E
    and F, or one in C.

    Raises:
        LayoutError: the dimensions differ.
    """
    if rank(first) != rank(second):
        raise LayoutError(f"subspaces of dimensions {rank(first)} and {rank(second)} have no common complement")
    shared = intersection(first, second)
    mixed = [e ^ f for e, f in zip(complement(shared, first), complement(shared, second))]
    return mixed + complement([*first, *second], candidates)
