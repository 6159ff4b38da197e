"""Random whole kernels: what the GPU leaves in memory is what the reference evaluator leaves there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.case import load
from tests.fuzz.check import compare, run_on_gpu, run_reference, tile_ir
from tests.fuzz.generator import Profile, generate

pytestmark = pytest.mark.gpu
SEEDS = range(50_000, 50_150)


@pytest.mark.parametrize("any_shape", [False, True], ids=["powers_of_two", "any_shape"])
@pytest.mark.parametrize("seed", [pytest.param(s, marks=[pytest.mark.sanitize] if s % 15 == 0 else []) for s in SEEDS])
def test_random_kernel(tmp_path: Path, seed: int, any_shape: bool) -> None:
    path = tmp_path / f"case_{seed}_{any_shape}.py"
    path.write_text(generate(seed, Profile(any_shape=any_shape)).source())
    case = load(path)
    assert compare(case, run_reference(case), run_on_gpu(case, tile_ir(case))) == ""
