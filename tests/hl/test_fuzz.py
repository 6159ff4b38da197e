"""150 random kernels, a random configuration each, against the tiled reference.

Two of three run through the interpreter, which takes half of the time that compiling takes and checks every access:
what is asked here is what hl emits. `make fuzz-hl CASES=2000` compiles all, under three configurations each.
"""

from __future__ import annotations

import pytest

from tests.hl.fuzz.compare import check
from tilewright.base.knobs import knobs


@pytest.mark.parametrize("first", range(0, 150, 15))
def test_random_kernels(first, monkeypatch):
    for seed in range(first, first + 15):
        monkeypatch.setattr(knobs.runtime, "interpret", seed % 3 > 0)
        check(seed)


@pytest.mark.parametrize("seed", [30116, 7303017], ids=["masks in registers above 15", "33 columns"])
def test_kernels_that_failed_once(seed):
    check(seed, 2)
