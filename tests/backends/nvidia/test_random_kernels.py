"""Random whole kernels of the fuzzer on the simulated GPU: results as the reference evaluator's, and no races."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tests.backends.nvidia import simt_math, simt_tensor
from tests.backends.nvidia.simt import run_kernel
from tests.backends.nvidia.simt_tma import encoding
from tests.fuzz.case import Loaded, load
from tests.fuzz.check import arguments, compare, contents, run_reference, tile_ir
from tests.fuzz.generator import Profile, generate
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.device.tensormap import encode, suits
from tilewright.backends.nvidia.emit.lower import LoweredKernel, emit_kernel
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.base.target import Target
from tilewright.passes.pipeline import run_passes

assert simt_math and simt_tensor  # importing them adds their instructions
CAPABILITIES = (80, 90, 120)


def run_on_simulator(case: Loaded, capability: int) -> dict[str, np.ndarray]:
    """Contents of the arrays after the kernel has run on the simulated GPU."""
    options, target = CudaOptions(tensor_maps=True, **case.options, **case.gpu), target_of(capability)
    arrays, module = contents(case), tile_ir(case)
    run_passes(module)
    kernel, values = _emitted(module, options, target), arguments(case, arrays)
    if not suits(kernel.tensor_maps, [v.ctypes.data if isinstance(v, np.ndarray) else v for v in values]):
        kernel = _emitted(module, options.for_all_values(), target)
    maps = [partial(encode, recipe) for recipe in kernel.tensor_maps]
    values += [lambda given, of=of: np.frombuffer(of(given, 0), np.uint8) for of in maps]
    values += [np.zeros(64, np.int32)] * kernel.needs_log
    with encoding():
        run_kernel(kernel.llvm, kernel.symbol, case.grid, kernel.num_warps, values, kernel.shared_bytes)
    return arrays


def _emitted(module: ModuleOp, options: CudaOptions, target: Target) -> LoweredKernel:
    return emit_kernel(lay_out_module(module.clone(), options, target), options, target)


@pytest.mark.parametrize("seed", range(8))
def test_random_kernels(seed: int, tmp_path: Path) -> None:
    path = tmp_path / f"case_{seed}.py"
    path.write_text(generate(seed, Profile(any_shape=seed % 2 > 0, statements=8)).source())
    case = load(path)
    if any(param.alias for param in case.params):
        pytest.skip("two parameters are one array: the simulator maps each of them")
    differing = compare(case, run_reference(case), run_on_simulator(case, CAPABILITIES[seed % 3]))
    assert not differing, f"{differing}\n{path.read_text()}"
