"""Random reductions over iterations agree with the interpreter."""

# mypy: ignore-errors

from __future__ import annotations

import pytest

from tests.loops.random_reductions import differs


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_reductions(tmp_path, first):
    assert not [said for seed in range(first, first + 20) if (said := differs(seed, tmp_path))]
