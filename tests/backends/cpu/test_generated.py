"""Every sample of every operation: what the CPU computes is what the reference says."""

from __future__ import annotations

import pytest

from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.sample_checks import check_samples, runnable
from tilewright.ops.spec import REGISTRY, OpSpec

RUNNABLE = runnable("cpu")


@pytest.mark.parametrize("spec", RUNNABLE, ids=[s.name for s in RUNNABLE])
def test_samples_agree_with_the_reference(spec: OpSpec) -> None:
    check_samples(spec, lambda module, arrays: Compiled(module, passes=False)((1,), *arrays))


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_of_products_agree_for_every_family(family: str) -> None:
    isa = FAMILIES[family].isa
    check_samples(REGISTRY["tt.dot"], lambda module, arrays: Compiled(module, passes=False, isa=isa)((1,), *arrays))
