"""Random kernels that combine rows at loaded places agree with the interpreter."""

# mypy: ignore-errors

from __future__ import annotations

import pytest

from tests.loops.random_rows import differs


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_rows(tmp_path, first):
    assert not [said for seed in range(first, first + 20) if (said := differs(seed, tmp_path))]
