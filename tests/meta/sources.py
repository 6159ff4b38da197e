"""The project's Python files, parsed once, for the tests that read them."""

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
    """A parsed file; `name` is its path from the root, `module` its dotted name."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


@functools.cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file below `folders` (default: all of the project)."""
    found = []
    for folder in folders or FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found.append(Source(path, path.relative_to(ROOT).as_posix(), text, ast.parse(text, str(path))))
    return tuple(found)


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, FunctionNode | ast.ClassDef]]:
    """(qualified name, node) of every function and class, nested ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FunctionNode | ast.ClassDef):
            yield f"{prefix}{node.name}", node
            yield from definitions(node, f"{prefix}{node.name}.")
        else:
            yield from definitions(node, prefix)
