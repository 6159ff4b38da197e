"""Source capture: text, positions, closures, and functions without a source."""

from __future__ import annotations

import ast
import linecache
from pathlib import Path

import pytest

from tests.frontend.helpers import line_of
from tilewright.base.callable import BlockFunction
from tilewright.base.errors import LanguageValueError
from tilewright.frontend.source import source_of


# fmt: off
@BlockFunction
def decorated(
    x,
    y=(
1, 2),
):  # closing brackets and strings may stand left of the body
    """Text
at the margin.
    """
    # a comment

    return x
# fmt: on


AFTER = 1


def test_text_starts_at_the_def_and_ends_with_the_body() -> None:
    source = source_of(decorated)
    assert source.text.startswith("def decorated(\n")
    assert source.text.endswith("return x\n")
    assert source.first_line == line_of(decorated, "def decorated")
    assert source.name == "decorated"


def test_places_of_an_indented_function_are_those_of_the_file() -> None:
    offset = 3

    def kernel(x):
        y = x + offset
        return y

    source = source_of(BlockFunction(kernel))
    assign = source.tree.body[0]
    place = source.location(assign)
    assert Path(place.file).samefile(__file__)
    assert place.source_line()[place.col : place.end_col] == "y = x + offset"
    assert source.text.startswith("def kernel(x):\n    y = x")
    assert source.closure == {"offset": 3}


def test_columns_count_characters_not_bytes() -> None:
    def kernel(x):
        return "größe" + x

    node = source_of(BlockFunction(kernel)).tree.body[0]
    assert isinstance(node, ast.Return) and isinstance(node.value, ast.BinOp)
    place = source_of(BlockFunction(kernel)).location(node.value.right)
    assert place.source_line()[place.col : place.end_col] == "x"


def test_a_later_edit_of_the_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text("def kernel(x):\n    return x + 1\n")
    namespace: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    source = source_of(BlockFunction(namespace["kernel"]))  # type: ignore[arg-type]
    path.write_text("# moved\n\ndef kernel(x):\n    return x + 2\n")
    linecache.checkcache()
    assert "x + 1" in source.text


def test_a_long_file_is_not_parsed_whole(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text("def kernel(x):\n    return x\n\n" + "this is not Python\n" * 1000)
    namespace: dict[str, object] = {}
    exec(compile("def kernel(x):\n    return x\n", str(path), "exec"), namespace)
    assert source_of(BlockFunction(namespace["kernel"])).text == "def kernel(x):\n    return x\n"  # type: ignore[arg-type]


def test_decorators_of_many_lines_are_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def marked(*facts):
        return lambda fn: fn

    # fmt: off
    @marked(
    4096,
    )
    @BlockFunction
    def plain(x):
        return x

    @marked(
        """
    def none(x):
    """
    )
    @BlockFunction
    def kernel(x):
        return x
    # fmt: on

    texts: list[str] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda *given, **named: texts.append(given[0]) or parse(*given, **named))
    assert source_of(plain).text == "def plain(x):\n    return x\n" and len(texts) == 1
    assert source_of(kernel).text == "def kernel(x):\n    return x\n"  # after trying what looks like a function
    monkeypatch.undo()
    assert source_of(kernel).first_line == line_of(kernel, "def kernel")


def test_no_file_is_a_clear_error() -> None:
    namespace: dict[str, object] = {}
    exec("def kernel(x):\n    return x\n", namespace)
    with pytest.raises(LanguageValueError, match="the source of kernel cannot be read.*'<string>' is not a file"):
        source_of(BlockFunction(namespace["kernel"]))  # type: ignore[arg-type]


def test_lambda_is_a_clear_error() -> None:
    with pytest.raises(LanguageValueError, match="no function definition at line"):
        source_of(BlockFunction(lambda x: x)).tree
