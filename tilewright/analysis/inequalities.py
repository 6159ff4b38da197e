"""Bounds of linear expressions under linear inequalities, in whole numbers: Fourier-Motzkin elimination.

An inequality says that an expression is not negative. Eliminating a variable joins each inequality that bounds it from
below with each that bounds it from above; what is left when all variables are gone bounds the expression asked for
(Schrijver, Theory of Linear and Integer Programming, section 12.2). Answers hold for all rational solutions, so they
are safe and not always sharp. Where there would be too many inequalities there is no answer.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping

_MOST_ROWS = 200
Variable = Hashable


class Linear:
    """`constant` + the sum of variables times whole numbers. It never changes."""

    __slots__ = ("constant", "terms")

    def __init__(self, constant: int = 0, terms: Mapping[Variable, int] | None = None) -> None:
        self.constant = constant
        self.terms = {variable: factor for variable, factor in (terms or {}).items() if factor}

    @staticmethod
    def of(variable: Variable) -> Linear:
        return Linear(0, {variable: 1})

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for variable, factor in other.terms.items():
            terms[variable] = terms.get(variable, 0) + factor
        return Linear(self.constant + other.constant, terms)

    def __neg__(self) -> Linear:
        return self.times(-1)

    def __sub__(self, other: Linear) -> Linear:
        return self + -other

    def times(self, factor: int) -> Linear:
        return Linear(self.constant * factor, {variable: f * factor for variable, f in self.terms.items()})

    def plus(self, number: int) -> Linear:
        return Linear(self.constant + number, self.terms)


class TooManyError(Exception):
    """More inequalities than anybody wants to look at."""


def least(expression: Linear, inequalities: Iterable[Linear]) -> int | None:
    """A number that the expression is not below where all inequalities hold; None if none is found.

    Raises:
        TooManyError: the elimination has too many rows.
        InfeasibleError: the inequalities never hold together.
    """
    asked = object()
    rows = _relevant([*inequalities, Linear.of(asked) - expression, expression - Linear.of(asked)], asked)
    while variables := {variable for row in rows for variable in row.terms} - {asked}:
        rows = _without(rows, min(variables, key=lambda variable: _cost(rows, variable)))
    bounds = [-(row.constant // row.terms[asked]) for row in rows if row.terms.get(asked, 0) > 0]
    highest = [row.constant // -row.terms[asked] for row in rows if row.terms.get(asked, 0) < 0]
    if any(not row.terms and row.constant < 0 for row in rows) or (bounds and highest and max(bounds) > min(highest)):
        raise InfeasibleError
    return max(bounds, default=None)


class InfeasibleError(Exception):
    """No solution."""


def is_infeasible(inequalities: Iterable[Linear]) -> bool:
    """Whether it is known that some inequalities never hold together."""
    rows = list(inequalities)
    try:
        while variables := {variable for row in rows for variable in row.terms}:
            rows = _without(rows, min(variables, key=lambda variable: _cost(rows, variable)))
            if any(not row.terms and row.constant < 0 for row in rows):
                return True
    except TooManyError:
        return False
    return any(row.constant < 0 for row in rows)


def _relevant(rows: list[Linear], asked: Variable) -> list[Linear]:
    """The rows that share variables, by way of others, with the one asked for."""
    reached, changed = {asked}, True
    while changed:
        changed = False
        for row in rows:
            if not reached.isdisjoint(row.terms) and not reached >= row.terms.keys():
                reached |= row.terms.keys()
                changed = True
    return [row for row in rows if not reached.isdisjoint(row.terms) or not row.terms]


def _cost(rows: list[Linear], variable: Variable) -> int:
    up = sum(row.terms.get(variable, 0) > 0 for row in rows)
    down = sum(row.terms.get(variable, 0) < 0 for row in rows)
    return up * down - up - down


def _without(rows: list[Linear], variable: Variable) -> list[Linear]:
    below = [row for row in rows if row.terms.get(variable, 0) > 0]
    above = [row for row in rows if row.terms.get(variable, 0) < 0]
    made: dict[tuple[tuple[Variable, int], ...] | frozenset[tuple[Variable, int]], Linear] = {}
    every = [row for row in rows if variable not in row.terms]
    every += [low.times(-high.terms[variable]) + high.times(low.terms[variable]) for low in below for high in above]
    for row in every:
        row = _reduced(row)
        key = frozenset(row.terms.items())
        if key not in made or made[key].constant > row.constant:
            made[key] = row
    if len(made) > _MOST_ROWS:
        raise TooManyError
    return list(made.values())


def _reduced(row: Linear) -> Linear:
    """A row divided by what its factors share; whole solutions lose nothing where the constant is rounded down."""
    by = math.gcd(*row.terms.values())
    if by <= 1:
        return row
    return Linear(row.constant // by, {variable: factor // by for variable, factor in row.terms.items()})
