"""The project's Python files for the tests that read them: each is read and parsed once, when it is first asked for."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tilewright", "examples", "benchmarks", "tests")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A file; `name` is its path from the root, `module` its dotted name; or a text, as if it were one.

    Args:
        path: of the file.
        name: path from the root.
        given: the text, where there is no file.
    """

    path: Path | None
    name: str
    given: str | None = None

    @functools.cached_property
    def text(self) -> str:
        if self.given is not None:
            return self.given
        assert self.path is not None
        return self.path.read_text(encoding="utf-8")

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


@functools.cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file below `folders` (default: all of the project)."""
    paths = [path for folder in folders or FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple([_source(path) for path in paths])


@functools.cache
def _source(path: Path) -> Source:
    return Source(path, path.relative_to(ROOT).as_posix())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly below `node` but expressions: there are many, and no statement is inside one."""
    return (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr | ast.expr_context))


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, FunctionNode | ast.ClassDef]]:
    """(qualified name, node) of every function and class, nested ones included."""
    for node in statements(tree):
        if isinstance(node, FunctionNode | ast.ClassDef):
            yield f"{prefix}{node.name}", node
            yield from definitions(node, f"{prefix}{node.name}.")
        else:
            yield from definitions(node, prefix)
