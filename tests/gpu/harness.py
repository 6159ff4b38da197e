"""Run tile IR on a GPU, without front end, runtime or cache: the counterpart of tests/backends/cpu/harness.py.

`Compiled(source)(grid, *arguments)` copies the numpy arrays that stand for pointers to the GPU, runs every program and
copies them back. Arrays lie between guard bytes; a store that touches one is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tilewright.backends.nvidia import backend
from tilewright.backends.nvidia.device import driver
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.protocol import Launch
from tilewright.base.target import Placement, Target
from tilewright.ir.types import element_type, ir_name, is_pointer
from tilewright.ops.function import FuncOp
from tilewright.ops.text import parse_module
from tilewright.passes.pipeline import passes_for, run_passes

_GUARD = 256  # bytes on each side of an array
_POISON = 0xA5


class Compiled:
    """A kernel ready to run.

    Args:
        source: TTIR text or module (which is consumed).
        options: compile options.
        passes: whether to simplify first.
        target: a CUDA target; that of the machine's GPU if not given.

    Attributes:
        artifacts: what every stage made, by extension.
        metadata: of the kernel.
    """

    def __init__(
        self,
        source: str | ModuleOp,
        options: CudaOptions | None = None,
        *,
        passes: bool = True,
        target: Target | None = None,
    ) -> None:
        module = parse_module(source) if isinstance(source, str) else source
        options, plain = options or CudaOptions(), module.clone()
        self._otherwise = lambda: Compiled(plain, options.for_all_values(), passes=passes, target=target).launch
        if passes:
            run_passes(module, passes_for(options.enable_fp_fusion))
        kernel = next(op for op in module.ops if isinstance(op, FuncOp) and op.is_kernel)
        types = [element_type(t) for t in kernel.function_type.inputs]
        self.metadata: dict[str, Any] = {
            "name": kernel.symbol,
            "types": ["*i8" if is_pointer(t) else _SIGNATURE.get(ir_name(t), ir_name(t)) for t in types],
        }
        artifact: Any = module
        self.artifacts: dict[str, Any] = {}
        for extension, stage in backend.stages(options, target or backend.target()).items():
            artifact = stage.run(artifact, self.metadata)
            self.artifacts[extension] = stage.render(artifact)
        self.binary: bytes = artifact

    @functools.cached_property
    def launch(self) -> Launch:
        """`launch(gx, gy, gz, *values)`."""
        loaded = backend.load(self.binary, self.metadata)
        return backend.launcher(loaded, self.metadata, Placement(device=0), self._otherwise)

    def __call__(self, grid: Sequence[int], *arguments: Any) -> None:
        """Run all programs of `grid`; arrays come back changed."""
        buffers: dict[int, tuple[driver.Memory, np.ndarray[Any, Any]]] = {}
        slots = []
        for value in arguments:
            if not isinstance(value, np.ndarray):
                slots.append(value)
                continue
            assert value.flags.c_contiguous
            key = value.ctypes.data
            if key not in buffers:
                memory = driver.Memory(value.nbytes + 2 * _GUARD)
                guard = bytes([_POISON]) * _GUARD
                memory.write(guard + value.tobytes() + guard)
                buffers[key] = memory, value
            slots.append(buffers[key][0].address + _GUARD)
        self.launch(*(*grid, 1, 1)[:3], *slots)
        driver.synchronize(0)
        for memory, array in buffers.values():
            _copy_back(memory, array)


def _copy_back(memory: driver.Memory, array: np.ndarray[Any, Any]) -> None:
    data = memory.read()
    guard = bytes([_POISON]) * _GUARD
    assert data[:_GUARD] == guard, "the kernel wrote in front of an array"
    assert data[_GUARD + array.nbytes :] == guard, "the kernel wrote behind an array"
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8, array.nbytes, _GUARD)


_SIGNATURE = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "i1": "i1"}
