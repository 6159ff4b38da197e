"""Compile one elementwise operation to a loop over arrays and run it on numpy data."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from tilewright.backends.llvm import casts, codegen, elementwise, features
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I64, PTR, T, V

NUMPY = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
_alive: list[object] = []


def memory(name: str) -> type:
    """numpy type of a tile IR element in memory; bf16 and 8-bit floats are codes."""
    return NUMPY.get(name, np.uint8)


def lanes_of(name: str, lanes: int) -> tuple[T, T]:
    """Register and memory types."""
    register = casts.storage(name, lanes)
    return register, T("i8", lanes) if name == "i1" else register


def build(
    body: Callable[[Function, list[V]], V], sources: tuple[str, ...], result: str, lanes: int, isa: features.CpuFeatures
) -> Module:
    """`void k(ptr out, ptr in..., i64 n)`: out[i] = body(in[i]...), `lanes` at a time (n a multiple)."""
    module = Module(isa)
    f = module.function("k", params=[PTR] * (1 + len(sources)) + [I64], linkage="")
    out, *pointers, count = f.args
    with f.loop(0, count, max(1, lanes)) as loop:
        values = []
        for name, pointer in zip(sources, pointers, strict=True):
            register, stored = lanes_of(name, lanes)
            value = f.load(stored, f.gep(pointer, loop.index, stored.scalar))
            values.append(casts.load_bool(f, value) if name == "i1" else value)
        got = body(f, values)
        register, stored = lanes_of(result, lanes)
        assert got.type is register, (got, register)
        f.store(casts.store_bool(f, got) if result == "i1" else got, f.gep(out, loop.index, stored.scalar))
    f.ret()
    return module


def runner(
    body: Callable[[Function, list[V]], V], sources: tuple[str, ...], result: str, lanes: int,
    isa: features.CpuFeatures | None = None,
) -> Callable[..., np.ndarray]:  # fmt: skip
    """Compile for this machine (or a view of it with fewer features) and return a numpy function."""
    isa = isa or features.host()
    image = codegen.compile_object(build(body, sources, result, lanes, isa).render(), isa)
    library = codegen.load(image, ["k"])
    _alive.append(library)
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(sources)), ctypes.c_int64)(library.address("k"))

    def run(*arrays: np.ndarray) -> np.ndarray:
        size = arrays[0].size
        padded = -(-size // 64) * 64
        inputs = [np.zeros(padded, memory(name)) for name in sources]
        for buffer, array in zip(inputs, arrays, strict=True):
            buffer[:size] = array
        out = np.empty(padded, memory(result))
        entry(out.ctypes.data, *[buffer.ctypes.data for buffer in inputs], padded)
        return out[:size]

    return run


@functools.cache
def operation(name: str, element: str, lanes: int, predicate: str = "", flags: str = "") -> Callable[..., np.ndarray]:
    """An operation of the table on one element type; comparisons give `i1`. `flags` takes features away."""
    attributes = {"predicate": predicate} if predicate else {}
    result = "i1" if predicate or name in ("isnan", "isinf") else element
    sources = (element,) * elementwise.arity(name)
    isa = features.describe(flags=flags) if flags else None
    return runner(lambda f, args: elementwise.emit(f, name, *args, **attributes), sources, result, lanes, isa)


@functools.cache
def conversion(
    op: str, src: str, dst: str, lanes: int, rounding: str = "rtne", flags: str = ""
) -> Callable[..., np.ndarray]:
    """A conversion of `casts`."""
    isa = features.describe(flags=flags) if flags else None
    return runner(lambda f, args: casts.convert(f, op, args[0], src, dst, rounding=rounding), (src,), dst, lanes, isa)


NO_AVX512 = (
    ",".join(f"-avx512{x}" for x in "f bw cd dq vl bf16 bitalg ifma vbmi vbmi2 vnni vp2intersect vpopcntdq".split())
    + ",-avx512fp16"
)
NO_CONVERTS = NO_AVX512 + ",-f16c,-fma,-avx2,-avx,-avxvnni,-vaes,-vpclmulqdq"
