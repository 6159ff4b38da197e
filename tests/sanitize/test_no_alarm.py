"""Right programs: no check says anything of the corpus. `make stress` runs all of it with all checks."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

import torch

from tests.corpus import every
from tests.corpus.case import New
from tilewright.sanitize import checking

ALL = bool(os.environ.get("TILEWRIGHT_STRESS"))
NAMES = list(every.CASES) if ALL else list(every.CASES)[::40]


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(New, "empty", lambda self, *shape, dtype=torch.float32: torch.empty(shape, dtype=dtype))
    case = every.CASES[name]
    with checking("all") as found:
        case.check("cpu", case.small)
    assert not found.faults, "\n".join(fault.render() for fault in found.faults)
