"""A few random kernels; `python -m tests.hl.gradients.fuzz --count 2000` runs many."""

from __future__ import annotations

import pytest

from tests.hl.gradients.fuzz import check


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_random_kernels(first):
    assert {check(seed) for seed in range(first, first + 4)} <= {"right", "refused", "no reference"}


@pytest.mark.parametrize("seed", [5, 38, 46, 20075, 20079, 20550])
def test_kernels_that_were_wrong_or_refused(seed):
    assert check(seed) == "right"
