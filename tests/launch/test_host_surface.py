"""docs/state_host.md: each name of Triton's host side is what the page says of it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.base.knobs import knobs

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<state>\w+) \| (?P<remark>.*) \|$", re.MULTILINE)


def rows():
    return ROW.findall((ROOT / "docs" / "state_host.md").read_text())


@pytest.fixture(scope="module")
def found():
    """State by name in a process in which Tilewright poses as Triton."""
    names = [name for name, _, _ in rows()]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("host_names.py"))],
        input="\n".join(names),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(names, json.loads(done.stdout), strict=True))


def test_the_page_says_what_is_there(found):
    assert len(found) > 300
    assert {name: state for name, (state, _) in found.items()} == {name: state for name, state, _ in rows()}


def test_what_is_refused_has_a_reason_and_says_it(found):
    assert not [name for name, state, remark in rows() if state != "yes" and not remark.strip()]
    said = {name: (remark, found[name][1]) for name, _, remark in rows() if found[name][1]}
    assert not {name: pair for name, pair in said.items() if pair[0] != pair[1]}


def test_nothing_is_missing():
    """Every name works or is refused with a reason."""
    assert not {name for name, state, _ in rows() if state == "missing"}


def test_a_compilation_error_is_made_as_triton_makes_it():
    text = "def kernel(x):\n    y = z\n"
    node = ast.parse(text).body[0].body[0]
    error = tilewright.CompilationError(text, node, "z is not there")
    assert str(error) == "line 2: y = z\nz is not there"
    assert str(tilewright.CompilationError(text, None, "all wrong")) == "all wrong"


def test_launch_hooks_are_attributes_of_the_class_of_kernels():
    def hook(metadata):
        raise AssertionError

    with knobs.runtime.scope():
        tilewright.CompiledKernel.launch_enter_hook = hook
        assert knobs.runtime.launch_enter_hook.calls == [hook]
        assert tilewright.CompiledKernel.launch_enter_hook is knobs.runtime.launch_enter_hook
        tilewright.CompiledKernel.launch_enter_hook = None
        assert not knobs.runtime.launch_enter_hook
