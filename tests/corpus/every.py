"""All cases, by importing the files that register them."""

from __future__ import annotations

from tests.corpus import attention, elementwise, experts, linear_attention, losses, norms, optimisers, quantisation
from tests.corpus.case import CASES

FILES = (attention, elementwise, experts, linear_attention, losses, norms, optimisers, quantisation)
__all__ = ["CASES", "FILES"]
