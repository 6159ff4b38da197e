"""`hl.grad(kernel).to_hl()` of every example: a module that is written to a file, imported, and called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.hl.gradients.compare import check
from tests.hl.gradients.examples import CASES, Draw, Sizes, kernel
from tilewright import hl
from tilewright.hl.grad import loops
from tilewright.tools.modules import load_file


@pytest.mark.parametrize("name", CASES)
def test_text_in_a_file_is_the_backward_pass(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients of a call are right with the kernels of the file in the place of those that were derived."""
    where, example = CASES[name]
    args = example.make(Draw(), Sizes(13, 9, 5))
    file = tmp_path / "written.py"
    file.write_text(hl.grad(kernel(where, wide=True)).to_hl(args))
    module = load_file(file, f"written_{tmp_path.name}")
    called: list[str] = []

    def from_the_file(text: str, name: str, *_: Any) -> hl.Kernel:
        called.append(name)
        found = getattr(module, name)
        assert isinstance(found, hl.Kernel)
        return found

    monkeypatch.setattr(loops, "kernel_of", from_the_file)
    fresh = hl.kernel(kernel(where, wide=True).fn, configs=kernel(where).configs)
    check(fresh, example.reference, *args)
    assert called
    sys.modules.pop(f"written_{tmp_path.name}", None)


@pytest.mark.parametrize("name", CASES)
def test_the_default_device_is_nothing_to_derivations(name: str) -> None:
    """A program may have its default device on a GPU; samples of a trace are where they are."""
    where, example = CASES[name]
    args = example.make(Draw(), Sizes(13, 9, 5))
    try:
        torch.set_default_device("meta")
        text = hl.grad(hl.kernel(kernel(where, wide=True).fn)).to_hl(args)
    finally:
        torch.set_default_device(None)
    assert text == hl.grad(hl.kernel(kernel(where, wide=True).fn)).to_hl(args)
