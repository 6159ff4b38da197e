"""Derived kernels run through the interpreter, which checks every access and takes less than compiling them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.base.knobs import knobs


@pytest.fixture
def interpreted(monkeypatch):
    """Nothing is compiled."""
    monkeypatch.setattr(knobs.runtime, "interpret", True)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and "compiled" not in item.keywords:
            item.fixturenames.append("interpreted")


def pytest_configure(config):
    config.addinivalue_line("markers", "compiled: derived kernels are compiled, not interpreted")
