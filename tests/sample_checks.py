"""Every sample of an operation on a back end: what it computes must be what the reference says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from tests.sample_kernels import expected, from_memory, is_runnable, kernel_of, max_ulp
from tilewright.devices.registry import BACKENDS
from tilewright.ir.types import element_type
from tilewright.ops import text  # noqa: F401  (loads every family)
from tilewright.ops.spec import REGISTRY, OpSpec, Sample

Array = np.ndarray[Any, Any]
Run = Callable[[ModuleOp, Sequence[Array]], None]


def runnable(backend: str) -> list[OpSpec]:
    """Operations with a sample that a kernel can load, compute and store on a back end."""
    return [
        spec
        for spec in REGISTRY.values()
        if spec.samples is not None
        and spec.reference is not None
        and BACKENDS[backend].backend.lowering(spec.name).how != "refused"
        and any(is_runnable(spec, s) for s in spec.samples(np.random.default_rng(0)))
    ]


def check_samples(spec: OpSpec, run: Run, allowed: Callable[[OpSpec, Attribute], float] | None = None) -> None:
    """Run all samples of an operation.

    Args:
        spec: the operation.
        run: compiles a module and runs its one program on arrays, which it changes.
        allowed: units in the last place that the back end may be off, where that is more than the sample says.
    """
    assert spec.samples is not None
    for number, sample in enumerate(spec.samples(np.random.default_rng(7))):
        if not is_runnable(spec, sample):
            continue
        kernel = kernel_of(spec, sample)
        outputs = kernel.outputs()
        run(kernel.module, [*kernel.inputs, *outputs])
        for got, want, type_ in zip(outputs, expected(spec, sample), kernel.result_types, strict=True):
            element = element_type(type_)
            found = from_memory(got, element)
            difference = max_ulp(found, want, element)
            bound = max(sample.max_ulp, allowed(spec, element) if allowed else 0)
            assert difference <= bound, f"sample {number}: {difference} ulp\n{_describe(sample, found, want)}"


def _describe(sample: Sample, found: Array, want: Array) -> str:
    """Types and attributes of the sample, and the first lanes that differ."""
    types = ", ".join(str(t) for t in (*sample.operand_types, *sample.result_types))
    lanes = np.flatnonzero(~((found == want) | ((found != found) & (want != want))))[:6]
    rows = [f"  lane {i}: got {found.flat[i]!r}, want {want.flat[i]!r}" for i in lanes]
    if all(o is None or o.size == found.size for o in sample.operands):
        rows = [
            f"{row} of {[o.flat[i] for o in sample.operands if o is not None]}"
            for row, i in zip(rows, lanes, strict=True)
        ]
    return "\n".join([f"{types} {dict(sample.attrs)}", *rows])
