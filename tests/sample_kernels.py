"""Kernels made from the samples of the op specs: load the operands, apply the op, store the results.

Arguments are one pointer per operand, then one per result, each to a contiguous row-major array in the
memory form of its element type. Any back end can run them; the reference says what must come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Program
from tilewright.base import minifloat
from tilewright.ir.types import (
    dtype_of,
    element_type,
    i1,
    i8,
    i32,
    is_float,
    is_pointer,
    pointer_type,
    scalar_type,
    shape_of,
    tile_type,
    with_element,
)  # fmt: skip
from tilewright.ops.function import FuncOp
from tilewright.ops.spec import REGISTRY, Call, OpSpec, Sample

Array = np.ndarray[Any, Any]
TERMINATORS = {"tt.reduce": "tt.reduce.return", "tt.scan": "tt.scan.return"}


@dataclass(frozen=True, slots=True)
class SampleKernel:
    """A module with one kernel named `sample`, its inputs in memory form, and the types of its results."""

    module: ModuleOp
    inputs: tuple[Array, ...]
    result_types: tuple[Attribute, ...]

    def outputs(self) -> list[Array]:
        """Zeroed arrays for the results, in memory form."""
        return [np.zeros(shape_of(t), dtype_of(element_type(t)).memory_dtype) for t in self.result_types]


def to_memory(values: Array, element: Attribute) -> Array:
    """Working form to memory form."""
    type_ = dtype_of(element)
    if type_.is_bool():
        return np.ascontiguousarray(values).astype(np.int8)
    if type_.memory_dtype != type_.work_dtype:
        return np.ascontiguousarray(minifloat.encode(np.asarray(values), type_)).astype(type_.memory_dtype)
    return np.ascontiguousarray(values).astype(type_.memory_dtype)


def from_memory(values: Array, element: Attribute) -> Array:
    """Memory form to working form."""
    type_ = dtype_of(element)
    if type_.is_bool():
        return values != 0
    return minifloat.decode(values, type_) if type_.memory_dtype != type_.work_dtype else values


def result_types(spec: OpSpec, sample: Sample) -> tuple[Attribute, ...]:
    """Types of the results, as the op's own rule says."""
    return tuple(spec.infer(Call(sample.attrs, sample.operand_types, sample.result_types)))


def expected(spec: OpSpec, sample: Sample) -> list[Array]:
    """Results of the reference, in working form."""
    types = result_types(spec, sample)
    regions = (_combine(sample.region),) if sample.region else ()
    alone = Program(Memory(), (0, 0, 0), (1, 1, 1))
    call = Call(sample.attrs, sample.operand_types, types, regions, alone)
    assert spec.reference is not None
    with np.errstate(all="ignore"):
        found = spec.reference(call, *[o for o in sample.operands if o is not None])
    return [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]


def _combine(name: str) -> Any:
    """The pairwise reference function of the op `name` on arrays."""
    spec = REGISTRY[name]

    def combine(a: Array, b: Array) -> tuple[Array, ...]:
        types = tuple(_scalar_of(x) for x in (a, b))
        assert spec.reference is not None
        return (np.asarray(spec.reference(Call({}, types, types[:1]), a, b)),)

    return combine


def _scalar_of(array: Array) -> Attribute:
    names = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "i1"}
    return scalar_type(names.get(array.dtype.name, f"i{array.dtype.itemsize * 8}"))


def is_runnable(spec: OpSpec, sample: Sample) -> bool:
    """Whether operands and results are plain numbers that a kernel can load and store."""
    if sample.error is not None:
        return False
    results = result_types(spec, sample)
    return bool(results) and not any(
        t is not None and is_pointer(element_type(t)) for t in (*sample.operand_types, *results)
    )


