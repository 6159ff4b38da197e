"""All cases, by importing the files that register them."""

from __future__ import annotations

from tests.corpus import losses, norms
from tests.corpus.case import CASES

FILES = (losses, norms)
__all__ = ["CASES", "FILES"]
