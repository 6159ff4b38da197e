"""Facts about names, read from the syntax tree alone: what a block assigns, what a function refers to.

Both are computed once per node and kept on it, because an inlined function is visited at
every call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tilewright.base.stack import deep_calls

_ASSIGNED = "_tilewright_assigned"
_READ_BEHIND = "_tilewright_read_behind"
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


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly inside of one, without those that say nothing of names: operators, and how a name is used."""
    found: list[ast.AST] = []
    for name in node._fields:
        part = getattr(node, name, None)
        if isinstance(part, list):
            found += [item for item in part if isinstance(item, ast.AST)]
        elif isinstance(part, ast.AST) and part._fields:
            found.append(part)
    return found


def _stores(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
        yield node.value.id  # a part of a tile is replaced by making a new one
        yield from _stores(node.slice)
    elif isinstance(node, ast.FunctionDef):
        yield node.name
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)):
        if node.name is not None:
            yield node.name
        if isinstance(node, ast.MatchAs) and node.pattern is not None:
            yield from _stores(node.pattern)
    elif not isinstance(node, _SCOPES):
        for child in _children(node):
            yield from _stores(child)


def is_read_behind(tree: ast.FunctionDef, loop: ast.For | ast.While, name: str) -> bool:
    """Whether a variable `name` of `loop` may be read after it, by the text of the function `tree`.

    What lies in another loop, comprehension or lambda with a variable of that name reads its own.
    """
    known: dict[str, bool] | None = getattr(loop, _READ_BEHIND, None)
    if known is None:
        known = {}
        setattr(loop, _READ_BEHIND, known)
    if name not in known:
        known[name] = _reads(tree.body, loop, name, behind=False)
    return known[name]


def _reads(nodes: Sequence[ast.AST], loop: ast.For | ast.While, name: str, *, behind: bool) -> bool:
    """Whether one of `nodes` reads `name`, other than before and inside of `loop`."""
    for node in nodes:
        if node is loop:
            if _reads(loop.orelse, loop, name, behind=True):
                return True
            continue
        if isinstance(node, ast.Name):
            if node.id == name and isinstance(node.ctx, ast.Load) and (behind or _is_behind(node, loop)):
                return True
            continue
        around = isinstance(node, (ast.For, ast.While)) and _contains(node, loop)
        if not around and _binds(node, name):
            inner = [node.iter, *node.orelse] if isinstance(node, ast.For) else []
        else:
            inner = _children(node)
        if _reads(inner, loop, name, behind=behind or around):
            return True
    return False


def _is_behind(node: ast.expr, loop: ast.For | ast.While) -> bool:
    return (node.lineno, node.col_offset) > (loop.body[-1].end_lineno or 0, loop.body[-1].end_col_offset or 0)


def _contains(outer: ast.For | ast.While, inner: ast.stmt) -> bool:
    """Whether a statement of the same function stands inside of a loop, by their places in the text."""
    begins = (outer.lineno, outer.col_offset) < (inner.lineno, inner.col_offset)
    return begins and inner.lineno <= (outer.end_lineno or 0)


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a loop, comprehension or lambda has a variable of its own called `name`."""
    if isinstance(node, (ast.For, ast.comprehension)):
        targets: Sequence[ast.AST] = [node.target]
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        targets = [generator.target for generator in node.generators]
    elif isinstance(node, ast.Lambda):
        return any(a.arg == name for a in node.args.args)
    else:
        return False
    return any(isinstance(part, ast.Name) and part.id == name for target in targets for part in ast.walk(target))


def assigned_at(body: Sequence[ast.AST], name: str) -> ast.AST | None:
    """The last place in `body` that assigns `name`, for messages."""
    found: ast.AST | None = None
    for node in body:
        for part in ast.walk(node):
            stored = name in _stores(part) if isinstance(part, (ast.Name, ast.Subscript)) else False
            if stored and (found is None or part.lineno >= found.lineno):  # type: ignore[attr-defined]
                found = part
    return found


def references(tree: ast.FunctionDef) -> list[tuple[str, ...]]:
    """Names and dotted names that a function reads from outside, e.g. ``("tl", "sum")``.

    What has certainly been assigned before it is read is the function's own; so are its parameters.
    """
    walk = _Reads()
    with deep_calls():
        walk.body(tree.body, _parameters(tree.args))
    return sorted(walk.found)


def _parameters(arguments: ast.arguments) -> set[str]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {a.arg for a in named if a is not None}


class _Reads:
    """Walks a function in the order in which it runs.

    Attributes:
        found: dotted names read while they were not certainly assigned.
    """

    def __init__(self) -> None:
        self.found: set[tuple[str, ...]] = set()

    def body(self, nodes: Sequence[ast.AST], own: set[str]) -> set[str]:
        """Read `nodes` in order; `own`, the names assigned so far, grows, and is given back."""
        for node in nodes:
            self.node(node, own)
        return own

    def node(self, node: ast.AST, own: set[str]) -> None:
        """Read one node; names that it certainly assigns are added to `own`."""
        chain = _dotted(node)
        if chain is not None:
            if chain[0] not in own:
                self.found.add(chain)
        elif isinstance(node, ast.If):
            self.node(node.test, own)
            own |= self.body(node.body, own.copy()) & self.body(node.orelse, own.copy())
        elif isinstance(node, (ast.For, ast.While)):
            self.body([node.iter] if isinstance(node, ast.For) else [node.test], own)
            inside = self.body([node.target], own.copy()) if isinstance(node, ast.For) else own.copy()
            self.body(node.body, inside)
            self.body(node.orelse, own.copy())
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            inside = own.copy()
            for generator in node.generators:
                self.body([generator.iter, generator.target, *generator.ifs], inside)
            self.node(node.elt, inside)
        elif isinstance(node, (ast.Lambda, ast.FunctionDef)):
            self.body([*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)], own)
            if isinstance(node, ast.FunctionDef):
                own.add(node.name)
            inner = [*node.body] if isinstance(node, ast.FunctionDef) else [node.body]
            self.body(inner, own | _parameters(node.args))
        else:
            self._simple(node, own)

    def _simple(self, node: ast.AST, own: set[str]) -> None:
        if isinstance(node, ast.Name):
            own.add(node.id)  # a target: reads are dotted names
        elif isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Name) and node.target.id not in own:
                self.found.add((node.target.id,))
            self.body([node.value, node.target], own)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            before: list[ast.AST] = [node.annotation] if isinstance(node, ast.AnnAssign) else []
            assigned = [] if isinstance(node, ast.AnnAssign) and node.value is None else targets
            self.body([*before, *([] if node.value is None else [node.value]), *assigned], own)
        elif isinstance(node, ast.match_case):
            self.body(_children(node), own | set(_stores(node.pattern)))
        elif isinstance(node, ast.BoolOp):  # the later operands may not run
            self.node(node.values[0], own)
            self.body(node.values[1:], own.copy())
        elif isinstance(node, ast.IfExp):
            self.node(node.test, own)
            self.body([node.body], own.copy())
            self.body([node.orelse], own.copy())
        else:
            self.body(_children(node), own)


def _dotted(node: ast.AST) -> tuple[str, ...] | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return (node.id, *reversed(parts))
    return None
