"""Every example runs as it stands and passes its own checks; nothing but imports sets it apart from Triton."""

from __future__ import annotations

import ast

import pytest

from tilewright.tools import examples

FILES = sorted(examples.folder().glob("*.py"))
TRITON_IMPORTS = ["import torch", "import tilewright as triton", "import tilewright.language as tl"]
MORE = {"extern_functions": ["from tilewright.language.extra import libdevice"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_passes_its_checks(path, capsys):
    pytest.importorskip("torch")
    examples.load(path.stem).main()
    assert "max error" in capsys.readouterr().out


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_imports_only_torch_and_tilewright_as_triton(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imported == TRITON_IMPORTS + MORE.get(path.stem, [])
