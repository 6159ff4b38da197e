"""Runs a block function on numpy arrays: through the reference evaluator, as native code on the CPU, on a GPU.

Tests that use the fixture `backend` run once on each; "simulated", which tests of the NVIDIA back end may ask for by
`running_on`, is code for a GPU run thread by thread in numpy.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.backends.nvidia import simt_math, simt_tensor
from tests.backends.nvidia.simt import run_kernel
from tests.gpu.harness import Compiled
from tilewright.backends.nvidia import backend as nvidia
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.emit.lower import emit_kernel
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base import dtypes
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import PointerType, dtype
from tilewright.base.errors import DeviceAssertionError
from tilewright.base.minifloat import from_memory, to_memory
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ops import levels
from tilewright.ops.text import parse_module, print_module
from tilewright.ops.values import constexpr
from tilewright.passes.pipeline import run_passes

assert simt_math and simt_tensor  # importing them adds their instructions
BACKENDS = ("reference", "interpreter", "cpu", pytest.param("cuda", marks=pytest.mark.gpu))
_current = ["reference"]
_compiled: dict[Any, Any] = {}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Lets :func:`run` use one after the other."""
    with running_on(request.param):
        yield request.param


@contextlib.contextmanager
def running_on(name: str) -> Iterator[None]:
    """Let :func:`run` use "reference", "interpreter", "cpu", "cuda" or "simulated"."""
    _current.append(name)
    try:
        yield
    finally:
        _current.pop()


_OF_NUMPY = {np.dtype(d.work_dtype): d for d in dtypes.ALL_DTYPES if d.work_dtype == d.memory_dtype}
_OF_NUMPY[np.dtype(bool)] = dtypes.int1
CPU = Target("cpu", "generic")


class Held:
    """An array in the working form of a type that numpy lacks (bfloat16, 8-bit floats)."""

    def __init__(self, values: Any, type_: dtype) -> None:
        self.type = type_
        self.memory = np.ascontiguousarray(to_memory(np.asarray(values), type_))

    @property
    def values(self) -> Any:
        return from_memory(self.memory, self.type)

    def torch(self) -> Any:
        """A tensor on the same memory."""
        torch = pytest.importorskip("torch")
        names = {"bf16": "bfloat16", "fp16": "float16", "fp8e5": "float8_e5m2", "fp8e4nv": "float8_e4m3fn"}
        signed = self.memory.view(f"int{8 * self.memory.itemsize}")
        return torch.from_numpy(signed).view(getattr(torch, names[self.type.name]))


def build(kernel: Any, *args: Any, options: Options | None = None, target: Target = CPU, **constants: Any) -> Any:
    """The verified module of `kernel` for arguments as :func:`run` takes them; its text reads back to the same."""
    fn = kernel if isinstance(kernel, BlockFunction) else BlockFunction(kernel)
    names = list(fn.signature.parameters)
    specs = [ParamSpec(name, _type_of(value)) for name, value in zip(names, args, strict=False)]
    specs += [ParamSpec(name, constexpr(constants[name])) for name in names[len(args) :]]
    built = build_module(fn, specs, options or Options(), target)
    for text in built.warnings:
        warnings.warn(text, stacklevel=2)
    module = built.module
    levels.verify(module)
    _check_reads_back(print_module(module, locations=False))
    return module


@functools.cache  # of one text for all back ends
def _check_reads_back(text: str) -> None:
    assert print_module(parse_module(text), locations=False) == text


def run(
    kernel: Any, *args: Any, grid: tuple[int, ...] = (1,), options: Options | None = None, **constants: Any
) -> None:
    """Run `kernel` on a grid; arrays are updated in place.

    Args:
        kernel: a block function, or a Python function to be made one.
        args: numpy arrays (`Held` for types that numpy lacks), integers (int32, or int64), floats (float32).
        grid: number of programs per axis.
        options: compile options.
        constants: compile-time parameters.
    """
    if _current[-1] in ("cuda", "simulated"):
        _run_for_gpus(kernel, args, grid, CudaOptions(**asdict(options or Options())), constants)
        return
    if _current[-1] != "reference":
        fn = kernel.fn if isinstance(kernel, BlockFunction) else kernel
        interpret = _current[-1] == "interpreter"
        compiled = _compiled.setdefault((fn, interpret), tilewright.jit(fn, interpret=interpret))
        native = [value.torch() if isinstance(value, Held) else value for value in args]
        compiled[grid](*native, **constants, **(asdict(options) if options else {}))
        return
    module = build(kernel, *args, options=options, **constants)
    name = kernel.fn.__name__ if isinstance(kernel, BlockFunction) else kernel.__name__
    memory = Memory()
    values = []
    for value in args:
        array = value.memory if isinstance(value, Held) else value
        values.append(memory.register(array) if isinstance(array, np.ndarray) else array)
    Evaluator(module, memory).launch(name, grid, values)


def _run_for_gpus(
    kernel: Any, args: Any, grid: tuple[int, ...], options: CudaOptions, constants: dict[str, Any]
) -> None:
    """On the GPU of this machine, or on the simulated one."""
    simulated = _current[-1] == "simulated"
    target = target_of(90) if simulated else nvidia.target()
    module = build(kernel, *args, options=options, target=target, **constants)
    given = [value.memory if isinstance(value, Held) else value for value in args]
    if simulated:
        _simulate(module, options, target, grid, given)
        return
    try:
        Compiled(module, options, target=target)(grid, *given)
    finally:
        ctypes.CDLL(None).fflush(None)  # what the kernel printed


def _simulate(module: Any, options: CudaOptions, target: Target, grid: tuple[int, ...], given: list[Any]) -> None:
    made = emit_kernel(lay_out_module(run_passes(module), options, target), options, target)
    log = np.zeros(16, np.int32)
    given = [*given, log] if made.needs_log else given
    ran = run_kernel(made.llvm, made.symbol, grid, made.num_warps, given, made.shared_bytes)
    print("".join(ran.printed), end="")
    if log[0]:
        raise DeviceAssertionError(f"device-side assert in {made.symbol}: {made.asserts[log[0] - 1]}")


def _type_of(value: Any) -> Any:
    if isinstance(value, Held):
        return PointerType(value.type)
    if isinstance(value, np.ndarray):
        return PointerType(_OF_NUMPY[value.dtype])
    if isinstance(value, (bool, np.bool_)):
        return dtypes.int1
    if isinstance(value, int):
        return dtypes.int32 if -(2**31) <= value < 2**31 else dtypes.int64
    return dtypes.float32
