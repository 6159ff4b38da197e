"""docs/errors.md shows what the mistakes on it give today."""

from __future__ import annotations

import pytest

from tilewright.tools import error_page, gallery


@pytest.mark.parametrize("case", gallery.CASES, ids=lambda case: case.title)
def test_the_mistake_is_explained(case):
    text = error_page.run(case, gallery.PAGE.header)
    assert "Error: " in text or "Construct: " in text or "Failure: " in text
    assert "hint: " in text or "assert" in case.code  # what an assertion says is the user's own text
    if text.startswith(("CompilationError", "Unsupported", "CompileTime")):
        assert 'File "kernels.py", line' in text and "^" in text


def test_the_page_is_up_to_date():
    assert gallery.is_current(gallery.PAGE), "run make docs"
