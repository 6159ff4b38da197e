"""Facts that operations state about themselves hold for their references: monoids, views."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.traits import View
from tilewright.ops import families
from tilewright.ops.spec import REGISTRY, Call

assert families.FAMILIES
MONOIDS = [name for name, spec in REGISTRY.items() if spec.monoid is not None]
VIEWS = [name for name, spec in REGISTRY.items() if spec.op.has_trait(View)]


def _operands(name: str) -> list[tuple[np.ndarray, np.ndarray, object]]:
    """Pairs of operands that the samples of a binary operation give, with their type."""
    samples = REGISTRY[name].samples(np.random.default_rng(7))
    return [(*sample.operands, sample.operand_types[0]) for sample in samples if sample.error is None]


@pytest.mark.parametrize("name", MONOIDS)
def test_the_neutral_element_changes_nothing(name):
    spec = REGISTRY[name]
    assert spec.monoid is not None and spec.reference is not None
    for left, _, type_ in _operands(name):
        bits = 1 if left.dtype == np.bool_ else left.dtype.itemsize * 8
        neutral = np.full(left.shape, spec.monoid.identity(bits)).astype(left.dtype)
        made = spec.reference(Call({}, (type_, type_), (type_,)), left, neutral)
        numbers = left == left
        assert np.array_equal(made[numbers], left[numbers])


@pytest.mark.parametrize("name", MONOIDS)
def test_operands_may_be_exchanged(name):
    spec = REGISTRY[name]
    assert spec.monoid is not None and spec.reference is not None and spec.monoid.commutes
    for left, right, type_ in _operands(name):
        call = Call({}, (type_, type_), (type_,))
        one, other = spec.reference(call, left, right), spec.reference(call, right, left)
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@pytest.mark.parametrize("name", MONOIDS)
def test_an_element_and_itself_make_that_element(name):
    spec = REGISTRY[name]
    assert spec.monoid is not None and spec.reference is not None
    same = []
    for left, _, type_ in _operands(name):
        made = spec.reference(Call({}, (type_, type_), (type_,)), left, left)
        same.append(np.array_equal(made, left, equal_nan=made.dtype.kind == "f"))
    assert all(same) == spec.monoid.idempotent


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_gives_elements_of_its_operands(name):
    spec = REGISTRY[name]
    assert spec.reference is not None and spec.samples is not None
    for sample in spec.samples(np.random.default_rng(7)):
        if sample.error is None:
            types = sample.result_types or tuple(spec.infer(Call(sample.attrs, sample.operand_types)))
            made = spec.reference(Call(sample.attrs, sample.operand_types, types), *sample.operands)
            given = np.concatenate([np.ravel(operand) for operand in sample.operands])
            for result in made if isinstance(made, tuple) else (made,):
                assert np.isin(np.ravel(result), given).all()


def test_facts_are_stated():
    assert {"arith.addi", "arith.maxnumf"} <= set(MONOIDS) and "arith.subi" not in MONOIDS
    assert {"tt.splat", "tt.trans", "tt.cat"} <= set(VIEWS) and "tt.gather" not in VIEWS
