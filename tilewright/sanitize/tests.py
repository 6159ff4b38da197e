"""Tests of pytest with checks in their kernels."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tilewright.base.checks import parse_checks
from tilewright.base.errors import SanitizerError
from tilewright.sanitize.checking import checking

import pytest  # isort: skip


class CheckedTests:
    """Runs each test with checks.

    Args:
        wanted: names of checks.

    Raises:
        ArgumentError: there is no such check.
    """

    def __init__(self, wanted: str) -> None:
        self.wanted = ",".join(parse_checks(wanted))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, None, None]:
        """The test, and what its kernels did wrong."""
        with checking(self.wanted) as found:
            yield
        if found.faults:
            raise SanitizerError("\n".join(fault.render() for fault in found.faults), found.faults)
