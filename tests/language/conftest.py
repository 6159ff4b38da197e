"""Makes the fixture `backend` known to the tests of this folder, and that of the ways in which programs run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tilewright
import tilewright.sanitize
from tests.language.kernel_runner import backend

__all__ = ["backend", "way"]


@pytest.fixture(params=["compiled", "interpreted", "checked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program runs compiled, interpreted, and under checks, which find no fault."""
    if request.param == "interpreted":
        monkeypatch.setattr(tilewright.knobs.runtime, "interpret", True)
    if request.param != "checked":
        yield
        return
    with tilewright.sanitize.checking() as found:
        yield
    assert not found.faults
