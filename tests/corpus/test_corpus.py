"""Every case of the corpus on the CPU, in small."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tests.corpus import every
from tests.corpus.forward_only import FORWARD_ONLY

WITHOUT_GRADIENT = [name for names in FORWARD_ONLY.values() for name in names]


def test_there_are_a_hundred() -> None:
    assert len(every.CASES) >= 100
    assert set(WITHOUT_GRADIENT) <= set(every.CASES)


@pytest.mark.parametrize("name", every.CASES)
def test_case(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and gradients are PyTorch's; a case without gradients is one that says why it has none."""
    differentiate, taken = torch.autograd.grad, list[str]()

    def watched(*arguments: Any, **options: Any) -> Any:
        taken.append(name)
        return differentiate(*arguments, **options)

    monkeypatch.setattr(torch.autograd, "grad", watched)
    case = every.CASES[name]
    case.check("cpu", case.small)
    assert bool(taken) != (name in WITHOUT_GRADIENT)
