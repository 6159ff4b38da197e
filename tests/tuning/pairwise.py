"""Rows in which every pair of values of two factors occurs: a small covering array, the same in every run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Pair = frozenset[tuple[str, str]]


def pairs_of(row: Mapping[str, str]) -> set[Pair]:
    """The pairs of values that a row holds."""
    return {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}


def pairwise(factors: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Rows that hold every pair, made greedily: each begins with a pair that is left, and takes for each other factor
    the value with which most pairs that are left are held.

    Args:
        factors: name -> values.
    """
    left = dict.fromkeys(
        frozenset({(one, a), (other, b)})
        for one, other in itertools.combinations(factors, 2)
        for a, b in itertools.product(factors[one], factors[other])
    )
    rows: list[dict[str, str]] = []
    while left:
        row = dict(sorted(next(iter(left))))
        for name in sorted(factors, key=lambda name: -len(factors[name])):
            if name not in row:
                turn = len(rows) % len(factors[name])
                values = [*factors[name][turn:], *factors[name][:turn]]
                row[name] = max(
                    values, key=lambda value: sum(frozenset({(name, value), it}) in left for it in row.items())
                )
        for pair in pairs_of(row):
            left.pop(pair, None)
        rows.append({name: row[name] for name in factors})
    return rows
