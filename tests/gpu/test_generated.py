"""Every sample of every operation: what the GPU computes is what the reference says."""

from __future__ import annotations

import pytest
from xdsl.ir import Attribute

from tests.gpu.harness import Compiled
from tests.sample_checks import check_samples, runnable
from tilewright.backends.nvidia.emit.elementwise import ACCURACY
from tilewright.ir.types import ir_name
from tilewright.ops.spec import OpSpec

pytestmark = pytest.mark.gpu

RUNNABLE = runnable("cuda")


def allowed(spec: OpSpec, element: Attribute) -> float:
    """Units in the last place that the GPU's own instruction for an operation may be off."""
    return ACCURACY.get((spec.elementwise, ir_name(element)), 0)


@pytest.mark.parametrize("spec", RUNNABLE, ids=[s.name for s in RUNNABLE])
def test_samples_agree_with_the_reference(spec: OpSpec) -> None:
    check_samples(spec, lambda module, arrays: Compiled(module, passes=False)((1,), *arrays), allowed)
