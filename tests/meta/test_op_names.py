"""Facts about operations stand in `ops/`: no other room tells operations apart by their names, and ever fewer by class.

Back ends and passes ask an operation for its traits or its record. A lowering table has classes as keys. What is left
of `isinstance(op, SomeOp)` is counted; the count may only shrink.
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

OF_A_CLASS = 601  # questions for the class of an operation outside of `ops/`


def asked(source: Source) -> int:
    """How often a file asks whether something is of a class of operations."""
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and len(node.args) == 2)
    kinds = (node.args[1] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "isinstance")
    return sum(any(map(_is_class, ast.walk(kind))) for kind in kinds)


def named(source: Source) -> Iterator[str]:
    """Places where a file tells operations by name: "line: text"."""
    if not re.search(r"Op\.name\b|[\"'](tt|ttg|ttng|arith|math|scf|cf|ub|llvm|gpu)\.", source.text):
        return  # most files: walking them takes its time
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


def _is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and bool(re.fullmatch(r"[A-Z]\w*Op", node.id))


def _rooms() -> list[Source]:
    return [source for source in sources("tilewright") if not source.name.startswith(HOMES)]


def _parsed(text: str) -> Source:
    return Source(None, "x.py", text)


def test_no_room_but_ops_names_operations():
    found = [f"{source.name}:{place}" for source in _rooms() for place in named(source)]
    assert not found, "\n".join(found)


def test_fewer_places_ask_for_the_class_of_an_operation():
    found = sum(map(asked, _rooms()))
    assert found <= OF_A_CLASS, f"{found} places: ask for a trait or a slot of `ops/`, or a helper, in place of a class"
    assert found == OF_A_CLASS, f"there are fewer: set OF_A_CLASS to {found}"


def test_the_search_sees_what_it_must():
    text = 'if op.name == "tt.load" or op.name.startswith("arith.") or op.name == LoadOp.name: x = {LoadOp.name: 1}'
    assert len(list(named(_parsed(text)))) == 4
    assert not list(named(_parsed('op.name; print(LoadOp.name); isinstance(op, LoadOp); f("tt.divisibility")')))
    text = "isinstance(op, LoadOp); isinstance(op, (LoadOp, StoreOp)); isinstance(x.owner, AddFOp | AddIOp) and y"
    assert asked(_parsed(text)) == 3
    assert not asked(_parsed("isinstance(node, ast.BoolOp); isinstance(value, int); every(root, LoadOp)"))
