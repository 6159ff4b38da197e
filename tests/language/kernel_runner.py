"""Runs a block function on numpy arrays: through the reference evaluator, or as native code on the CPU.

Tests that use the fixture `backend` run once on each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.backends.reference.memory import Memory
from tilewright.base import dtypes
from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import PointerType, dtype
from tilewright.base.minifloat import from_memory, to_memory
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ops import levels
from tilewright.ops.text import parse_module, print_module
from tilewright.ops.values import constexpr

BACKENDS = ("reference", "interpreter", "cpu")
_current = ["reference"]
_compiled: dict[Any, Any] = {}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Lets :func:`run` use the reference, then the CPU."""
    _current.append(request.param)
    yield request.param
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


def build(kernel: Any, *args: Any, options: Options | None = None, **constants: Any) -> Any:
    """The verified module of `kernel` for arguments as :func:`run` takes them; its text reads back to the same."""
    fn = kernel if isinstance(kernel, BlockFunction) else BlockFunction(kernel)
    names = list(fn.signature.parameters)
    specs = [ParamSpec(name, _type_of(value)) for name, value in zip(names, args, strict=False)]
    specs += [ParamSpec(name, constexpr(constants[name])) for name in names[len(args) :]]
    built = build_module(fn, specs, options or Options(), CPU)
    for text in built.warnings:
        warnings.warn(text, stacklevel=2)
    module = built.module
    levels.verify(module)
    text = print_module(module, locations=False)
    assert print_module(parse_module(text), locations=False) == text
    return module


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
