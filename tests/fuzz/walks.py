"""One sum over the pieces of K in many words: how a kernel walks along the inner axis of a product.

Each walk loads the pieces 0, 1, ... in order and adds the product of each. Some also load or multiply pieces behind the
last one; those are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.case import Statement
from tests.fuzz.generator import Generator


@dataclass(frozen=True)
class Iterations:
    """The pieces of a product, and what is done with each.

    Args:
        count: number of pieces, and `text`, the same in the kernel.
        load: writes the loads of a piece, whose number is given in the kernel's words; gives both operands.
        multiply: adds the product of two operands to the sums.
        advance: moves pointers on to the next piece.
    """

    count: int
    text: str
    load: Callable[[str], tuple[str, str]]
    multiply: Callable[[str, str], None]
    advance: Callable[[], None]

    def piece(self, number: str) -> None:
        """All that is done with one piece."""
        self.multiply(*self.load(number))
        self.advance()


Walk = Callable[[Generator, Iterations], None]


def _counted(g: Generator, iterations: Iterations) -> None:
    k = g.fresh("k")
    with g.block(g.add(f"for {k} in range(0, {iterations.text}):").body, loop=True):
        iterations.piece(k)


def _while(g: Generator, iterations: Iterations) -> None:
    k = g.fresh("k")
    g.add(f"{k} = 0")
    with g.block(g.add(f"while {k} < {iterations.text}:").body, loop=True):
        iterations.piece(k)
        g.add(f"{k} += 1")


def _left_for_ever(g: Generator, iterations: Iterations) -> None:
    k = g.fresh("k")
    g.add(f"{k} = 0")
    with g.block(g.add("while True:").body, loop=True):
        g.add(f"if {k} >= {iterations.text}:").body.append(Statement("break"))
        iterations.piece(k)
        g.add(f"{k} += 1")


def _in_blocks(g: Generator, iterations: Iterations) -> None:
    block, k = g.fresh("b"), g.fresh("k")
    with g.block(g.add(f"for {block} in range(0, {iterations.text}, 4):").body, loop=True):
        inner = g.add(f"for {k} in range({block}, min({block} + 4, {iterations.text})):")
        with g.block(inner.body, loop=True):
            iterations.piece(k)


def _in_two_loops(g: Generator, iterations: Iterations) -> None:
    block, k = g.fresh("b"), g.fresh("k")
    with g.block(g.add(f"for {block} in range(0, {iterations.text}, 2):").body, loop=True):
        with g.block(g.add(f"for {k} in range(0, 2):").body, loop=True):
            iterations.piece(f"({block} + {k})")


def _halves_in_an_iteration(g: Generator, iterations: Iterations) -> None:
    k = g.fresh("k")
    with g.block(g.add(f"for {k} in range(0, {iterations.text}, 2):").body, loop=True):
        iterations.piece(k)
        iterations.piece(f"({k} + 1)")


def _unrolled(g: Generator, iterations: Iterations) -> None:
    k = g.fresh("k")
    with g.block(g.add(f"for {k} in tl.static_range({iterations.count}):").body):
        iterations.piece(k)


def _first(g: Generator, iterations: Iterations) -> tuple[str, str]:
    """The operands of the first piece, by the names under which they are handed on."""
    x, y = g.fresh("x"), g.fresh("y")
    g.add(f"{x}, {y} = {', '.join(iterations.load('0'))}")
    return x, y


def _loaded_ahead(g: Generator, iterations: Iterations) -> None:
    (x, y), k = _first(g, iterations), g.fresh("k")
    with g.block(g.add(f"for {k} in range(0, {iterations.text}):").body, loop=True):
        iterations.advance()
        following = iterations.load(f"({k} + 1)")
        iterations.multiply(x, y)
        g.add(f"{x}, {y} = {', '.join(following)}")


def _loaded_ahead_and_after(g: Generator, iterations: Iterations) -> None:
    (x, y), k = _first(g, iterations), g.fresh("k")
    with g.block(g.add(f"for {k} in range(1, {iterations.text}):").body, loop=True):
        iterations.advance()
        following = iterations.load(k)
        iterations.multiply(x, y)
        g.add(f"{x}, {y} = {', '.join(following)}")
    iterations.multiply(x, y)


WALKS: dict[str, Walk] = {
    "counted": _counted,
    "while": _while,
    "left for ever": _left_for_ever,
    "in blocks of K": _in_blocks,
    "in two loops": _in_two_loops,
    "halves in an iteration": _halves_in_an_iteration,
    "unrolled": _unrolled,
    "loaded ahead": _loaded_ahead,
    "loaded ahead and after": _loaded_ahead_and_after,
}
BEYOND = frozenset(("in two loops", "halves in an iteration", "loaded ahead", "loaded ahead and after"))
"""Walks that may load a piece behind the last one."""
