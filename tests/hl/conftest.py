"""Every graph of these tests is verified after every pass. Without torch nothing is collected here."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture(autouse=True)
def verified(monkeypatch):
    from tilewright.hl.graph import verify

    monkeypatch.setattr(verify, "after_pass", [verify.verify])
