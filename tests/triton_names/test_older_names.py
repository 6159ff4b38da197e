"""Every name and behaviour of older launch interfaces that programs ask for works, or is refused with its reason.

The table is `older_names.ROWS`; it runs once, in a process in which Tilewright poses as Triton.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.triton_names.test_inductor import posing

pytest.importorskip("torch")
PROGRAM = Path(__file__).with_name("older_names.py")


def names() -> list[str]:
    """Of the rows, by the text of the program, which this process cannot import."""
    calls = [
        decorator
        for node in ast.walk(ast.parse(PROGRAM.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "row"
    ]
    return [ast.literal_eval(call.args[0]) for call in calls]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    said = posing(tmp_path_factory.mktemp("older"), "-m", "tests.triton_names.older_names")
    return dict(json.loads(said.splitlines()[-1]))


@pytest.mark.parametrize("name", names())
def test_a_name_does_what_programs_expect(name: str, found: dict[str, str]) -> None:
    assert not found[name], found[name]
