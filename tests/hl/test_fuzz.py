"""150 random kernels, a random configuration each, against the tiled reference."""

from __future__ import annotations

import pytest

from tests.hl.fuzz.compare import check


@pytest.mark.parametrize("first", range(0, 150, 15))
def test_random_kernels(first):
    for seed in range(first, first + 15):
        check(seed)
