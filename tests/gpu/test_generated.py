"""Every sample of every operation: what the GPU computes is what the reference says."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Attribute

from tests.gpu.harness import Compiled
from tests.sample_kernels import expected, from_memory, is_runnable, kernel_of, max_ulp
from tilewright.backends.nvidia.emit.elementwise import ACCURACY
from tilewright.ir.types import element_type, ir_name
from tilewright.ops import text  # noqa: F401  (loads every family)
from tilewright.ops.spec import REGISTRY, Elementwise, OpSpec, Refused

pytestmark = pytest.mark.gpu

RUNNABLE = [
    spec
    for spec in REGISTRY.values()
    if spec.samples is not None
    and spec.reference is not None
    and not isinstance(spec.lowering["cuda"], Refused)
    and any(is_runnable(spec, s) for s in spec.samples(np.random.default_rng(0)))
]


def allowed(spec: OpSpec, element: Attribute) -> float:
    """Units in the last place that the GPU's own instruction for an operation may be off."""
    lowering = spec.lowering["cuda"]
    return ACCURACY.get((lowering.name, ir_name(element)), 0) if isinstance(lowering, Elementwise) else 0


@pytest.mark.parametrize("spec", RUNNABLE, ids=[s.name for s in RUNNABLE])
def test_samples_agree_with_the_reference(spec: OpSpec) -> None:
    assert spec.samples is not None
    for number, sample in enumerate(spec.samples(np.random.default_rng(7))):
        if not is_runnable(spec, sample):
            continue
        kernel = kernel_of(spec, sample)
        outputs = kernel.outputs()
        Compiled(kernel.module, passes=False)((1,), *kernel.inputs, *outputs)
        for got, want, type_ in zip(outputs, expected(spec, sample), kernel.result_types, strict=True):
            element = element_type(type_)
            found = from_memory(got, element)
            difference = max_ulp(found, want, element)
            bound = max(sample.max_ulp, allowed(spec, element))
            types = ", ".join(str(t) for t in (*sample.operand_types, *sample.result_types))
            assert difference <= bound, f"sample {number}: {difference} ulp of {types} {dict(sample.attrs)}"