class _Body:
    """Appends operations to the entry block of the kernel."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def add(self, name: str, operands: Sequence[SSAValue], types: Sequence[Attribute], **attrs: Any) -> SSAValue:
        op = REGISTRY[name].op.build_op(operands, types, attrs)
        self.block.add_op(op)
        return op.results[0] if op.results else None  # type: ignore[return-value]

    def offsets(self, shape: tuple[int, ...]) -> SSAValue:
        """Row-major linear index of every element."""
        total, stride = None, 1
        for axis in reversed(range(len(shape))):
            part = self.add("tt.make_range", [], [tile_type((shape[axis],), i32)], start=0, end=shape[axis])
            dims = [shape[axis]]
            for other in range(len(shape)):
                if other != axis:
                    dims.insert(other, 1)
                    part = self.add("tt.expand_dims", [part], [tile_type(tuple(dims), i32)], axis=other)
            scaled = tile_type(tuple(dims), i32)
            factor = self.add("arith.constant", [], [scaled], value=stride)
            part = self.add("arith.muli", [part, factor], [scaled])
            if tuple(dims) != shape:
                part = self.add("tt.broadcast", [part], [tile_type(shape, i32)])
            total = part if total is None else self.add("arith.addi", [total, part], [tile_type(shape, i32)])
            stride *= shape[axis]
        assert total is not None
        return total

    def pointers(self, base: SSAValue, shape: tuple[int, ...]) -> SSAValue:
        if not shape:
            return base
        tile = tile_type(shape, base.type)
        return self.add("tt.addptr", [self.add("tt.splat", [base], [tile]), self.offsets(shape)], [tile])

    def load(self, base: SSAValue, type_: Attribute) -> SSAValue:
        memory = with_element(type_, i8) if element_type(type_) == i1 else type_
        value = self.add("tt.load", [self.pointers(base, shape_of(type_))], [memory])
        if memory is type_:
            return value
        zero = self.add("arith.constant", [], [memory], value=0)
        return self.add("arith.cmpi", [value, zero], [type_], predicate="ne")

    def store(self, base: SSAValue, value: SSAValue) -> None:
        type_ = value.type
        if element_type(type_) == i1:
            value = self.add("arith.extui", [value], [with_element(type_, i8)])
        self.add("tt.store", [self.pointers(base, shape_of(type_)), value], [])


def _memory_pointer(type_: Attribute) -> Attribute:
    element = element_type(type_)
    return pointer_type(i8 if element == i1 else element)


def _region(sample: Sample, op_name: str) -> list[Region]:
    if sample.region is None:
        return []
    scalars = [element_type(t) for t in sample.operand_types if t is not None]
    block = Block(arg_types=[*scalars, *scalars])
    op = REGISTRY[sample.region].op.build_op(list(block.args), scalars)
    block.add_op(op)
    block.add_op(REGISTRY[TERMINATORS[op_name]].op.create(operands=list(op.results)))
    return [Region(block)]


def kernel_of(spec: OpSpec, sample: Sample) -> SampleKernel:
    """The kernel that applies `spec` to the operands of `sample`."""
    results = result_types(spec, sample)
    present = [(o, t) for o, t in zip(sample.operands, sample.operand_types, strict=True) if o is not None]
    types = [t for _, t in present if t is not None]
    function = FuncOp.build("sample", [_memory_pointer(t) for t in (*types, *results)], [])
    body = _Body(function.body.block)
    args = list(function.body.block.args)
    values = [body.load(arg, t) for arg, t in zip(args, types, strict=False)]
    op: Operation = spec.op.build_op(values, results, sample.attrs, _region(sample, spec.name))
    body.block.add_op(op)
    for arg, result in zip(args[len(types) :], op.results, strict=True):
        body.store(arg, result)
    body.block.add_op(REGISTRY["tt.return"].op.create())
    inputs = tuple(to_memory(np.asarray(o), element_type(t)) for o, t in present)
    return SampleKernel(ModuleOp([function]), inputs, results)


def max_ulp(found: Array, wanted: Array, element: Attribute) -> float:
    """Largest difference in units in the last place of the element type; NaN equals NaN, infinities must agree."""
    if not is_float(element):
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    both_nan = np.isnan(found) & np.isnan(wanted)
    exact = both_nan | ((found == wanted) & ((np.signbit(found) == np.signbit(wanted)) | (found != 0)))
    if exact.all():
        return 0.0
    f, w = found[~exact], wanted[~exact]
    if not (np.isfinite(f) & np.isfinite(w)).all():
        return float("inf")
    type_ = dtype_of(element)
    lowest = 1 - type_.exponent_bias - type_.fp_mantissa_width
    exponent = np.maximum(np.frexp(np.maximum(np.abs(w), np.abs(f)))[1] - 1 - type_.fp_mantissa_width, lowest)
    return float(np.max(np.abs(f - w) / np.exp2(exponent.astype(np.float64))))
