"""Random kernels: the derived gradient against differences of the kernel itself (`random_kernels.py` at length)."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tests.gradients.random_kernels import check


@pytest.mark.parametrize("seed", range(12))
def test_evaluated(seed: int, tmp_path: Path) -> None:
    with tilewright.knobs.runtime.scope():
        tilewright.knobs.runtime.interpret = True
        assert not check(seed, tmp_path)


@pytest.mark.parametrize("seed", range(100, 103))
def test_compiled(seed: int, tmp_path: Path) -> None:
    assert not check(seed, tmp_path)
