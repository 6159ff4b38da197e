"""Atomic accesses on a GPU: memory and results against numpy, for tiles with copies and padding, and the PTX made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia.op_kernels import OpKernel
from tests.sample_kernels import to_memory
from tilewright.backends.nvidia import ptx
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.emit import atomic
from tilewright.base import minifloat
from tilewright.base.dtypes import bfloat16
from tilewright.ir.types import i1, pointer_type, scalar_type, tile_type
from tilewright.layouts.distributed import default_blocked, sliced
from tilewright.ops.atomic import KINDS, AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp
from tilewright.ops.facts import AxisFacts

assert atomic.atomic_scratch, "importing it registers the emitters"
ORDER = {"sem": "acq_rel", "scope": "gpu"}
COMBINE = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add, "fadd": np.add,
    "max": np.maximum, "min": np.minimum, "umax": np.maximum, "umin": np.minimum, "exch": lambda old, new: new,
}  # fmt: skip
# One thread per element; copies in lanes; copies in warps; copies in registers and threads; a ragged tile.
LAYOUTS = {
    "plain": ((128,), default_blocked((128,), 2, vector=2)),
    "lanes": ((16,), default_blocked((16,), 1, vector=2)),
    "warps": ((32,), default_blocked((32,), 2)),
    "sliced": ((8,), sliced(default_blocked((8, 64), 2, vector=4), 1)),
    "ragged": ((5, 12), default_blocked((5, 12), 2, vector=2)),
}


def numbers(rng: np.random.Generator, name: str, shape: Any) -> np.ndarray:
    if name[0] == "i":
        return rng.integers(-1000, 1000, shape).astype(f"int{name[1:]}")
    return minifloat.round_to(rng.integers(-64, 64, shape) / 4, bfloat16 if name == "bf16" else np_dtype(name))


def np_dtype(name: str) -> Any:
    from tilewright.ir.types import dtype_of

    return dtype_of(scalar_type(name))


def kernel_of(shape: tuple[int, ...], layout: Any, name: str, capability: int = 90) -> Any:
    """Kernel, memory in working form, offsets (each element has a place of its own), pointers to them."""
    warps = layout.in_sizes["warp"] if layout else 2
    kernel = OpKernel(capability, warps, scratch=4096)
    rng = np.random.default_rng(3)
    memory = numbers(rng, name, 300)
    offsets = rng.permutation(300)[: int(np.prod(shape, dtype=int))].reshape(shape)
    stored = to_memory(memory, scalar_type(name))
    pointer = kernel.pointers(tile_type(shape, pointer_type(scalar_type(name))), stored, offsets, layout)
    return kernel, rng, memory, stored, offsets, pointer


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("masked", [False, True])
def test_old_values_reach_every_copy(layout: str, masked: bool) -> None:
    shape, made = LAYOUTS[layout]
    kernel, rng, memory, stored, offsets, pointer = kernel_of(shape, made, "i32")
    values = numbers(rng, "i32", shape)
    operands = [pointer, kernel.operand(tile_type(shape, scalar_type("i32")), values, made)]
    on = np.ones(shape, bool)
    if masked:
        on = rng.random(shape) < 0.5
        operands.append(kernel.operand(tile_type(shape, i1), on.astype(np.int8), made))
    type_ = kernel.laid_out(tile_type(shape, scalar_type("i32")), made)
    op = kernel.build(AtomicRMWOp, operands, [type_], {"atomic_rmw_op": "add", **ORDER})
    kernel.result(op.results[0])
    (old,), _ = kernel.run()
    old.check(np.where(on, memory[offsets], 0))
    wanted = memory.copy()
    wanted[offsets] += np.where(on, values, 0)
    assert np.array_equal(stored, wanted)


KIND_TYPES = [(kind, name) for kind in KINDS for name in ("i32", "i64") if kind != "fadd"]
KIND_TYPES += [("fadd", name) for name in ("f16", "bf16", "f32", "f64")] + [("exch", "f32"), ("exch", "f64")]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("kind", "name"), KIND_TYPES)
def test_kinds_and_types(kind: str, name: str, capability: int) -> None:
    shape, made = LAYOUTS["plain"]
    kernel, rng, memory, stored, offsets, pointer = kernel_of(shape, made, name, capability)
    values = numbers(rng, name, shape)
    operand = kernel.operand(tile_type(shape, scalar_type(name)), to_memory(values, scalar_type(name)), made)
    type_ = kernel.laid_out(tile_type(shape, scalar_type(name)), made)
    op = kernel.build(AtomicRMWOp, [pointer, operand], [type_], {"atomic_rmw_op": kind, **ORDER})
    kernel.result(op.results[0])
    (old,), _ = kernel.run()
    old.check(memory[offsets])
    before, after = memory[offsets], values
    if kind[0] == "u":
        before, after = before.view(f"u{before.itemsize}"), after.view(f"u{after.itemsize}")
    memory[offsets] = COMBINE[kind](before, after).view(memory.dtype)
    assert np.array_equal(stored, to_memory(memory, scalar_type(name)))


@pytest.mark.parametrize("name", ["i32", "f32", "bf16", "i64"])
@pytest.mark.parametrize("used", [False, True])
def test_scalars_act_once(name: str, used: bool) -> None:
    kernel, rng, memory, stored, offsets, pointer = kernel_of((), None, name)
    value = numbers(rng, name, ())
    kind = "add" if name[0] == "i" else "fadd"
    operand = kernel.operand(scalar_type(name), to_memory(value, scalar_type(name)))
    op = kernel.build(AtomicRMWOp, [pointer, operand], [scalar_type(name)], {"atomic_rmw_op": kind, **ORDER})
    if used:
        kernel.result(op.results[0])
    found, ran = kernel.run()
    assert ran.counts["ptx atom" if used else "ptx red"] == 1
    for old in found:
        old.check(memory[offsets])
    assert stored[offsets] == to_memory(np.asarray(memory[offsets] + value), scalar_type(name))


def test_exchange_where_equal() -> None:
    for name in ("i32", "i64", "f16", "bf16"):
        shape, made = LAYOUTS["warps"]
        kernel, rng, memory, stored, offsets, pointer = kernel_of(shape, made, name)
        same = rng.random(shape) < 0.5
        expected = np.where(same, memory[offsets], memory[offsets] + memory.dtype.type(1))
        values = numbers(rng, name, shape)
        type_ = tile_type(shape, scalar_type(name))
        operands = [kernel.operand(type_, to_memory(v, scalar_type(name)), made) for v in (expected, values)]
        op = kernel.build(AtomicCASOp, [pointer, *operands], [kernel.laid_out(type_, made)], ORDER)
        kernel.result(op.results[0])
        (old,), _ = kernel.run()
        old.check(memory[offsets])
        memory[offsets] = np.where(same, values, memory[offsets])
        assert np.array_equal(stored, to_memory(memory, scalar_type(name)))


@pytest.mark.parametrize("name", ["i1", "i8", "f16", "i32", "f64"])
@pytest.mark.parametrize("layout", ["ragged", "sliced"])
def test_load_and_store(name: str, layout: str) -> None:
    shape, made = LAYOUTS[layout]
    element = scalar_type(name)
    kernel = OpKernel(90, made.in_sizes["warp"], scratch=4096)
    rng = np.random.default_rng(5)
    size = int(np.prod(shape))
    source = (
        rng.integers(0, 2, size).astype(bool)
        if name == "i1"
        else numbers(rng, name, size)
        if name != "i8"
        else rng.integers(-9, 9, size).astype(np.int8)
    )
    target = np.zeros_like(to_memory(source, element))
    offsets, on = np.arange(size).reshape(shape), rng.random(shape) < 0.7
    pointers = [
        kernel.pointers(tile_type(shape, pointer_type(element)), a, offsets, made)
        for a in (to_memory(source, element), target)
    ]
    mask = kernel.operand(tile_type(shape, i1), on.astype(np.int8), made)
    type_ = kernel.laid_out(tile_type(shape, element), made)
    loaded = kernel.build(AtomicLoadOp, [pointers[0], mask], [type_], {"sem": "acquire", "scope": "gpu"}).results[0]
    kernel.build(AtomicStoreOp, [pointers[1], loaded, mask], [], {"sem": "release", "scope": "sys"})
    kernel.result(loaded)
    (found,), _ = kernel.run()
    wanted = np.where(on, source.reshape(shape), source.dtype.type(0))
    found.check(wanted)
    assert np.array_equal(target, to_memory(wanted.reshape(-1), element))


@pytest.mark.parametrize(
    ("name", "capability", "used", "opcode", "count"),
    [
        ("f32", 90, False, "red.relaxed.gpu.global.add.v4.f32", 1),
        ("f32", 80, False, "red.relaxed.gpu.global.add.f32", 4),
        ("f16", 80, True, "atom.relaxed.gpu.global.add.noftz.f16x2", 2),
        ("bf16", 90, False, "red.relaxed.gpu.global.add.noftz.bf16x2", 2),
    ],
)
def test_neighbours_are_added_as_vectors(name: str, capability: int, used: bool, opcode: str, count: int) -> None:
    layout = default_blocked((256,), 2, vector=4)
    kernel = OpKernel(capability, 2)
    rng = np.random.default_rng(0)
    memory, values = numbers(rng, name, 256), numbers(rng, name, 256)
    stored, element = to_memory(memory, scalar_type(name)), scalar_type(name)
    pointer = kernel.pointers(tile_type((256,), pointer_type(element)), stored, np.arange(256), layout)
    kernel.facts[pointer] = AxisFacts((256,), (16,), (1,))
    operand = kernel.operand(tile_type((256,), element), to_memory(values, element), layout)
    type_ = kernel.laid_out(tile_type((256,), element), layout)
    attrs = {"atomic_rmw_op": "fadd", "sem": "relaxed", "scope": "gpu"}
    op = kernel.build(AtomicRMWOp, [pointer, operand], [type_], attrs)
    if used:
        kernel.result(op.results[0])
    for old in kernel.run()[0]:
        old.check(memory)
    assert np.array_equal(stored, to_memory(memory + values, element))
    text = ptx.compile_ptx(kernel.text(), arch_of(capability))
    assert text.count(opcode) == count
    assemble(text, arch_of(capability), kernel="ops")


def test_order_of_many_elements_is_given_by_fences() -> None:
    shape, made = LAYOUTS["plain"]
    kernel, rng, _, _, _, pointer = kernel_of(shape, made, "i32")
    operand = kernel.operand(tile_type(shape, scalar_type("i32")), numbers(rng, "i32", shape), made)
    type_ = kernel.laid_out(tile_type(shape, scalar_type("i32")), made)
    op = kernel.build(AtomicRMWOp, [pointer, operand], [type_], {"atomic_rmw_op": "add", **ORDER})
    kernel.result(op.results[0])
    text = kernel.text()
    places = [
        text.index(part)
        for part in ("barrier.cta.sync.aligned.all(", "fence.acq_rel.gpu", "atom.relaxed.gpu.global.add.u32")
    ]
    assert places == sorted(places) and text.count("fence.acq_rel.gpu") == 2


@pytest.mark.parametrize("capability", [80, 86, 89, 90, 100, 120])
def test_every_kind_assembles(capability: int) -> None:
    kernel = OpKernel(capability, 2, scratch=4096)
    shape, made = LAYOUTS["warps"]
    for used in (False, True):
        for kind, name in KIND_TYPES:
            type_ = tile_type(shape, scalar_type(name))
            memory = np.zeros(32, np_dtype(name).memory_dtype)
            pointer = kernel.pointers(tile_type(shape, pointer_type(scalar_type(name))), memory, np.arange(32), made)
            operands = [pointer, kernel.operand(type_, memory, made)]
            results = [kernel.laid_out(type_, made)]
            op = kernel.build(AtomicRMWOp, operands, results, {"atomic_rmw_op": kind, **ORDER})
            if used:
                kernel.result(op.results[0])
        for name in ("f16", "i32", "i64"):
            type_ = tile_type(shape, scalar_type(name))
            memory = np.zeros(32, np_dtype(name).memory_dtype)
            pointer = kernel.pointers(tile_type(shape, pointer_type(scalar_type(name))), memory, np.arange(32), made)
            value = kernel.operand(type_, memory, made)
            results = [kernel.laid_out(type_, made)]
            op = kernel.build(AtomicCASOp, [pointer, value, value], results, ORDER)
            loaded = kernel.build(AtomicLoadOp, [pointer], results, ORDER)
            kernel.build(AtomicStoreOp, [pointer, value], [], ORDER)
            if used:
                kernel.result(op.results[0])
                kernel.result(loaded.results[0])
    assemble(ptx.compile_ptx(kernel.text(), arch_of(capability), optimize=False), arch_of(capability), kernel="ops")
