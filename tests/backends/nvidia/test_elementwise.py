"""Elementwise operations on a GPU: every sample of every operation against its reference, and the PTX that matters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia.op_kernels import OpKernel, Ran
from tests.sample_kernels import expected, is_runnable, result_types, to_memory
from tilewright.backends.nvidia import libdevice, ptx
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.emit import conversions
from tilewright.backends.nvidia.emit.elementwise import ACCURACY
from tilewright.ir.types import dtype_of, element_type, ir_name, scalar_type, shape_of, tile_type
from tilewright.ops import families
from tilewright.ops.spec import REGISTRY, OpSpec, Sample

assert families.FAMILIES
f32 = scalar_type("f32")
SPECS = [s for s in REGISTRY.values() if s.elementwise]


def samples_of(spec: OpSpec) -> list[Sample]:
    assert spec.samples is not None
    return [s for s in spec.samples(np.random.default_rng(11)) if is_runnable(spec, s)]


def add_sample(kernel: OpKernel, spec: OpSpec, sample: Sample) -> None:
    values = [
        kernel.operand(t, to_memory(np.asarray(o), element_type(t)))
        for o, t in zip(sample.operands, sample.operand_types, strict=True)
        if o is not None and t is not None
    ]
    for result in kernel.build(spec.op, values, list(result_types(spec, sample)), sample.attrs).results:
        kernel.result(result)


def bound(spec: OpSpec, sample: Sample) -> float:
    """Allowed error: that of the sample, or the one stated for NVIDIA."""
    kind = sample.operand_types[0]
    assert kind is not None
    return max(sample.max_ulp, ACCURACY.get((spec.elementwise, ir_name(element_type(kind))), 0))


@pytest.mark.parametrize("spec", SPECS, ids=[s.name for s in SPECS])
def test_samples_agree_with_the_reference(spec: OpSpec) -> None:
    for sample in samples_of(spec):
        kernel = OpKernel()
        add_sample(kernel, spec, sample)
        for ran, want in zip(kernel.run()[0], expected(spec, sample), strict=True):
            ran.check(want, bound(spec, sample), f"{spec.name} {sample.operand_types} {dict(sample.attrs)}")


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", ["arith.truncf", "tt.fp_to_fp", "arith.sitofp", "arith.fptosi"])
def test_conversions_on_other_architectures(name: str, capability: int) -> None:
    spec = REGISTRY[name]
    for sample in samples_of(spec):
        kernel = OpKernel(capability)
        add_sample(kernel, spec, sample)
        for ran, want in zip(kernel.run()[0], expected(spec, sample), strict=True):
            ran.check(want, 0, f"{name} {sample.operand_types}")


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", ["arith.sitofp", "arith.uitofp"])
def test_bytes_become_floats_without_conversion_instructions(
    name: str, capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions, "_goes_by_words", lambda *_: True)  # as those do that memory has side by side
    kernel, source = OpKernel(capability), np.arange(-128, 128).astype(np.int8)
    operand = kernel.operand(tile_type((256,), scalar_type("i8")), source)
    for result in ("f16", "bf16", "f32"):
        made = tile_type((256,), scalar_type(result))
        kernel.result(kernel.build(REGISTRY[name].op, [operand], [made]).results[0])
    for ran in kernel.run()[0]:
        ran.check((source if name == "arith.sitofp" else source.view(np.uint8)).astype(np.float32))
    assert "cvt.rn" not in ptx.compile_ptx(kernel.text(), arch_of(capability))


def unary(name: str, values: np.ndarray, element: str = "f32") -> Ran:
    kernel = OpKernel()
    type_ = tile_type(values.shape, scalar_type(element))
    kernel.result(kernel.build(REGISTRY[name].op, [kernel.operand(type_, values)], [type_]).results[0])
    return kernel.run()[0][0]


def test_trigonometry_of_large_arguments() -> None:
    rng = np.random.default_rng(0)
    x = (rng.choice([-1, 1], 64) * np.exp(rng.uniform(11, 88, 64))).astype(np.float32)
    unary("math.sin", x).check(np.sin(x.astype("g")).astype("f4"), 2)
    unary("math.cos", x).check(np.cos(x.astype("g")).astype("f4"), 2)


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
def test_remainder_is_exact_for_any_quotient(element: str) -> None:
    type_ = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[element]
    rng = np.random.default_rng(1)
    info = np.finfo(type_)
    sizes = np.ldexp(rng.uniform(1, 2, (2, 256)), rng.integers(info.minexp - info.nmant, info.maxexp, (2, 256)))
    a, b = (rng.choice([-1, 1], 256) * size for size in sizes)
    a, b = a.astype(type_), b.astype(type_)
    a[:6], b[:6] = [1, np.inf, np.nan, 0.0, -0.0, 5], [np.inf, 1, 1, 0, 3, np.nan]
    kernel = OpKernel()
    tile = tile_type((256,), scalar_type(element))
    op = kernel.build(REGISTRY["arith.remf"].op, [kernel.operand(tile, v) for v in (a, b)], [tile])
    kernel.result(op.results[0])
    with np.errstate(all="ignore"):
        kernel.run()[0][0].check(np.fmod(a, b))


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_every_operation_assembles(capability: int) -> None:
    kernel, seen = OpKernel(capability), set()
    for spec in SPECS:
        for sample in samples_of(spec):
            key = (spec.name, sample.operand_types, sample.result_types, sample.attrs.get("rounding"))
            if key not in seen and all(shape_of(t) for t in sample.operand_types if t is not None):
                seen.add(key)
                add_sample(kernel, spec, sample)
    text = kernel.text()
    undefined = libdevice.needed(text)
    assert undefined == {f"__nv_{name}" for name in LIBRARY}
    for symbol in undefined:  # the library need not be there
        count = 2 if symbol in ("__nv_pow", "__nv_atan2") else 1
        operands = ", ".join(["double"] * count)
        body = ", ".join(["double %x", "double %y"][:count])
        text = text.replace(
            f"declare double @{symbol}({operands})", f"define double @{symbol}({body}) {{ ret double %x }}"
        )
    assemble(ptx.compile_ptx(text, arch_of(capability), optimize=False), arch_of(capability), kernel="ops")


LIBRARY = set(
    "expm1 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf cbrt pow atan2".split()
)  # of float64 alone


# --- what the hardware does -----------------------------------------------------------------------------------


def code(name: str, element: str, result: str | None = None, capability: int = 90, **attrs: Any) -> str:
    """PTX of an operation on two elements of one thread."""
    kernel = OpKernel(capability, **attrs.pop("options", {}))
    type_, spec = tile_type((64,), scalar_type(element)), REGISTRY[name]
    values = [kernel.operand(type_, np.zeros(64, dtype_of(scalar_type(element)).memory_dtype))] * ARITY.get(name, 1)
    made = tile_type((64,), scalar_type(result or element))
    kernel.result(kernel.build(spec.op, values, [made], attrs).results[0])
    return ptx.compile_ptx(kernel.text(), arch_of(capability))


ARITY = {"math.fma": 3} | dict.fromkeys(
    ("arith.divf", "arith.maximumf", "arith.maxnumf", "arith.addf", "arith.shli", "arith.shrui", "tt.precise_divf"), 2
)


@pytest.mark.parametrize(
    ("name", "element", "result", "capability", "instruction", "count"),
    [
        ("math.exp", "f32", None, 80, "ex2.approx.f32", 2),
        ("math.exp2", "f32", None, 80, "ex2.approx.ftz.f32", 2),
        ("math.sqrt", "f32", None, 80, "sqrt.approx.f32", 2),
        ("tt.precise_sqrt", "f32", None, 80, "sqrt.rn.f32", 2),
        ("math.rsqrt", "f32", None, 80, "rsqrt.approx.f32", 2),
        ("arith.divf", "f32", None, 80, "div.full.f32", 2),
        ("tt.precise_divf", "f32", None, 80, "div.rn.f32", 2),
        ("arith.addf", "f16", None, 80, "add.rn.f16x2", 1),
        ("arith.addf", "bf16", None, 90, "add.rn.bf16x2", 1),
        ("math.fma", "bf16", None, 80, "fma.rn.bf16x2", 1),
        ("arith.truncf", "f32", "bf16", 80, "cvt.rn.bf16x2.f32", 1),
        ("arith.truncf", "f32", "f16", 80, "cvt.rn.f16x2.f32", 1),
        ("tt.fp_to_fp", "f32", "f8E4M3FN", 89, "cvt.rn.satfinite.e4m3x2.f32", 1),
        ("tt.fp_to_fp", "f32", "f8E4M3FN", 80, "cvt.rn.satfinite.e4m3x2.f32", 0),
        ("tt.fp_to_fp", "f8E5M2", "f16", 90, "cvt.rn.f16x2.e5m2x2", 1),
        ("math.absi", "i16", None, 80, "abs.s32", 2),
        ("arith.shli", "i64", None, 90, "min.u64", 2),
        ("arith.shrui", "i64", None, 90, "min.u64", 2),
        ("arith.fptosi", "f32", "i32", 80, "cvt.rzi.s32.f32", 2),
        ("arith.sitofp", "i32", "f16", 80, "cvt.rn.f16.s32", 2),
    ],
)
def test_instructions(
    name: str, element: str, result: str | None, capability: int, instruction: str, count: int
) -> None:
    attrs = {"rounding": "rtne"} if name == "tt.fp_to_fp" and result != "f16" else {}
    assert code(name, element, result, capability, **attrs).count(f"{instruction} ") == count


def test_nan_rules_are_in_the_instruction() -> None:
    kernel = OpKernel(80)
    type_ = tile_type((64,), f32)
    values = [kernel.operand(type_, np.zeros(64, np.float32)) for _ in range(2)]
    for name in ("arith.maximumf", "arith.minnumf"):
        kernel.result(kernel.build(REGISTRY[name].op, values, [type_]).results[0])
    text = ptx.compile_ptx(kernel.text(), arch_of(80))
    assert text.count("max.NaN.f32 ") == 2 and text.count("min.f32 ") == 2 and "setp" not in text


@pytest.mark.parametrize("fuse", [False, True])
def test_what_tile_ir_rounds_twice_is_not_fused(fuse: bool) -> None:
    kernel = OpKernel(90, enable_fp_fusion=fuse)
    type_ = tile_type((64,), f32)
    a, b, c = (kernel.operand(type_, np.zeros(64, np.float32)) for _ in range(3))
    product = kernel.build(REGISTRY["arith.mulf"].op, [a, b], [type_]).results[0]
    kernel.result(kernel.build(REGISTRY["arith.addf"].op, [product, c], [type_]).results[0])
    text = ptx.compile_ptx(kernel.text(), arch_of(90))
    assert text.count("add.rn.f32 ") == 2 and "fma" not in text


def test_a_scalar_condition_chooses_a_tile() -> None:
    kernel = OpKernel()
    type_ = tile_type((5, 12), f32)
    a, b = np.arange(60, dtype="f4").reshape(5, 12), np.ones((5, 12), "f4")
    values = [kernel.operand(scalar_type("i1"), np.int8(0)), *(kernel.operand(type_, v) for v in (a, b))]
    kernel.result(kernel.build(REGISTRY["arith.select"].op, values, [type_]).results[0])
    kernel.run()[0][0].check(b)
