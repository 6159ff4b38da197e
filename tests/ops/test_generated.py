"""Every operation of the registry, from its own spec: documentation, reference, lowering, samples, text, errors."""

from __future__ import annotations

import functools
import zlib

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.test import TestOp as ValuesOp

from tilewright.base.errors import TilewrightError
from tilewright.devices.registry import BACKENDS
from tilewright.ir.op import TileOp
from tilewright.ir.text import make_context, parse_module
from tilewright.ir.types import dtype_of, element_type, is_pointer, shape_of
from tilewright.ops import text
from tilewright.ops.spec import REGISTRY, Call, OpSpec, Sample

SPECS = [REGISTRY[name] for name in sorted(REGISTRY)]
# Structure of programs rather than computation: the evaluator walks them, so they have neither reference nor samples.
STRUCTURAL = {
    "cf.br", "cf.cond_br", "llvm.unreachable", "scf.condition", "scf.for", "scf.if", "scf.while", "scf.yield",
    "tt.call", "tt.func", "tt.reduce.return", "tt.return", "tt.scan.return", "ub.poison", "tt.print", "ttg.barrier",
    "tt.elementwise_inline_asm", "tt.make_tensor_descriptor", "tt.descriptor_load", "tt.descriptor_store",
}  # fmt: skip
# Good cases of these need addresses: they are tested with a memory.
MEMORY = {"tt.atomic_cas", "tt.atomic_load", "tt.atomic_rmw", "tt.atomic_store", "tt.load", "tt.store"}


def samples_of(spec: OpSpec) -> list[Sample]:
    """The samples of `spec`, the same in every run."""
    assert spec.samples is not None
    return list(spec.samples(np.random.default_rng(zlib.crc32(spec.name.encode()))))


def computing(specs: list[OpSpec]) -> list[OpSpec]:
    return [spec for spec in specs if spec.name not in STRUCTURAL]


def plain(spec: OpSpec) -> bool:
    """An op without bodies, whose samples can be built from values alone."""
    return not any(sample.region for sample in samples_of(spec))


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_is_documented(spec: OpSpec) -> None:
    assert spec.op.__doc__ and spec.op.__doc__.strip()
    assert spec.summary


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_every_back_end_has_a_lowering_or_refuses(spec: OpSpec) -> None:
    for name, entry in BACKENDS.items():
        made = entry.backend.lowering(spec.name)
        assert made is not None, f"{name} says nothing about {spec.name}"
        assert bool(made.reason) == (made.how == "refused")


@pytest.mark.parametrize("spec", computing(SPECS), ids=lambda s: s.name)
def test_has_reference_and_samples(spec: OpSpec) -> None:
    assert spec.reference is not None
    samples = samples_of(spec)
    assert samples
    assert spec.name in MEMORY or any(sample.error is None for sample in samples), "no good sample"


def call_for(sample: Sample) -> Call:
    return Call(sample.attrs, sample.operand_types, sample.result_types)


@pytest.mark.parametrize("spec", computing(SPECS), ids=lambda s: s.name)
def test_samples_have_the_working_form_of_their_types(spec: OpSpec) -> None:
    for sample in samples_of(spec):
        for array, type_ in zip(sample.operands, sample.operand_types, strict=True):
            if sample.error or array is None or type_ is None:
                continue
            element = element_type(type_)
            want = np.dtype(np.int64) if is_pointer(element) else dtype_of(element).work_dtype
            assert array.dtype == want, f"{spec.name}: {array.dtype} for {type_}"
            assert array.shape == shape_of(type_), f"{spec.name}: {array.shape} for {type_}"


def build(spec: OpSpec, sample: Sample) -> tuple[ModuleOp, TileOp]:
    """A module that makes values of the operand types and applies the op to them; absent operands are left out."""
    values = ValuesOp(result_types=[type_ for type_ in sample.operand_types if type_ is not None])
    handles = iter(values.results)
    operands = [() if type_ is None else next(handles) for type_ in sample.operand_types]
    op = spec.op.build_op(operands, list(spec.infer(call_for(sample))), sample.attrs)
    return ModuleOp([values, op]), op


@functools.cache
def context() -> Context:
    """All operations of tile IR, and a source of values."""
    return make_context([*(spec.op for spec in SPECS), ValuesOp], text.ATTRIBUTES)


PLAIN = [spec for spec in computing(SPECS) if plain(spec)]


@pytest.mark.parametrize("spec", PLAIN, ids=lambda s: s.name)
def test_prints_parses_and_verifies(spec: OpSpec) -> None:
    for sample in samples_of(spec):
        if sample.error is not None:
            continue
        module, op = build(spec, sample)
        module.verify()
        printed = text.print_module(module, locations=False)
        again = parse_module(context(), printed)
        again.verify()
        assert text.print_module(again, locations=False) == printed
        copy = list(again.ops)[1]
        assert (copy.name, copy.properties, copy.result_types) == (op.name, op.properties, op.result_types)


@pytest.mark.parametrize("spec", PLAIN, ids=lambda s: s.name)
def test_bad_samples_say_what_is_wrong(spec: OpSpec) -> None:
    for sample in samples_of(spec):
        if sample.error is not None:
            with pytest.raises(TilewrightError) as caught:
                spec.infer(call_for(sample))
            assert sample.error in str(caught.value)


def works_alone(spec: OpSpec) -> bool:
    """Whether the reference needs neither memory nor a grid."""
    return bool(spec.elementwise) or spec.name in {
        "arith.constant", "tt.addptr", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.splat",
    }  # fmt: skip


@pytest.mark.parametrize("spec", [s for s in PLAIN if works_alone(s)], ids=lambda s: s.name)
def test_reference_gives_arrays_of_the_inferred_types(spec: OpSpec) -> None:
    for sample in samples_of(spec):
        if sample.error is not None:
            continue
        call = call_for(sample)
        (type_,) = spec.infer(call)
        assert spec.reference is not None
        result = spec.reference(Call(call.attrs, call.operand_types, (type_,)), *sample.operands)
        element = element_type(type_)
        want = np.dtype(np.int64) if is_pointer(element) else dtype_of(element).work_dtype
        assert isinstance(result, np.ndarray)
        assert (result.dtype, result.shape) == (want, shape_of(type_))
