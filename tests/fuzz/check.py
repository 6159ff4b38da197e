"""Run a case file through the reference evaluator, the CPU back end and interpreter mode, and compare the memories.

    source -> tile IR -> text -> tile IR -+-> reference evaluator (no passes)     \
           \\                             +-> passes -> CPU back end, or a GPU      -> all arrays alike
            \\-> interpreter mode                                                 /
"""

from __future__ import annotations

import re
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tests.backends.cpu.families import described, machine
from tests.backends.cpu.harness import Compiled
from tests.fuzz.arguments import Array, Guarded, element, filled, working
from tests.fuzz.case import Loaded, Param, load
from tests.gpu.harness import Compiled as CompiledForGpu
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.assumptions import NO_OVERLAP, without
from tilewright.base.dtypes import PointerType
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ops import levels
from tilewright.ops.text import parse_module, print_module
from tilewright.ops.values import constexpr
from tilewright.passes.pipeline import passes_for, run_passes
from tilewright.passes.united import note_shared_memory

TARGET = Target("cpu", "generic")


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Args:
        stage: "ok", or where it failed: "frontend", "text", "reference", "passes", "cpu", "gpu", "interpreter", or one
            of the comparisons "cpu differs", ...; the parent process adds "crash" and "timeout".
        detail: error or differences, for people.
        kind: short text that is the same for failures of one cause.
    """

    stage: str
    detail: str = ""
    kind: str = ""

    @property
    def passed(self) -> bool:
        return self.stage == "ok"


class _Stop(Exception):
    def __init__(self, stage: str, error: Exception) -> None:
        super().__init__(stage)
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.name}"
        detail = "".join(traceback.format_exception(error))[-4000:]
        said = re.sub(
            r"[`\"'][^`\"']*[`\"']|[0-9]+", "_", str(error).strip().partition("hint:")[0].strip().rpartition("\n")[2]
        )
        self.outcome = Outcome(stage, detail, f"{stage}: {type(error).__name__} in {place}: {said[:80]}")


def check(path: Path, *, interpreter: bool = True, gpu: bool = False) -> Outcome:
    """Run a case file; never raises for a bug of the compiler.

    Args:
        path: the case.
        interpreter: also run it in interpreter mode.
        gpu: run it on a GPU rather than on the CPU.
    """
    native, run = ("gpu", run_on_gpu) if gpu else ("cpu", run_on_cpu)
    try:
        case = load(path)
        wanted = run_reference(case)
        differing = compare(case, wanted, run(case, tile_ir(case)))
        if differing:
            return Outcome(f"{native} differs", differing, f"{native} differs")
        if interpreter:
            shown = _interpreted(case)
            differing = "" if shown is None else compare(case, wanted, shown)
            if differing:
                return Outcome("interpreter differs", differing, "interpreter differs")
    except _Stop as stop:
        return stop.outcome
    return Outcome("ok")


# --- arguments ---------------------------------------------------------------------------------------------


def contents(case: Loaded) -> dict[str, Array]:
    """Fresh contents of the array parameters, by name."""
    arrays = {p.name: filled(p, case.seed) for p in case.params if p.kind == "array"}
    for p in case.params:
        if p.alias:
            arrays[p.name] = arrays[p.alias]
    return arrays


def _spec(param: Param) -> ParamSpec:
    if param.kind == "constexpr":
        return ParamSpec(param.name, constexpr(param.value))
    type_: Any = element(param.dtype)
    if param.kind == "array":
        return ParamSpec(param.name, PointerType(type_), {"divisibility": 16} if param.aligned else {})
    divisible = isinstance(param.value, int) and param.value % 16 == 0 and not type_.is_bool()
    return ParamSpec(param.name, type_, {"divisibility": 16} if divisible else {})


def arguments(case: Loaded, arrays: dict[str, Any]) -> list[Any]:
    return [arrays[p.name] if p.kind == "array" else p.value for p in case.params if p.kind != "constexpr"]


# --- the ways to run ------------------------------------------------------------------------------------------


def tile_ir(case: Loaded) -> Any:
    """Tile IR of the kernel, verified."""
    try:
        built = build_module(case.kernel, [_spec(p) for p in case.params], Options(**case.options), TARGET)
        levels.verify(built.module)
    except Exception as error:
        raise _Stop("frontend", error) from error
    return built.module


def _through_text(module: Any) -> Any:
    try:
        text = print_module(module, locations=False)
        again = parse_module(text)
        levels.verify(again)
        if print_module(again, locations=False) != text:
            raise AssertionError("the text does not print as it was read")
    except Exception as error:
        raise _Stop("text", error) from error
    return again


def run_reference(case: Loaded) -> dict[str, Array]:
    arrays = contents(case)
    module = _through_text(tile_ir(case))
    try:
        memory = Memory()
        addresses = {p.name: memory.register(arrays[p.name], p.name) for p in case.params if p.kind == "array"}
        Evaluator(module, memory).launch("kernel", case.grid, arguments(case, addresses))
    except Exception as error:
        raise _Stop("reference", error) from error
    return arrays


class Shared:
    """The arguments that are one array, which a launch finds out before it compiles."""

    def __init__(self, case: Loaded) -> None:
        names = [p.name for p in case.params if p.kind != "constexpr"]
        self.same = [(names.index(p.name), names.index(p.alias)) for p in case.params if p.alias]
        self.meeting: list[tuple[int, int]] = []


def run_on_cpu(case: Loaded, module: Any) -> dict[str, Array]:
    """Contents of the arrays after `module`, a form of the kernel of `case`, has run on the CPU; changes the module."""
    try:
        note_shared_memory(module, Shared(case))
        run_passes(module, passes_for(Options(**case.options).enable_fp_fusion))
        levels.verify(module)
    except Exception as error:
        raise _Stop("passes", error) from error
    fresh = contents(case)
    guarded = {
        p.name: Guarded(fresh[p.name], aligned=p.aligned) for p in case.params if not p.alias and p.kind == "array"
    }
    for p in case.params:
        if p.alias:
            guarded[p.name] = guarded[p.alias]
    arrays = {name: g.array for name, g in guarded.items()}
    isa = described(case.cpu) if case.cpu else machine()
    try:
        compiled = Compiled(module, Options(**case.options), passes=False, isa=isa)
        compiled(case.grid, *arguments(case, arrays))
    except Exception as error:
        raise _Stop("cpu", error) from error
    return {name: array.copy() for name, array in arrays.items()}


def run_on_gpu(case: Loaded, module: Any) -> dict[str, Array]:
    """Contents of the arrays after `module`, the tile IR of `case`, has run on a GPU; consumes the module."""
    arrays, shared = contents(case), any(p.alias for p in case.params)
    try:
        with without(NO_OVERLAP) if shared else nullcontext():  # a launch would have told of them
            CompiledForGpu(module, CudaOptions(tensor_maps=True, **case.options, **case.gpu))(
                case.grid, *arguments(case, arrays)
            )
    except Exception as error:
        raise _Stop("gpu", error) from error
    return arrays


def _interpreted(case: Loaded) -> dict[str, Array] | None:
    """Element types that numpy lacks are passed as torch tensors; None without torch."""
    arrays = contents(case)
    given: dict[str, Any] = dict(arrays)
    for p in case.params:
        if p.kind == "array":
            native = _native(arrays[p.name], p)
            if native is None:
                return None
            given[p.name] = native
    kernel = tilewright.jit(case.kernel.fn, interpret=True)
    values = [given[p.name] if p.kind == "array" else p.value for p in case.params]
    try:
        kernel[case.grid](*values, **case.options, **case.gpu)
    except Exception as error:
        raise _Stop("interpreter", error) from error
    return arrays


_TORCH = {"bfloat16": "bfloat16", "float8e5": "float8_e5m2", "float8e4nv": "float8_e4m3fn"}


def _native(array: Array, param: Param) -> Any:
    if param.dtype == "int1":
        return array.view(np.bool_)
    if param.dtype not in _TORCH:
        return array
    try:
        import torch
    except ImportError:
        return None
    return torch.from_numpy(array.view(f"int{8 * array.itemsize}")).view(getattr(torch, _TORCH[param.dtype]))


# --- comparison ---------------------------------------------------------------------------------------------------


def compare(case: Loaded, wanted: dict[str, Array], found: dict[str, Array]) -> str:
    """Differences in words; empty if there are none."""
    rows = [_difference(p, wanted[p.name], found[p.name]) for p in case.params if p.kind == "array" and not p.alias]
    return "\n".join(filter(None, rows))


def _difference(param: Param, wanted: Array, found: Array) -> str:
    if np.array_equal(wanted.view(np.uint8), found.view(np.uint8)):
        return ""
    w, f = working(wanted, param), working(found, param)
    if not element(param.dtype).is_floating():
        wrong = w != f
    else:
        with np.errstate(all="ignore"):
            w, f = w.astype(np.float64), f.astype(np.float64)
            near = np.abs(w - f) <= param.tolerance
        wrong = ~((np.isnan(w) & np.isnan(f)) | (w == f) | (near & np.isfinite(w)))
    at = np.flatnonzero(wrong)
    if not at.size:
        return ""
    some = ", ".join(f"[{i}] {w[i]!r} -> {f[i]!r}" for i in at[:6])
    return f"{param.name} ({param.dtype}, tolerance {param.tolerance:.3g}): {at.size} of {w.size} differ: {some}"
