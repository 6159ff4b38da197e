"""The language as code for NVIDIA GPUs, on a machine without one: every name compiles, and runs on the simulated GPU."""

from __future__ import annotations

import inspect
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import language_kernels
from tests.gpu.language_kernels import CASES, Case, check, names_used
from tests.language.kernel_runner import build, run, running_on
from tilewright.backends.nvidia import backend
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.emit.context import EMITTERS
from tilewright.base.errors import CompilationError
from tilewright.base.options import Options
from tilewright.ops import families
from tilewright.ops.spec import REGISTRY, ByHand, Elementwise
from tilewright.passes.pipeline import run_passes
from tilewright.tools import statepage, surface

assert families.FAMILIES


def to_ptx(kernel: Any, capability: int, *args: Any, options: Options | None = None, **constants: Any) -> str:
    """PTX of a kernel for arguments as `run` takes them."""
    options, target = options or Options(), target_of(capability)
    made: Any = run_passes(build(kernel, *args, options=options, target=target, **constants))
    for extension, stage in backend.stages(options, target).items():
        if extension == backend.BINARY:
            break
        made = stage.run(made, {"name": kernel.__name__})
    return str(made)


# --- every name -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_names_run_on_the_simulated_gpu(name: str) -> None:
    check(CASES[name], "simulated")


@pytest.mark.parametrize("name", CASES)
def test_names_compile(name: str) -> None:
    case: Case = CASES[name]
    ptx = to_ptx(case.kernel, case.least, *case.arrays, options=Options(**case.options), **case.constants)
    assert f".entry {case.kernel.__name__}(" in ptx


def test_every_name_of_the_language_has_a_case_or_a_refusal() -> None:
    used = {id(thing) for thing in names_used(Path(language_kernels.__file__))}
    refused = surface.REFUSED_ON["cuda"]
    left = [
        path
        for _, path in statepage.names()
        if path not in refused
        and not path.startswith("extra.libdevice.")  # tests/language/test_libdevice.py and tests/gpu/test_language.py
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
        to_ptx(language_kernels.there_and_back, 90, np.zeros(8, "f4"), np.zeros(8, "f4"), T=element, N=8)


# --- operations -------------------------------------------------------------------------------------------------------


def test_every_operation_with_code_of_its_own_has_an_emitter() -> None:
    """The others are rewritten before: calls inlined, ends of bodies read by what they end."""
    inside = {"tt.func", "tt.call", "tt.return", "tt.reduce.return", "tt.scan.return", "scf.yield", "scf.condition"}
    wanted = {name for name, spec in REGISTRY.items() if isinstance(spec.lowering["cuda"], (ByHand, Elementwise))}
    assert wanted - set(EMITTERS) == inside
