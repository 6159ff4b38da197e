"""Make a failing case smaller: statements are deleted or replaced by constants while the failure stays of its kind."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tests.fuzz.case import Case, Statement

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, budget: int = 300) -> Case:
    """The smallest case found.

    Args:
        case: one that fails.
        fails: whether a changed case still fails in the same way.
        budget: how many candidates may be tried.
    """
    left = [budget]

    def accepts(candidate: Case) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return fails(candidate)

    best = case
    while True:
        before = _size(best)
        best = _delete(best, accepts)
        best = _simplify(best, accepts)
        best = _outside(best, accepts)
        if _size(best) == before or left[0] <= 0:
            return best


def _size(case: Case) -> int:
    return len(case.source())


def _blocks(body: list[Statement]) -> list[list[Statement]]:
    """Every list of statements, outermost first."""
    found = [body]
    for statement in body:
        if statement.text.endswith(":"):
            found += _blocks(statement.body) + _blocks(statement.orelse)
    return found


def _delete(case: Case, accepts: Fails) -> Case:
    """Without statements that are not needed: runs of them first, single ones last, from the end."""
    number = 0
    while number < len(_blocks(case.body)):
        width = max(1, len(_blocks(case.body)[number]) // 2)
        while width:
            end = len(_blocks(case.body)[number])
            while end > 0:
                start = max(0, end - width)
                body = deepcopy(case.body)
                del _blocks(body)[number][start:end]
                candidate = case.with_body(body)
                if accepts(candidate):
                    case = candidate
                end = start
            width //= 2
        number += 1
    return case


def _simplify(case: Case, accepts: Fails) -> Case:
    """Constants for values, and the body of a compound statement for the statement."""
    number = 0
    while number < len(_blocks(case.body)):
        at = 0
        while at < len(_blocks(case.body)[number]):
            statement = _blocks(case.body)[number][at]
            options: list[list[Statement]] = []
            if statement.text.endswith(":"):
                options += [statement.body, statement.orelse]
            elif statement.plain and statement.plain != statement.text:
                options.append([Statement(statement.plain)])
            for option in options:
                body = deepcopy(case.body)
                _blocks(body)[number][at : at + 1] = deepcopy(option)
                candidate = case.with_body(body)
                if accepts(candidate):
                    case = candidate
                    break
            at += 1
        number += 1
    return case


def _outside(case: Case, accepts: Fails) -> Case:
    """A smaller grid, the plain target, the usual options."""
    plain: tuple[dict[str, Any], ...] = ({"grid": (1,)}, {"cpu": ""}, {"options": {}}, {"gpu": {}})
    for change in plain:
        candidate = replace(case, **change)
        if candidate != case and accepts(candidate):
            case = candidate
    return case
