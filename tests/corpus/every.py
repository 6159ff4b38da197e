"""All cases, by importing the files that register them."""

from __future__ import annotations

from tests.corpus import (
    attention,
    concurrency,
    convolutions,
    elementwise,
    experts,
    indexing,
    linear_attention,
    losses,
    norms,
    optimisers,
    products,
    quantisation,
    sampling,
)
from tests.corpus.case import CASES

FILES = (
    attention,
    concurrency,
    convolutions,
    elementwise,
    experts,
    indexing,
    linear_attention,
    losses,
    norms,
    optimisers,
    products,
    quantisation,
    sampling,
)
__all__ = ["CASES", "FILES"]
