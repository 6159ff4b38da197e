"""Every case of the corpus on the CPU, in small."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.corpus import every


def test_there_are_a_hundred() -> None:
    assert len(every.CASES) >= 100


@pytest.mark.parametrize("name", every.CASES)
def test_case(name: str) -> None:
    case = every.CASES[name]
    case.check("cpu", case.small)
