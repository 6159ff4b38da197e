"""Facts about names, read from the syntax tree alone: what a block assigns, what a function refers to.

Both are computed once per node and kept on it, because an inlined function is visited at
every call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_ASSIGNED = "_tilewright_assigned"
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.FunctionDef, ast.ClassDef)


def assigned_names(owner: ast.AST, body: Sequence[ast.AST]) -> tuple[str, ...]:
    """Names that `body` may assign, in order of first appearance.

    Args:
        owner: node on which the answer is kept; `body` is a part of it and always the same one.
        body: statements or expressions.
    """
    known: tuple[str, ...] | None = getattr(owner, _ASSIGNED, None)
    if known is None:
        known = tuple(dict.fromkeys(name for node in body for name in _stores(node)))
        setattr(owner, _ASSIGNED, known)
    return known


def _stores(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _stores(child)


def assigned_at(body: Sequence[ast.AST], name: str) -> ast.AST | None:
    """The last place in `body` that assigns `name`, for messages."""
    found: ast.AST | None = None
    for node in body:
        for part in ast.walk(node):
            stored = isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store)
            if stored and (found is None or part.lineno >= found.lineno):  # type: ignore[attr-defined]
                found = part
    return found


def references(tree: ast.FunctionDef) -> list[tuple[str, ...]]:
    """Names and dotted names that the body of a function reads, e.g. ``("tl", "sum")``, without its parameters."""
    arguments = tree.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    params = {a.arg for a in [*named, arguments.vararg, arguments.kwarg] if a is not None}
    found: dict[tuple[str, ...], None] = {}
    pending: list[ast.AST] = [*tree.body]
    while pending:
        node = pending.pop()
        chain = _dotted(node)
        if chain is None:
            pending.extend(ast.iter_child_nodes(node))
        elif chain[0] not in params:
            found[chain] = None
    return sorted(found)


def _dotted(node: ast.AST) -> tuple[str, ...] | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return (node.id, *reversed(parts))
    return None
