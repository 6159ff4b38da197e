"""The language as code for NVIDIA GPUs, without a GPU: every name compiles, and runs on the simulated one."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import language_kernels
from tests.gpu.language_case import CASES, Case, check, names_used
from tests.gpu.test_language import add_one, scaled_copy, slow_flag
from tests.language.kernel_runner import build
from tests.language.test_libdevice import LETTERS
from tests.language.test_libdevice import kernel as functions_of_libdevice
from tilewright.backends.nvidia import backend
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.base.errors import CompilationError
from tilewright.language.extra import libdevice
from tilewright.ops import families
from tilewright.passes.pipeline import run_passes
from tilewright.tools import statepage, surface
from tilewright.tools.tensor_descriptor import TensorDescriptor

assert families.FAMILIES
pytestmark = pytest.mark.filterwarnings("ignore:.*view is deprecated")


def texts(
    kernel: Any, capability: int, *args: Any, last: str = "ptx", options: CudaOptions | None = None, **constants: Any
) -> dict[str, str]:
    """What the stages up to `last` make of a kernel for arguments as `run` takes them."""
    options, target = options or CudaOptions(), target_of(capability)
    made: Any = run_passes(build(kernel, *args, options=options, target=target, **constants))
    found: dict[str, str] = {}
    for extension, stage in backend.stages(options, target).items():
        made = stage.run(made, {"name": "kernel"})
        found[extension] = str(stage.render(made))
        if extension == last:
            break
    return found


# --- every name -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_names_run_on_the_simulated_gpu(name: str) -> None:
    check(CASES[name], "simulated")


@pytest.mark.parametrize("name", CASES)
def test_names_compile(name: str) -> None:
    case: Case = CASES[name]
    made = texts(case.kernel, case.least, *case.arrays, options=CudaOptions(**case.options), **case.constants)
    assert f".entry {case.kernel.__name__}(" in made["ptx"]


# Names that programs look at on the host; no kernel says them.
FOR_PROGRAMS = {"semantic", "core.is_builtin", "core.CONSTEXPR_0"}


def test_every_name_of_the_language_has_a_case_or_a_refusal() -> None:
    used = {id(thing) for thing in names_used(Path(language_kernels.__file__))}
    used |= {id(function) for function in libdevice.FUNCTIONS.values()}  # see test_every_function_of_libdevice_compiles
    used |= {id(value) for name, value in vars(libdevice).items() if not name.startswith("_")}
    refused = surface.REFUSED_ON["cuda"]
    left = [
        path
        for _, path in statepage.names()
        if path not in refused
        and path not in FOR_PROGRAMS
        and not path.startswith("semantic.")
        and id(operator.attrgetter(path)(tl)) not in used
    ]
    assert left == []


def test_every_kernel_of_the_cases_is_one() -> None:
    used = {case.kernel.fn.__name__ for case in CASES.values()} | {"plus", "collatz"}
    made = {name for name, value in vars(language_kernels).items() if isinstance(value, tw.JITFunction)}
    assert made == used


@pytest.mark.parametrize("path", sorted(surface.REFUSED_ON["cuda"]))
def test_what_cuda_refuses_says_so(path: str) -> None:
    element = operator.attrgetter(path)(tl)
    with pytest.raises(CompilationError, match=f"type {element} not supported in this architecture"):
        texts(language_kernels.there_and_back, 90, np.zeros(8, "f4"), np.zeros(8, "f4"), T=element, N=8)


# --- through the front door -------------------------------------------------------------------------------------------


def test_descriptors_made_by_the_host_compile() -> None:
    blocks = [TensorDescriptor.from_tensor(np.zeros((40, 72), np.float32), [16, 32]) for _ in range(2)]
    for target, copy in (("cuda:89", "ld.global"), ("cuda:90", "cp.async.bulk.tensor.2d.shared::cta.global")):
        made = scaled_copy.warmup(*blocks, 3.0, M=16, N=32, grid=(3, 3), target=target)
        assert made is not None and "tt.descriptor_load" not in made.asm["tgir"] and copy in made.asm["ptx"]


def test_dependent_launches_and_clocks_compile() -> None:
    made = add_one.warmup(tw.MockTensor(tl.float32), N=1024, CUDA=True, launch_pdl=True, grid=(64,), target="cuda:100")
    assert made is not None and "griddepcontrol.wait" in made.asm["ptx"]
    with pytest.raises(CompilationError, match=r"gdc_wait .* needs compute capability 9.0, not cuda:89"):
        add_one.warmup(tw.MockTensor(tl.float32), N=1024, CUDA=True, grid=(64,), target="cuda:89")
    flags = np.zeros(4, np.int32)
    assert texts(slow_flag, 80, flags, flags)["ptx"].count("%globaltimer") >= 4


def test_programs_of_other_targets_do_not_see_what_is_guarded() -> None:
    for target, emitted in (("cuda:90", "%smid"), (None, "store i32 1")):
        made = guarded.warmup(tw.MockTensor(tl.int32), grid=(1,), **({"target": target} if target else {}))
        assert made is not None and emitted in made.asm["ptx" if target else "llir"]


@tw.jit
def guarded(out):
    value = 1
    if tl.target_info.is_cuda():
        value += tl.extra.cuda.smid()
    tl.store(out, value)


# --- libdevice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signature", sorted({case for cases in libdevice.CASES.values() for case in cases.split()}))
def test_every_function_of_libdevice_compiles(signature: str) -> None:
    """To LLVM IR: linking needs NVIDIA's library, and the tests of the back end do that."""
    names = tuple(name for name, cases in libdevice.CASES.items() if signature in cases.split())
    operands, result = signature.split(">")
    arrays = [np.zeros(8, LETTERS[kind]) for kind in (*operands, *operands[-1] * (4 - len(operands)), result)]
    constants = {"NAMES": names, "ARITY": len(operands), "N": 8}
    made = texts(functions_of_libdevice, 80, *arrays, last="llir", **constants)
    called = set(re.findall(r'symbol = "(\w+)"', made["tgir"]))
    bits = {name for name in names if "_as_" in name}  # the same bits under another type: no call
    assert called == {libdevice.symbol_of(name, operands) for name in names if name not in bits}
    assert "ptx_kernel void @kernel(" in made["llir"]


# --- operations -------------------------------------------------------------------------------------------------------
