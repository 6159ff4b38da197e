"""Every graph of these tests is verified after every pass."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tilewright.hl.graph import verify


@pytest.fixture(autouse=True)
def verified(monkeypatch):
    monkeypatch.setattr(verify, "after_pass", [verify.verify])
