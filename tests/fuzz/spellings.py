"""One meaning in many words: bounds, their conjunctions, and indices that are held back.

What a planner makes of an access must not hang on the spelling, so random kernels use all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.generator import Generator

_BELOW = (
    "({n} > {i})", "({i} <= {n} - 1)", "({i} - {n} < 0)", "~({i} >= {n})", "(({i} >= {n}) == 0)",
    "tl.where({i} < {n}, True, False)", "(tl.where({i} >= {n}, 0, 1) == 1)", "({i}.to(tl.int64) < {n})",
    "({i} * 2 < {n} * 2)", "({i} + 3 < 3 + {n})", "(({i} >= 0) & ({i} < {n}))", "(({i} < {n}) | ({i} < 0))",
    "(~(({i} >= {n}) | ({i} < 0)))", "(({n} - 1 - {i}) >= 0)",
)  # fmt: skip
_BOTH = (
    "({a} & {b})",
    "(~(~{a} | ~{b}))",
    "tl.where({a}, {b}, False)",
    "(({a} == 1) & {b})",
    "tl.where(~{a}, False, {b})",
)
_HELD = ("{i} % {n}", "tl.minimum({i}, {n} - 1)", "tl.where({i} < {n}, {i}, 0)", "({i} + {s}) % {n}")

_WITHIN = (
    "(({i} >= 0) & ({i} < {n}))", "((0 <= {i}) & ({n} > {i}))", "~(({i} < 0) | ({i} >= {n}))",
    "tl.where({i} >= 0, {i} < {n}, False)", "({i} == tl.minimum(tl.maximum({i}, 0), {n} - 1))",
    "(({i} > -1) & ({i} <= {n} - 1))", "(({i}.to(tl.uint32) < {n}) & ({i} >= 0))",
)  # fmt: skip
_CLAMPED = (
    "tl.maximum(tl.minimum({i}, {n} - 1), 0)",
    "tl.minimum(tl.maximum({i}, 0), {n} - 1)",
    "tl.where({i} < 0, 0, tl.where({i} < {n}, {i}, {n} - 1))",
    "tl.clamp({i}.to(tl.float32), 0.0, ({n} - 1) * 1.0).to(tl.int32)",
)


def within(g: Generator, index: str, limit: int) -> str:
    """`0 <= index < limit`, where the index is of int32."""
    return g.random.choice(_WITHIN).format(i=index, n=g.number(limit))


def clamped(g: Generator, index: str, limit: int) -> str:
    """The number from 0 to below a limit that is nearest to an index of int32."""
    return g.random.choice(_CLAMPED).format(i=index, n=g.number(limit))


def below(g: Generator, index: str, limit: int) -> str:
    """`index < limit`, where the index is of int32 and not negative."""
    n = g.number(limit)
    return g.random.choice(_BELOW).format(i=index, n=n) if g.chance(0.5) else f"({index} < {n})"


def every(g: Generator, tests: Sequence[str]) -> str:
    """All of several masks, nested as it comes; empty for none."""
    left = list(tests)
    while len(left) > 1:
        a, b = left.pop(g.random.randrange(len(left))), left.pop()
        left.append(g.random.choice(_BOTH).format(a=a, b=b) if g.chance(0.4) else f"({a} & {b})")
    return left[0] if left else ""


def held_back(g: Generator, index: str, limit: int) -> str:
    """An index that stays below a limit, made of one that does not."""
    return g.random.choice(_HELD).format(i=index, n=g.number(limit), s=g.random.randint(0, 9))
