"""Parameters typed as anything at all: a share that only shrinks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.meta.sources import ROOT

MOST = 0.09  # of all annotated parameters, without *args and **kwargs; lower it with what becomes known


def annotations() -> Iterator[str]:
    for path in sorted((ROOT / "tilewright").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                    if parameter.annotation is not None:
                        yield ast.unparse(parameter.annotation)


def test_few_parameters_are_of_any_type() -> None:
    found = list(annotations())
    share = sum(text in ("Any", "object") for text in found) / len(found)
    assert share <= MOST, f"{share:.1%} of {len(found)} annotated parameters are Any or object"
    assert share > MOST - 0.005, f"{share:.1%}: lower MOST"
