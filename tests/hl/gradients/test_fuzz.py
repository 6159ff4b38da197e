"""A few random kernels; `python -m tests.hl.gradients.fuzz --count 2000` runs many."""

from __future__ import annotations

import pytest

from tests.hl.fuzz.programs import program
from tests.hl.gradients.fuzz import check
from tests.hl.gradients.kept import KEPT


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_random_kernels(first):
    found = {check(program(seed), seed) for seed in range(first, first + 4)}
    assert found <= {"right", "refused", "no reference"}


@pytest.mark.parametrize("name", KEPT)
def test_kernels_that_were_wrong_or_refused(name):
    assert check(KEPT[name].program()) == "right"
