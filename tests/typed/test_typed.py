"""Type checkers accept programs that are right, find what is wrong, and a kernel tells its signature."""

from __future__ import annotations

import importlib.util
import inspect
import pydoc
import re

import pytest

import tilewright
import tilewright.language as tl
from tests.typed import checkers
from tilewright.devices.registry import OPTION_NAMES
from tilewright.launch.bind import LAUNCH_OPTIONS
from tilewright.launch.typed import Launch

# What code asks of Triton's options: nobody gives them to a launch.
FACTS = {
    "allowed_dot_input_precisions", "arch", "backend_name", "deprecated_fp8_dot_operand_dtypes", "instrumentation_mode",
    "max_num_imprecise_acc_default", "supported_fp8_dtypes", "warp_size",
}  # fmt: skip


@tilewright.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 64):
    """Adds one to the other."""


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_tells_right_from_wrong():
    assert checkers.differences(checkers.by_mypy()) == []


def test_there_are_enough_snippets():
    right = checkers.RIGHT.read_text().split("\n@tilewright.jit\ndef body")[1]
    assert len([line for line in right.splitlines() if line.startswith((" ", "add", "scale", "scaled"))]) >= 60
    assert len(checkers.expected()) >= 60


def test_each_option_of_a_launch_has_a_row():
    named = re.findall(r"\*args: Any, (\w+): ", inspect.getsource(Launch))
    assert set(named) == (LAUNCH_OPTIONS | OPTION_NAMES) - FACTS


@pytest.mark.parametrize(
    "thing, parameters",
    [
        (add, ["x_ptr", "y_ptr", "n", "BLOCK"]),
        (tl.sum, ["input", "axis", "keep_dims", "dtype"]),
        (tl.arange, ["start", "end", "_semantic"]),
        (tl.constexpr_function(lambda n: n), ["n"]),
    ],
)
def test_signatures_can_be_asked_for(thing, parameters):
    assert list(inspect.signature(thing).parameters) == parameters


def test_help_shows_the_function():
    assert add.__doc__ == "Adds one to the other." and add.__name__ == "add"
    shown = pydoc.plain(pydoc.render_doc(tl.arange))
    assert "start" in shown and "Args:" in shown
    assert "Adds one to the other." in pydoc.plain(pydoc.render_doc(add))


def test_completion_finds_the_language():
    assert {"load", "store", "constexpr", "float32", "sum"} <= set(dir(tl))
    assert {"warmup", "precompile", "fn"} <= set(dir(add))


def test_the_stub_has_the_names_of_its_module():
    from tilewright.language import annotations

    text = inspect.getsource(annotations).split("__all__")[0]
    stub = (checkers.ROOT / "tilewright/language/annotations.pyi").read_text()
    for name in annotations.__all__:
        assert name in text and f"    {name}: Any\n" in stub and f"class {name}: ..." in stub
