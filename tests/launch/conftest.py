"""What tests of launches share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.launch import tracer_slot


@pytest.fixture
def untraced() -> Iterator[None]:
    """No tracer asks for launches; `tilewright.torch` has one, if a test of this process has imported it."""
    with tracer_slot.held_by(None):
        yield
