"""Walks of graphs without recursion, as long chains would go deeper than Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def operands_first(root: K, operands: Callable[[K], Iterable[K]], known: Container[K]) -> Iterator[K]:
    """Everything under `root` that is not known, each after its operands and as a recursion would come to it.

    Args:
        root: where to start.
        operands: what must be known before, in the order in which it is looked at; a circle is entered once.
        known: what is known already; the caller adds what it is given, before it asks for the next.
    """
    stack: list[tuple[K, Iterator[K]]] = []
    entered: set[K] = set()
    pending: K | None = root
    while True:
        if pending is not None:
            if pending not in known and pending not in entered:
                entered.add(pending)
                stack.append((pending, iter(operands(pending))))
            pending = None
        if not stack:
            return
        key, rest = stack[-1]
        pending = next(rest, None)
        if pending is None:
            stack.pop()
            yield key


def reached(roots: Iterable[K], following: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Everything that roots lead to, themselves among it, each once; what was found last comes first.

    Args:
        roots: where to start.
        following: what one of them leads to; it is asked when the caller wants the next.
    """
    waiting, seen = list(roots), set[K]()
    while waiting:
        key = waiting.pop()
        if key not in seen:
            seen.add(key)
            yield key
            waiting += following(key)
