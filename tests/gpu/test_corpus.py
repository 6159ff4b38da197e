"""Every case of the corpus on the GPU: small, for the sanitizer's sake as well, and at the size of real programs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.corpus import every

pytestmark = pytest.mark.gpu


@pytest.mark.sanitize
@pytest.mark.parametrize("name", every.CASES)
def test_small_case(name: str) -> None:
    case = every.CASES[name]
    case.check("cuda", case.small)


@pytest.mark.parametrize("name", every.CASES)
def test_large_case(name: str) -> None:
    case = every.CASES[name]
    case.check("cuda", case.large)
