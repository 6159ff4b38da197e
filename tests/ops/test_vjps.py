"""The gradient rule of every operation, against finite differences of its own reference in float64."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np
import pytest
from xdsl.ir import Attribute

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.eager import EagerEmitter
from tilewright.backends.reference.evaluate import Program
from tilewright.backends.reference.value import EagerValue
from tilewright.base.errors import LanguageValueError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.ir.types import dtype_of, element_type, is_float, is_pointer, scalar_type, shape_of, with_element
from tilewright.ops import text  # noqa: F401  (loads every family)
from tilewright.ops.elementwise_base import tile
from tilewright.ops.reverse import Reverse
from tilewright.ops.spec import REGISTRY, Array, Call, NoGradient, OpSpec, Sample

F64 = scalar_type("f64")
CASTS = {"arith.extf", "arith.truncf", "tt.fp_to_fp"}  # of which the type is the point
STEP = 1e-6


def _good(spec: OpSpec) -> list[Sample]:
    """Samples that compute something, the same in every run."""
    if spec.samples is None:
        return []
    rng = np.random.default_rng(zlib.crc32(spec.name.encode()))
    return [sample for sample in spec.samples(rng) if sample.error is None]


def _touches_floats(spec: OpSpec) -> bool:
    types = [t for s in _good(spec) for t in (*s.operand_types, *s.result_types) if t is not None]
    types += [t for s in _good(spec) for t in spec.infer(Call(s.attrs, s.operand_types, s.result_types))]
    return any(is_float(element_type(t)) for t in types) or not types


# These have no rule of their own: `gradients/` knows them or refuses them, passes before it have removed them, or they
# give no value that depends on another.
HANDLED = frozenset(
    {
        "tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "tt.atomic_store",
        "tt.make_tensor_descriptor", "tt.descriptor_load", "tt.descriptor_store", "scf.for", "scf.if", "scf.while",
        "scf.yield", "scf.condition", "tt.func", "tt.return", "tt.call", "tt.reduce.return", "tt.scan.return",
        "cf.br", "cf.cond_br", "llvm.unreachable", "ub.poison", "arith.constant", "tt.print", "tt.assert",
        "ttg.barrier", "tt.check", "tt.promise", "tt.get_program_id", "tt.get_num_programs",
    }
)  # fmt: skip
WITH_RULE = [spec for spec in REGISTRY.values() if callable(spec.vjp)]


@pytest.mark.parametrize("spec", REGISTRY.values(), ids=lambda s: s.name)
def test_every_operation_on_floats_has_a_rule_or_says_why_not(spec: OpSpec) -> None:
    """Closure: an operation without one of the two would cut gradients off in silence."""
    known = spec.vjp is not None or spec.name in HANDLED
    assert known or not _touches_floats(spec), f"{spec.name} is differentiated by nobody and refused by nobody"
    if isinstance(spec.vjp, NoGradient):
        assert spec.vjp.reason and spec.vjp.hint


def _wide(type_: Attribute | None) -> Attribute | None:
    """The type with float64 in the place of other floats."""
    return with_element(type_, F64) if type_ is not None and is_float(element_type(type_)) else type_


class _Case:
    """A sample in float64, with values at which every function has a derivative."""

    def __init__(self, spec: OpSpec, sample: Sample, rng: np.random.Generator) -> None:
        self.spec, self.combines = spec, sample.region or ""
        program = Program(Memory(), (0, 0, 0), (1, 1, 1))
        self.b = EagerEmitter(Target("cpu", "generic"), dataclasses.replace(Options(), enable_fp_fusion=False), program)
        types = tuple(t if spec.name in CASTS else _wide(t) for t in sample.operand_types)
        asked = tuple(t if spec.name in CASTS else _wide(t) for t in sample.result_types)
        self.regions = (self._body(types[0]),) if sample.region else ()
        self.operands = [
            rng.uniform(0.2, 0.9, v.shape).astype(v.dtype if spec.name in CASTS else np.float64)
            if is_float(element_type(t))
            else np.asarray(v)
            for v, t in zip(sample.operands, types, strict=True)
            if t is not None and v is not None
        ]
        if spec.name == "tt.clampf":  # a lower limit above the upper one has no meaning
            self.operands[1:] = [np.minimum(*self.operands[1:]), np.maximum(*self.operands[1:])]
        call = Call(sample.attrs, types, asked)
        results = tuple(spec.infer(call))
        self.call = dataclasses.replace(call, result_types=results, regions=self.regions)
        self.seeds = [
            rng.uniform(-1, 1, shape_of(t)) if is_float(element_type(t)) else np.zeros(shape_of(t)) for t in results
        ]

    def _body(self, type_: Attribute) -> object:
        element = dtype_of(element_type(type_))
        cls = REGISTRY[self.combines].op
        return self.b.region([element] * 2, lambda x, y: [self.b.emit(cls, x.type, x, y)], cls)

    def value(self, operands: list[Array]) -> float:
        """The results, weighted by the seeds."""
        assert self.spec.reference is not None
        found = self.spec.reference(self.call, *operands)
        found = found if isinstance(found, tuple) else (found,)
        return float(sum((np.asarray(f, np.float64) * s).sum() for f, s in zip(found, self.seeds, strict=True)))

    def gradients(self) -> list[Array | None]:
        assert self.spec.reference is not None and callable(self.spec.vjp)
        found = self.spec.reference(self.call, *self.operands)
        found = found if isinstance(found, tuple) else (found,)
        work = [dtype_of(element_type(t)).work_dtype for t in self.call.result_types]
        results = [EagerValue(t, np.asarray(f)) for t, f in zip(self.call.result_types, found, strict=True)]
        grads = [
            EagerValue(t, np.asarray(s, w)) if is_float(element_type(t)) else None
            for t, s, w in zip(self.call.result_types, self.seeds, work, strict=True)
        ]
        operands = [EagerValue(t, v) for t, v in zip(self.call.operand_types, self.operands, strict=True)]
        reverse = Reverse(self.b, self.call, tuple(operands), tuple(results), tuple(grads), self.combines)
        with np.errstate(all="ignore"):
            answers = self.spec.vjp(reverse)
        for answer, operand in zip(answers, operands, strict=True):
            assert answer is None or answer.type == operand.type
        return [None if a is None else np.asarray(a.data) for a in answers]


@pytest.mark.parametrize("spec", WITH_RULE, ids=lambda s: s.name)
def test_rule_agrees_with_finite_differences(spec: OpSpec) -> None:
    rng = np.random.default_rng(zlib.crc32(spec.name.encode()))
    checked = 0
    for sample in _good(spec):
        if spec.name == "tt.expand_dims":  # whose samples are integers
            sample = dataclasses.replace(
                sample, operand_types=tuple(with_element(t, F64) for t in sample.operand_types)
            )
        types = [t for t in (*sample.operand_types, *sample.result_types) if t is not None]
        if not any(is_float(element_type(t)) for t in types) or any(is_pointer(element_type(t)) for t in types):
            continue
        case = _Case(spec, sample, rng)
        if not any(is_float(element_type(t)) for t in case.call.result_types):
            assert all(grad is None for grad in case.gradients())
            checked += 1
            continue
        for number, (grad, type_) in enumerate(zip(case.gradients(), case.call.operand_types, strict=True)):
            if is_float(element_type(type_)):
                _compare(case, number, grad, rng)
            else:
                assert grad is None
            checked += 1
    assert checked


def _compare(case: _Case, number: int, grad: Array | None, rng: np.random.Generator) -> None:
    """The derivative along a random direction; of a cast, the gradient is what comes in, as far as types hold it."""
    operand = case.operands[number]
    if case.spec.name in CASTS:
        assert grad is not None and np.allclose(np.asarray(grad, np.float64), case.seeds[0], rtol=0.26, atol=0.02)
        return
    direction = rng.uniform(-1, 1, operand.shape)
    moved = []
    for sign in (1, -1):
        operands = list(case.operands)
        operands[number] = np.asarray(operand + sign * STEP * direction, operand.dtype)
        moved.append(case.value(operands))
    want = (moved[0] - moved[1]) / (2 * STEP)
    got = 0.0 if grad is None else float((np.asarray(grad, np.float64) * direction).sum())
    assert abs(got - want) <= 1e-6 * max(1.0, abs(want)), f"operand {number}: {got} for {want}"


def _eager(name: str, operands: list[float], seed: float = 1.0) -> list[float | None]:
    """The rule of an elementwise operation at scalars of float64."""
    spec = REGISTRY[name]
    call = Call({}, (F64,) * len(operands), (F64,))
    case = _Case.__new__(_Case)
    case.spec, case.combines, case.call, case.regions = spec, "", call, ()
    case.b = EagerEmitter(Target("cpu", "generic"), Options(), Program(Memory(), (0, 0, 0), (1, 1, 1)))
    case.operands, case.seeds = [np.asarray(v) for v in operands], [np.asarray(seed)]
    return [None if g is None else float(g) for g in case.gradients()]


@pytest.mark.parametrize(
    ("name", "operands", "want"),
    [
        ("arith.maximumf", [2.0, 2.0], [0.5, 0.5]),
        ("arith.minnumf", [2.0, 2.0], [0.5, 0.5]),
        ("arith.maxnumf", [float("nan"), 2.0], [0.0, 1.0]),
        ("math.absf", [0.0], [0.0]),
        ("math.powf", [0.0, 0.0], [0.0, 0.0]),
        ("math.copysign", [-3.0, 2.0], [-1.0, None]),
    ],
)
def test_where_there_is_no_derivative(name: str, operands: list[float], want: list[float | None]) -> None:
    assert _eager(name, operands) == want


def test_equal_greatest_elements_share_the_gradient() -> None:
    spec = REGISTRY["tt.reduce"]
    x = np.array([1.0, 3.0, 3.0, 2.0])
    sample = Sample((x,), (tile("f64", (4,)),), {"axis": 0}, region="arith.maxnumf")
    case = _Case(spec, sample, np.random.default_rng(0))
    case.operands, case.seeds = [x], [np.asarray(1.0)]
    (grad,) = case.gradients()
    assert grad is not None and grad.tolist() == [0.0, 0.5, 0.5, 0.0]


@pytest.mark.parametrize("name", ["tt.reduce", "tt.scan"])
def test_a_combination_without_a_rule_is_refused(name: str) -> None:
    x = np.ones(4)
    attrs = {"axis": 0, "reverse": False} if name == "tt.scan" else {"axis": 0}
    case = _Case(
        REGISTRY[name], Sample((x,), (tile("f64", (4,)),), attrs, region="arith.mulf"), np.random.default_rng(0)
    )
    with pytest.raises(LanguageValueError, match="no gradient flows through a"):
        case.gradients()
