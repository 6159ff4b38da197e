"""Every file says what it is for, and every public function what it does."""

from __future__ import annotations

import ast

import pytest

from tests.meta.sources import FunctionNode, Source, sources


def undocumented(source: Source) -> list[str]:
    """Names that lack a docstring: the module itself and its public functions (overloads aside)."""
    empty = not source.tree.body
    found = [] if empty or ast.get_docstring(source.tree) else [source.module]
    for node in source.tree.body:
        if isinstance(node, FunctionNode) and not node.name.startswith("_"):
            overload = any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
            if not overload and not ast.get_docstring(node):
                found.append(f"{source.module}.{node.name}")
    return found


@pytest.mark.parametrize("source", sources("tilewright", "benchmarks"), ids=lambda source: source.name)
def test_docstrings(source):
    assert not undocumented(source)


@pytest.mark.parametrize("source", sources("examples"), ids=lambda source: source.name)
def test_examples_say_what_they_show(source):
    assert len((ast.get_docstring(source.tree) or "").splitlines()) >= 3


def test_the_rule_sees_what_it_must():
    text = "def f(): ...\ndef _g(): ...\n@overload\ndef h(): ..."
    assert undocumented(Source(None, "a/b.py", text)) == ["a.b", "a.b.f"]
