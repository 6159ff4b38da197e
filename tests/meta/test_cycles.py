"""No module imports itself by way of others, not even for type checkers alone."""

from __future__ import annotations

from collections.abc import Mapping

from tests.meta.sources import sources
from tests.meta.test_layering import imports


def graph() -> dict[str, set[str]]:
    """Which modules of the package each of them imports."""
    found = {source.module: source for source in sources("tilewright")}
    edges: dict[str, set[str]] = {}
    for name, source in found.items():
        wanted = {imported for imported, _, _ in imports(source)}
        edges[name] = {i if i in found else i.rpartition(".")[0] for i in wanted} & found.keys() - {name}
    return edges


def in_cycles(edges: Mapping[str, set[str]]) -> set[str]:
    """Nodes from which a path leads back to them."""
    return {node for node in edges if node in _reached(edges, node)}


def _reached(edges: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += edges[node]
    return seen


def test_no_module_is_in_a_cycle():
    assert not in_cycles(graph())


def test_cycles_are_seen():
    assert in_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}
    assert in_cycles({"a": {"b"}, "b": set()}) == set()
