"""Whole kernels without a GPU: compiled to LLVM IR, PTX or a cubin, and run on the simulated one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tests.backends.nvidia import simt_math, simt_tensor
from tests.backends.nvidia.laying import tile_ir
from tests.backends.nvidia.simt import Result, run_kernel
from tilewright.backends.nvidia.arch import arch_of, target_of
from tilewright.backends.nvidia.cubin import Cubin, assemble
from tilewright.backends.nvidia.emit.lower import LoweredKernel, emit_kernel
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.nvidia.ptx import compile_ptx
from tilewright.base.callable import BlockFunction

assert simt_math and simt_tensor  # importing them adds their instructions


@dataclass
class Whole:
    """A kernel on its way.

    Args:
        capability: of the target.
        options: compile options.
        module: laid-out tile IR, ready for emission.
    """

    capability: int
    options: CudaOptions
    module: ModuleOp

    def lowered(self) -> LoweredKernel:
        """Its LLVM IR."""
        return emit_kernel(self.module.clone(), self.options, target_of(self.capability))

    def run(self, grid: Sequence[int], *args: Any, order: Sequence[int] = ()) -> Result:
        """Run it on the simulated GPU; arrays are changed in place. `order` is that of the blocks of a cluster."""
        made = self.lowered()
        return run_kernel(
            made.llvm, made.symbol, grid, made.num_warps, args, made.shared_bytes, cluster=made.cluster, order=order
        )

    def assembled(self) -> tuple[str, Cubin]:
        """PTX and machine code."""
        made = self.lowered()
        ptx = compile_ptx(made.llvm, arch_of(self.capability))
        cubin = assemble(ptx, arch_of(self.capability), kernel=made.symbol)
        assert cubin is not None, "no assembler is installed"
        return ptx, cubin


def whole(
    fn: BlockFunction, types: dict[str, str], constants: dict[str, Any], capability: int, **options: Any
) -> Whole:
    """Lay a kernel out with the whole pipeline.

    Args:
        fn: a jit function.
        types, constants: as for `tile_ir`.
        capability: of the target.
        options: compile options (`num_warps`, `num_stages`, ...).
    """
    defaults = {p.name: p.default for p in fn.signature.parameters.values() if p.default is not p.empty}
    constants, chosen = {**defaults, **constants}, CudaOptions(**options)
    return Whole(capability, chosen, lay_out_module(tile_ir(fn, types, **constants), chosen, target_of(capability)))
