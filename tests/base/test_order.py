"""Walks without recursion."""

from __future__ import annotations

from tilewright.base.order import operands_first

GRAPH = {"a": ["b", "c"], "b": ["d"], "c": ["d", "b"], "d": []}


def _walked(root: str, known: set[str]) -> list[str]:
    out = []
    for key in operands_first(root, GRAPH.__getitem__, known):
        known.add(key)
        out.append(key)
    return out


def test_operands_come_first_and_once():
    assert _walked("a", set()) == ["d", "b", "c", "a"]


def test_what_is_known_is_not_entered():
    assert _walked("a", {"b"}) == ["d", "c", "a"]
    assert _walked("a", {"a"}) == []


def test_a_circle_ends():
    assert list(operands_first(0, lambda n: [(n + 1) % 3], ())) == [2, 1, 0]


def test_a_long_chain_needs_no_stack():
    assert list(operands_first(100_000, lambda n: [n - 1] if n else [], ())) == list(range(100_001))
