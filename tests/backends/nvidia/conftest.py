"""Fixtures of the NVIDIA tests: a driver library made of Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.nvidia.fake_cuda import FakeCuda, installed


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed(FakeCuda()) as library:
        assert library is not None
        yield library
