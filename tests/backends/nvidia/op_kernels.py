"""Kernels of single operations on laid-out tiles, without the rest of the pipeline.

Every thread loads its registers of an operand from the array in which the tile lies, the emitter of the operation
runs, and every thread stores all its registers of a result, copies and padding among them: `Ran.check` compares each
position with the element that it must hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.test import TestOp as UserOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tests.backends.nvidia import simt_math
from tests.backends.nvidia.simt import Result, run_kernel
from tests.sample_kernels import from_memory, max_ulp
from tilewright.backends.llvm.casts import load_bool, store_bool
from tilewright.backends.llvm.types import I1, I8, I64, PTR, V, const
from tilewright.backends.nvidia.arch import arch_of, features_of
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.backends.nvidia.emit.module import NvModule
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.tgir.types import layout_of, with_layout
from tilewright.ir.types import dtype_of, element_type, is_pointer, shape_of
from tilewright.layouts.distributed import default_blocked
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.facts import AxisFacts, unknown

assert simt_math.intrinsic, "the simulator learns arithmetic by importing it"
Array = np.ndarray[Any, Any]


@dataclass
class Ran:
    """A result: type, and what each (thread, register) of block 0 held, in memory form."""

    type: Attribute
    raw: Array

    def check(self, want: Array, ulp: float = 0, what: str = "") -> None:
        """Assert that every position inside of the tile holds its element of `want` (working form)."""
        element = element_type(self.type)
        found = from_memory(self.raw, element) if not is_pointer(element) else self.raw
        expected, inside = np.asarray(want), np.ones(self.raw.shape, bool)
        if shape_of(self.type):
            places = positions(layout_of(self.type), self.raw.shape)
            inside = np.all([p < size for p, size in zip(places, shape_of(self.type), strict=True)], axis=0)
            expected = expected[tuple(np.where(inside, p, 0) for p in places)]
        expected = np.broadcast_to(expected, self.raw.shape)
        wanted, got = expected[inside], found[inside]
        error = max_ulp(got, wanted, element) if not is_pointer(element) else float(not np.array_equal(got, wanted))
        if error > ulp:
            wrong = ~((got == wanted) | ((got != got) & (wanted != wanted)))
            raise AssertionError(f"{what}: {error} ulp; got {got[wrong][:6]}, want {wanted[wrong][:6]}")


def positions(layout: LinearLayout, shape: tuple[int, ...]) -> list[Array]:
    """Coordinates of each (thread, register), one array per dim."""
    thread, register = np.indices(shape)
    places = layout.array(register=register, lane=thread % 32, warp=thread // 32, block=np.zeros_like(thread))
    return list(places.values())


class OpKernel:
    """A kernel of some operations: call `operand`, `apply` and `result`, then `run` or `text`.

    Args:
        capability: of the target.
        num_warps: of the block.
        options: compile options.
        scratch: bytes of shared memory that each operation with scratch gets.
    """

    def __init__(self, capability: int = 90, num_warps: int = 1, scratch: int = 0, **options: Any) -> None:
        self.num_warps, self.shared_bytes = num_warps, scratch
        self._scratch = scratch
        self._module = NvModule(features_of(capability))
        self._steps: list[Any] = []
        self._users: list[Operation] = []
        self._arrays: list[Array] = []
        self._ends = [0]  # the arrays lie one behind another in one buffer
        self._results: list[tuple[Attribute, int]] = []
        self._options = CudaOptions(num_warps=num_warps, **options)
        self._arch = arch_of(capability)
        self.facts: dict[SSAValue, AxisFacts] = NoFacts()

    def layout(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout that tiles get unless told otherwise: two elements side by side in a thread."""
        return default_blocked(shape, self.num_warps, vector=2)

    def laid_out(self, type_: Attribute, layout: LinearLayout | None = None) -> Attribute:
        """`type_` with a layout, if it is a tile."""
        shape = shape_of(type_)
        return with_layout(type_, layout or self.layout(shape)) if shape else type_

    def argument(self, array: Array) -> int:
        """Number of a new array of the kernel."""
        self._arrays.append(array)
        self._ends.append(self._ends[-1] + -(-array.nbytes // 16) * 16)
        return len(self._arrays) - 1

    def operand(self, type_: Attribute, array: Array, layout: LinearLayout | None = None) -> SSAValue:
        """A value loaded from `array`, which holds the tile in memory form."""
        (value,) = Block(arg_types=[self.laid_out(type_, layout)]).args
        number = self.argument(np.ascontiguousarray(array))
        self._steps.append(lambda k, args: k.set_like(value, _load(k, value.type, args[number])))
        return value

    def pointers(self, type_: Attribute, array: Array, offsets: Array, layout: LinearLayout | None = None) -> SSAValue:
        """Pointers (a tile, or one) to elements of `array`, which is changed in place; `offsets` in elements."""
        (value,) = Block(arg_types=[self.laid_out(type_, layout)]).args
        base, where = self.argument(array), self.argument(np.ascontiguousarray(offsets, np.int64) * array.itemsize)

        def step(k: Kernel, args: list[V]) -> None:
            made = [k.f.gep(args[base], place) for place in _load(k, value.type, args[where], I64)]
            k.set_like(value, made)

        self._steps.append(step)
        return value

    def apply(self, op: Operation) -> Operation:
        """Emit `op`, whose result types carry layouts."""
        self._steps.append(lambda k, args: k.emit(op))
        return op

    def build(self, cls: Any, operands: list[SSAValue], types: list[Attribute], attrs: Mapping[str, Any] = {}) -> Any:
        """Make and emit an operation; result types without a layout get the usual one."""
        types = [self.laid_out(t) if shape_of(t) and t.encoding.name == "none" else t for t in types]  # type: ignore[attr-defined]
        return self.apply(cls.build_op(operands, types, attrs))

    def result(self, value: SSAValue) -> None:
        """Keep a value: `run` gives what every thread held."""
        type_ = value.type
        self._users.append(UserOp.create(operands=[value]))
        registers = layout_of(type_).in_sizes["register"] if shape_of(type_) else 1
        memory = np.int64 if is_pointer(element_type(type_)) else dtype_of(element_type(type_)).memory_dtype
        number = self.argument(np.zeros((32 * self.num_warps, registers), memory))
        self._results.append((type_, number))
        self._steps.append(lambda k, args: _dump(k, k.tile(value), args[number]))

    def text(self) -> str:
        """The module as LLVM IR."""
        f = self._module.kernel("ops", [I64, I64], f'"nvvm.reqntid"="{32 * self.num_warps}"')
        self.kernel = k = Kernel(f, self._arch, self._options, self.facts, _Everywhere(self._scratch))  # type: ignore[arg-type]
        k.start()
        base, k.log = (f.cast("inttoptr", arg, PTR) for arg in f.args)
        pointers = [f.gep(base, start) for start in self._ends[:-1]]
        for step in self._steps:
            step(k, pointers)
        f.ret()
        return self._module.render()

    def run(self, log: Array | None = None, grid: tuple[int, ...] = (1,)) -> tuple[list[Ran], Result]:
        """Run on the simulator; results in the order of `result`."""
        log = np.zeros(16, np.int32) if log is None else log
        memory = np.zeros(self._ends[-1], np.uint8)
        places = [memory[start : start + a.nbytes] for a, start in zip(self._arrays, self._ends, strict=False)]
        for array, place in zip(self._arrays, places, strict=True):
            place[:] = array.reshape(-1).view(np.uint8)
        ran = run_kernel(self.text(), "ops", grid, self.num_warps, [memory, log], self.shared_bytes)
        for array, place in zip(self._arrays, places, strict=True):
            array.reshape(-1).view(np.uint8)[:] = place
        return [Ran(t, self._arrays[number]) for t, number in self._results], ran


class NoFacts(dict):  # type: ignore[type-arg]
    """Nothing is known but what a test says."""

    def __missing__(self, value: SSAValue) -> AxisFacts:
        return unknown(value.type)


class _Everywhere(dict):  # type: ignore[type-arg]
    """Scratch of every operation: one place, if there is any."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __contains__(self, key: object) -> bool:
        return self._size > 0

    def __getitem__(self, key: object) -> int:
        return 0


def _flat(k: Kernel, type_: Attribute) -> list[V]:
    """Row-major offset of each register; 0 outside of the tile."""
    shape, f = shape_of(type_), k.f
    if not shape:
        return [const(I64, 0)]
    layout = layout_of(type_)
    total = [const(I64, 0)] * layout.in_sizes["register"]
    for axis, size in enumerate(shape):
        for r, place in enumerate(k.coordinates(layout, axis)):
            total[r] = f.add(f.mul(total[r], size), f.cast("zext", place, I64))
    return [f.select(on, offset, 0) for on, offset in zip(k.inside(type_), total, strict=True)]


def _load(k: Kernel, type_: Attribute, base: V, t: Any = None) -> list[V]:
    t = k.element(type_) if t is None else t
    memory = I8 if t is I1 else t
    loaded = [k.f.load(memory, k.f.gep(base, offset, memory)) for offset in _flat(k, type_)]
    return [load_bool(k.f, v) for v in loaded] if t is I1 else loaded


def _dump(k: Kernel, registers: list[V], base: V) -> None:
    f = k.f
    first = f.cast("zext", f.mul(k.thread, len(registers)), I64)
    for r, value in enumerate(registers):
        value = store_bool(f, value) if value.type is I1 else value
        value = f.cast("ptrtoint", value, I64) if value.type is PTR else value
        f.store(value, f.gep(base, f.add(first, r), value.type))
