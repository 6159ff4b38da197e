"""Run tile IR through the CPU back end, without front end, runtime or cache.

`run_ttir(text, grid, *arguments)` compiles a module, runs every program on the calling thread and leaves the results in
the numpy arrays that were passed as pointers.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tests.backends.cpu.families import load_for, machine
from tilewright.backends.cpu.abi import STOP_BYTES
from tilewright.backends.cpu.emit.lower import CpuProgram, lower_module
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.options import Options
from tilewright.ir.types import element_type, ir_name
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module
from tilewright.passes.pipeline import run_passes

_FORMS = {"f32": "<f4x", "f64": "<d", "f16": "<e6x"}


@functools.cache
def _read(text: str, passes: bool) -> ModuleOp:
    """The module of a text, which every family is compiled from."""
    module = parse_module(text)
    if passes:
        run_passes(module)
    return module


class Compiled:
    """A kernel ready to run.

    Args:
        source: TTIR text or module (which is changed).
        options: compile options.
        passes: whether to simplify first.
        isa: the target, this machine unless given; instructions that the machine lacks are replaced (`families`).
    """

    def __init__(
        self,
        source: str | ModuleOp,
        options: Options | None = None,
        *,
        passes: bool = True,
        isa: CpuFeatures | None = None,
    ) -> None:
        if isinstance(source, str):
            module = _read(source, passes).clone()
        else:
            module = source
            if passes:
                run_passes(module)
        kernel = next(op for op in module.ops if isinstance(op, FuncOp) and op.is_kernel)
        self.names = [ir_name(element_type(t)) for t in kernel.function_type.inputs]
        isa = machine() if isa is None else isa
        self.program: CpuProgram = lower_module(module, isa, options)
        exports = [self.program.symbol] + ([f"{self.program.symbol}.failed"] if self.program.asserts else [])
        self.library = load_for(isa, self.program.llvm, exports)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3)
        self.entry = prototype(self.library.address(self.program.symbol))
        self._arena = np.zeros(self.program.scratch_bytes + 128, np.uint8)
        self._stop = np.zeros(STOP_BYTES, np.uint8)

    def slots(self, grid: Sequence[int], arguments: Sequence[Any]) -> bytes:
        """The packed parameters and grid of the kernel ABI."""
        packed = b""
        for name, value in zip(self.names, arguments, strict=True):
            if isinstance(value, np.ndarray):
                packed += struct.pack("<q", value.ctypes.data)
            elif name in _FORMS:
                packed += struct.pack(_FORMS[name], value)
            else:
                packed += struct.pack("<q", int(value))
        return packed + struct.pack("<3q", *(*grid, 1, 1)[:3])

    def __call__(self, grid: Sequence[int], *arguments: Any) -> None:
        """Run all programs of `grid`; arrays are passed by address."""
        slots = self.slots(grid, arguments)
        arena = (self._arena.ctypes.data + 63) // 64 * 64
        count = int(np.prod((*grid, 1, 1)[:3]))
        buffer = ctypes.create_string_buffer(slots, len(slots))
        self.entry(0, count, ctypes.addressof(buffer), arena, self._stop.ctypes.data)


def run_ttir(source: str | ModuleOp, grid: Sequence[int], *arguments: Any, **options: Any) -> CpuProgram:
    """Compile and run; see `Compiled`. Gives what the lowering said of the kernel."""
    compiled = Compiled(source, **options)
    compiled(grid, *arguments)
    return compiled.program
