"""Facts about operations stand in `ops/`: no other room tells operations apart by their names.

Back ends and passes ask an operation for its class, its traits or its record. A lowering table has classes as keys.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.meta.sources import Source, sources
from tilewright.backends.nvidia.tgir import ops as laid_out
from tilewright.ops import families
from tilewright.ops.spec import REGISTRY

assert families.FAMILIES
NAMES = frozenset(REGISTRY) | {op.name for op in vars(laid_out).values() if getattr(op, "name", "").startswith("tt")}
HOMES = ("tilewright/ops/", "tilewright/backends/nvidia/tgir/ops.py")


def named(source: Source) -> Iterator[str]:
    """Places where a file tells operations by name: "line: text"."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value in NAMES or re.fullmatch(r"(arith|scf|cf|math)\.\w*", node.value):
                yield f"{node.lineno}: {node.value!r}"
        for part in _compared(node):
            if isinstance(part, ast.Attribute) and part.attr == "name" and _is_class(part.value):
                yield f"{part.lineno}: {ast.unparse(part)}"


def _compared(node: ast.AST) -> list[ast.expr | None]:
    """What is compared, or is a key or an element of a table, in a node."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Dict):
        return [*node.keys]
    if isinstance(node, ast.Set | ast.List | ast.Tuple):
        return [*node.elts]
    return [node.elt] if isinstance(node, ast.SetComp | ast.GeneratorExp | ast.ListComp) else []


def _is_class(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and bool(re.fullmatch(r"[A-Z]\w*Op", node.id))


def _parsed(text: str) -> Source:
    return Source(sources("tests/meta")[0].path, "x.py", text, ast.parse(text))


def test_no_room_but_ops_names_operations():
    rooms = [source for source in sources("tilewright") if not source.name.startswith(HOMES)]
    found = [f"{source.name}:{place}" for source in rooms for place in named(source)]
    assert not found, "\n".join(found)


def test_the_search_sees_what_it_must():
    text = 'if op.name == "tt.load" or op.name.startswith("arith.") or op.name == LoadOp.name: x = {LoadOp.name: 1}'
    assert len(list(named(_parsed(text)))) == 4
    assert not list(named(_parsed('op.name; print(LoadOp.name); isinstance(op, LoadOp); f("tt.divisibility")')))
