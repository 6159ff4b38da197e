"""Holds the order of the rooms: an import points to a lower room, at the top of a file.

The order is the one of docs/layout.md. Rooms that share a rank may not import one another.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

import pytest

from tests.meta.sources import FunctionNode, Source, sources, statements

RANKS = {
    "base": 0,
    "layouts": 1,
    "ir": 2,
    "ops": 3,
    "language": 4,
    "frontend": 5,
    "analysis": 6,
    "passes": 7,
    "gradients": 8,
    "loops": 8,
    "backends": 9,
    "backends.reference": 10,
    "backends.null": 10,
    "backends.llvm": 11,
    "backends.cpu": 12,
    "backends.nvidia": 12,
    "devices": 13,
    "compile": 14,
    "launch": 15,
    "tuning": 16,
    "comparing": 16,
    "": 17,  # tilewright/__init__.py and the modules beside it: the public names
    "hl": 18,
    "torch": 19,
    "triton_names": 19,
    "sanitize": 20,
    "helion_names": 20,
    "tools": 21,
}
FACES = {"compiler", "runtime"}  # folders of re-exports beside tilewright/__init__.py, under the names of Triton
TOOLS_ONLY = {"click"}
LATE = {"torch", "llvmlite", "cuda", "fsspec", "rich"}  # loaded on first use, never by importing tilewright
_WITH_TORCH = {"torch", "hl", "helion_names", "tools"}
LOADED_LATE = {"tilewright/sanitize/storages.py"}  # modules that are themselves loaded on first use


def room(module: str) -> str:
    """The room of a dotted module name ("tilewright.backends.cpu.emit.dot" -> "backends.cpu")."""
    parts = module.split(".")[1:]
    if parts[:1] == ["backends"] and ".".join(parts[:2]) in RANKS:
        return ".".join(parts[:2])
    if parts == ["__main__"]:
        return "tools"  # the command, as `python -m tilewright`
    return parts[0] if parts and parts[0] in RANKS else ""


@functools.cache
def imports(source: Source) -> list[tuple[str, int, bool]]:
    """(imported dotted name, line, whether inside a function) for every import of `source`."""

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, int, bool]]:
        for child in statements(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, child.lineno, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    package = source.module.split(".")
                    keep = len(package) - child.level + source.name.endswith("__init__.py")
                    base = ".".join([*package[:keep], *([base] if base else [])])
                yield from ((f"{base}.{alias.name}", child.lineno, inside) for alias in child.names)
            yield from visit(child, inside or isinstance(child, FunctionNode))

    return list(visit(source.tree, False))


def violations(source: Source) -> list[str]:
    """What `source` imports against the rules, one sentence each."""
    mine, found = room(source.module), []
    for name, line, inside in imports(source):
        where, top = f"{source.name}:{line}", name.split(".")[0]
        if top == "tilewright":
            theirs = room(name)
            if mine == "hl" and theirs not in ("hl", ""):
                found.append(f"{where}: hl may use public names only, not {name}")
            if inside:
                found.append(f"{where}: imports {name} inside a function")
            if theirs != mine and RANKS[theirs] >= RANKS[mine]:
                found.append(f"{where}: {mine or 'the package'} may not import {theirs or 'the package'} ({name})")
        elif top in TOOLS_ONLY and mine != "tools":
            found.append(f"{where}: only tools may import {top}")
        elif top in LATE and not inside and mine not in _WITH_TORCH and source.name not in LOADED_LATE:
            found.append(f"{where}: {top} must be imported when it is first used")
    return found


@pytest.mark.parametrize("source", sources("tilewright"), ids=lambda source: source.name)
def test_imports_point_to_lower_rooms(source):
    assert not violations(source), "\n".join(violations(source))


def test_every_folder_of_the_package_is_a_room():
    names = {source.name.split("/")[1] for source in sources("tilewright") if source.name.count("/") > 1}
    assert names <= {name.split(".")[0] for name in RANKS} | FACES


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("tilewright/ir/op.py", "from tilewright.ops.spec import OpSpec", "ir may not import ops"),
        (
            "tilewright/backends/cpu/emit/lower.py",
            "import tilewright.backends.nvidia.mma",
            "backends.cpu may not import",
        ),
        ("tilewright/passes/cse.py", "def f():\n    from tilewright.ir import op", "inside a function"),
        ("tilewright/passes/cse.py", "from ..launch import jit", "passes may not import launch"),
        ("tilewright/ops/dot.py", "import tilewright", "ops may not import the package"),
        ("tilewright/base/knobs.py", "import click", "only tools"),
        ("tilewright/devices/arrays.py", "from torch import Tensor", "first used"),
        ("tilewright/hl/exc.py", "from tilewright.base import errors", "public names only"),
    ],
)
def test_the_rules_see_what_they_must(name, text, complaint):
    (found,) = violations(Source(None, name, text))
    assert complaint in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tilewright/ops/dot.py", "from tilewright.ir.op import TileOp\nfrom .spec import OpSpec"),
        ("tilewright/devices/arrays.py", "def f():\n    import torch"),
        ("tilewright/hl/kernel.py", "import tilewright"),
        ("tilewright/torch/op.py", "import torch"),
    ],
)
def test_the_rules_allow_what_they_should(name, text):
    assert not violations(Source(None, name, text))
