"""The dims that operations go through together: operands rolled along one of them make rolled results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.test import TestOp as ValuesOp

from tests.ops.test_generated import MEMORY, SPECS, computing, samples_of
from tests.sample_kernels import _region, expected, result_types
from tilewright.ops.dims import Dims
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddIOp, MulIOp, SubIOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.shape import TransOp
from tilewright.ops.spec import OpSpec, Sample, dims_of, ring_of, spec_of

WITHOUT_RESULTS = {"tt.assert"}
NAMED = [
    spec for spec in computing(SPECS) if spec.name not in MEMORY | WITHOUT_RESULTS and (spec.dims or spec.elementwise)
]


def _dims(spec: OpSpec, sample: Sample) -> Dims | None:
    values = ValuesOp(result_types=[t for t in sample.operand_types if t is not None]).results
    regions = _region(sample, spec.name) if sample.region else []
    return dims_of(spec.op.build_op(list(values), result_types(spec, sample), sample.attrs, regions))


def _rolled(arrays, names, name):
    """The arrays with their elements one place further along every dim of a name."""
    rolled = []
    for array, own in zip(arrays, names, strict=True):
        for dim, each in enumerate(own):
            array = np.roll(array, 1, axis=dim) if each == name else array
        rolled.append(array)
    return rolled


@pytest.mark.parametrize("spec", NAMED, ids=lambda spec: spec.name)
def test_elements_come_from_their_coordinates(spec: OpSpec) -> None:
    good = [sample for sample in samples_of(spec) if sample.error is None]
    assert good
    for sample in good:
        dims = _dims(spec, sample)
        if dims is None:
            continue
        given = [array for array in sample.operands if array is not None]
        made = expected(spec, sample)
        for name in {name for names in dims.operands for name in names} - dims.met:
            again = expected(spec, replace(sample, operands=tuple(_rolled(given, dims.operands, name))))
            with np.errstate(invalid="ignore"):
                for want, found in zip(_rolled(made, dims.results, name), again, strict=True):
                    np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=1e-5)


@pytest.mark.parametrize("kind", [DotOp, ReduceOp, TransOp], ids=lambda kind: kind.name)
def test_the_names_of_some(kind) -> None:
    wanted = {
        DotOp: Dims(((0, 2), (2, 1), (0, 1)), ((0, 1),), frozenset({2})),
        ReduceOp: Dims(((0, 1),), ((0,),), frozenset({1})),
        TransOp: Dims(((0, 1),), ((1, 0),)),
    }
    found = [_dims(spec_of(kind), sample) for sample in samples_of(spec_of(kind)) if sample.error is None]
    assert wanted[kind] in found


@pytest.mark.parametrize("kind", [AddIOp, SubIOp, MulIOp], ids=lambda kind: kind.name)
def test_rings_compute_what_references_compute(kind) -> None:
    values = ValuesOp(result_types=list(samples_of(spec_of(kind))[0].operand_types)).results  # type: ignore[arg-type]
    compute = ring_of(kind.build_op(list(values), [values[0].type]))
    assert compute is not None
    for sample in samples_of(spec_of(kind)):
        if sample.error is None and not any(o.dtype == bool for o in sample.operands if o is not None):
            small = replace(sample, operands=tuple(array % 10 for array in sample.operands if array is not None))
            (made,) = expected(spec_of(kind), small)
            a, b = (array.astype(np.int64) for array in small.operands if array is not None)
            np.testing.assert_array_equal(compute(a, b) % 2**8, made.astype(np.int64) % 2**8)
