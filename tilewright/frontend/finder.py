"""`DependenciesFinder`: the hash of a function's text and of what it uses, for tools that make keys of their own."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.frontend.content import Content
from tilewright.frontend.names import references


@dataclass(frozen=True, slots=True)
class _Names:
    """Where the names of a function are looked up that are not its own."""

    closure: Mapping[str, Any]
    globals: Mapping[str, Any]


class DependenciesFinder(ast.NodeVisitor):
    """Walks the syntax tree of a function and hashes what it uses, as kernels are hashed.

    Older programs leave out `nonlocals`, or `name` too: `(name, globals, src)`, `(globals, src)`.

    Args:
        name: of the function.
        globals: namespace of its module.
        nonlocals: names of enclosing functions that it uses.
        src: its text, which is hashed as it is.
    """

    def __init__(self, name: Any = "", globals: Any = None, nonlocals: Any = None, src: Any = None) -> None:
        if not isinstance(name, str):
            name, globals, nonlocals, src = "", name, nonlocals, globals if src is None else src
        elif isinstance(nonlocals, str):
            nonlocals, src = None, nonlocals
        self.name, self.globals, self.nonlocals = name, globals or {}, nonlocals or {}
        self._content = Content()
        self._content.text(src or "")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Take in what the function uses.

        Raises:
            GlobalsChangedError: a function that it calls was hashed with another value of a global.
        """
        for chain in references(node):
            self._content.reference(_Names(self.nonlocals, self.globals), chain)

    @property
    def ret(self) -> str:
        """The hash of what was walked so far."""
        return self._content.hexdigest()

    @property
    def used_global_vals(self) -> dict[tuple[str, int], tuple[Any, Mapping[str, Any]]]:
        """Variables that were met: (name, id of the namespace) -> (value, namespace)."""
        return {key: (entry.value, entry.namespace) for key, entry in self._content.used.items()}
