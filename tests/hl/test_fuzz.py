"""60 random kernels, a random configuration each, against the tiled reference.

Four fifths of their time is compiling (0.3 to 0.6 s of CPU a kernel, however short its expressions), so their number is
what holds this file under 40 s. `make fuzz-hl CASES=2000` is the long form.
"""

from __future__ import annotations

import pytest

from tests.hl.fuzz.compare import check


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_kernels(first):
    for seed in range(first, first + 15):
        check(seed)
