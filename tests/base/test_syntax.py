"""Trees of Python code are made and read by many threads at once."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewright.base.syntax import code_of, parse


def test_threads_make_and_read_trees_at_once() -> None:
    """A collection of garbage amid a tree lets another thread go on, if anybody is told of it."""
    text = (
        "def f(x):\n"
        + "".join(f"    y{n} = (x + {n}) * ((x - {n}) / (2 + x))\n" for n in range(60))
        + "    return y7\n"
    )

    def made(_: int) -> float:
        scope: dict[str, object] = {}
        exec(code_of(parse(text), "<made>"), scope)
        found = scope["f"](9.0)  # type: ignore[operator]
        assert isinstance(found, float)
        return found

    def told(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(told)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(made, range(100))) == {16 * 2 / 11}
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(told)


def test_expressions_errors_and_features_are_pythons() -> None:
    assert eval(code_of(parse("1 + 2", mode="eval"), "<made>", "eval")) == 3
    with pytest.raises(SyntaxError):
        parse("1 +")
    scope: dict[str, object] = {}
    exec(code_of(parse("def f(x: 1 + 1): pass"), "<made>", flags=0), scope)
    assert scope["f"].__annotations__ == {"x": 2}  # type: ignore[attr-defined]
    assert isinstance(parse("f(x)"), ast.Module)
