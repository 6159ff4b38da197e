"""The helper for FileCheck fails where it must."""

from __future__ import annotations

import pytest

from tests.filecheck_text import filecheck


def test_checks_that_hold() -> None:
    filecheck("first\nsecond\n", "CHECK: first\nCHECK-NEXT: second")


@pytest.mark.parametrize(
    "checks", ["CHECK: third", "CHECK: second\nCHECK: first", "CHECK-COUNT-2: first", "CHECK-NOT: second"]
)
def test_checks_that_do_not(checks: str) -> None:
    with pytest.raises(AssertionError):
        filecheck("first\nsecond\n", checks)
