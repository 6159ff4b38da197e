"""Tuned numbers stand in one file a back end, and each says where its value comes from."""

from __future__ import annotations

import ast
import re

import pytest

from tests.meta.sources import sources

FILES = [source for source in sources("tilewright/backends") if source.name.endswith("/tuning.py")]


def test_both_back_ends_that_make_code_have_one():
    assert {source.name.split("/")[2] for source in FILES} == {"cpu", "nvidia"}


@pytest.mark.parametrize("source", FILES, ids=lambda source: source.name)
def test_every_number_says_whether_it_was_measured(source):
    lines = source.text.splitlines()
    for node in source.tree.body:
        if isinstance(node, ast.Assign):
            first = node.lineno - 1
            while lines[first - 1].startswith("# ") and not lines[first - 1].startswith("# ---"):
                first -= 1
            comment = " ".join(lines[first : node.lineno - 1])
            assert re.search(r"\b(Measured:|Not measured|not measured)", comment), f"{source.name}:{node.lineno}"


@pytest.mark.parametrize("source", FILES, ids=lambda source: source.name)
def test_every_number_is_used(source):
    names = {target.id for node in source.tree.body if isinstance(node, ast.Assign) for target in node.targets}
    folder = source.name.rpartition("/")[0]
    text = "\n".join(other.text for other in sources(folder) if other.name != source.name)
    assert all(f"tuning.{name}" in text for name in names), names
