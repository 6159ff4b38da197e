"""The graphs and generated modules of examples are what they were; `python -m tests.hl.golden_cases` writes them."""

from __future__ import annotations

import pytest

from tests.hl import golden_cases


@pytest.mark.parametrize("case", golden_cases.CASES)
def test_text(case):
    assert golden_cases.text_of(case) == golden_cases.path_of(case).read_text(encoding="utf-8")
