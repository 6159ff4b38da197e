"""Pages that are written from the code are what the code says."""

from __future__ import annotations

import pytest

from tests.meta.sources import ROOT
from tilewright.tools.docgen import PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_up_to_date(page: str) -> None:
    """Texts of its own are in `tools/surface.py` and `tools/remains.py`; `make docs` writes it anew."""
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == PAGES[page]()
