"""What the planners decide on a kernel, without making machine code, as a text beside the lines of its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

import tilewright
from tilewright.backends.cpu.emit.lower import lower_module
from tilewright.backends.llvm.features import describe
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.base.decision import Decision, counted, from_records, lines_of
from tilewright.base.location import Location
from tilewright.base.target import Target
from tilewright.compile.parameters import parameter_specs
from tilewright.compile.request import complete_options
from tilewright.compile.specialize import Specialization, specialize_call
from tilewright.devices.arrays import read
from tilewright.devices.registry import parse_target
from tilewright.frontend.entry import build_module
from tilewright.frontend.source import source_of
from tilewright.ir.decisions import Decisions
from tilewright.ir.subjects import GENERAL
from tilewright.launch.jit import JITFunction
from tilewright.passes.pipeline import run_passes
from tilewright.tools.aot import source_for

GOLDEN = Path(__file__).parent / "golden"
_TRIPLE = "x86_64-unknown-linux-gnu"  # of the CPU targets, whatever machine this is
TARGETS = {"avx2": "cpu:x86-64-v3", "avx512": "cpu:x86-64-v4", "amx": "cpu:sapphirerapids", "cuda90": "cuda:90"}


@dataclass(frozen=True)
class Spelling:
    """A kernel as somebody may write it.

    Args:
        fn: the kernel.
        signature: as `tilewright explain` takes it, `{T}` being fp16 for GPUs, fp32 for CPUs; or what a launch gives.
        options: of the compilation.
    """

    fn: JITFunction
    signature: str | Sequence[Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.fn.fn.__name__)


def spelled(
    family: list[Spelling], signature: str | Sequence[Any], **options: Any
) -> Callable[[Callable[..., None]], JITFunction]:
    """Decorator: a kernel of a family."""

    def register(function: Callable[..., None]) -> JITFunction:
        made = tilewright.jit(function)
        family.append(Spelling(made, signature, options))
        return made

    return register


def decisions_of(spelling: Spelling, name: str) -> tuple[Decision, ...]:
    """What is decided on a kernel for a target by its name in `TARGETS`."""
    return _planned(*passed(spelling, name))


def passed(spelling: Spelling, name: str) -> tuple[ModuleOp, Any, Target]:
    """(a kernel behind the passes, its options, the target), for a target by its name in `TARGETS`."""
    target = parse_target(TARGETS[name])
    specialization = _specialized(spelling, target)
    given = {"tensor_maps": True, "persistent_programs": True, **spelling.options} if target.backend == "cuda" else {}
    options = complete_options(given, target)
    built = build_module(spelling.fn, parameter_specs(specialization), options, target)
    return run_passes(built.module), options, target


def _planned(module: ModuleOp, options: Any, target: Target) -> tuple[Decision, ...]:
    if target.backend == "cpu":
        return _without_general(
            from_records(lower_module(module, describe(_TRIPLE, str(target.arch)), options).decisions)
        )
    decisions = Decisions()
    lay_out_module(module, options, target, decisions)
    return _without_general(decisions)


def _without_general(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """What is decided; what is told of every access would hide it."""
    general = {subject.name for subject in GENERAL}
    return tuple(decision for decision in decisions if decision.subject not in general)


def _specialized(spelling: Spelling, target: Target) -> Specialization:
    if isinstance(spelling.signature, str):
        element = "fp16" if target.backend == "cuda" else "fp32"
        return source_for(spelling.fn, spelling.signature.replace("{T}", element)).specialization()
    given = zip(spelling.fn.params, spelling.signature, strict=True)
    return specialize_call(spelling.fn.params, tuple(v if p.is_constexpr else read(v, p.name) for p, v in given))


def text_of(spelling: Spelling, name: str) -> str:
    """The decisions below the lines that they are about; line 1 is that of the `def`."""
    source = source_of(spelling.fn)
    lines = range(source.first_line, source.first_line + source.text.count("\n") + 1)
    out = [f"== {spelling.name}"]
    for (file, line), rows in groupby(counted(decisions_of(spelling, name)), lambda row: (row[0].file, row[0].line)):
        if file == source.file and line in lines:
            out.append(f"{line - source.first_line + 1:3} | {Location(file, line).source_line().strip()}")
        else:
            out.append(f"    | {Location(file, line).source_line().strip()}" if line else "    | (the kernel)")
        for decision, count in rows:
            known = decision.cause_line in lines
            shown = decision if known else replace(decision, cause_line=0)
            out += [f"        {text}" for text in lines_of(shown, count, source.first_line)]
    return "\n".join(out) + "\n"


def golden_text(family: Sequence[Spelling], name: str) -> str:
    """All kernels of a family."""
    return "\n".join(text_of(spelling, name) for spelling in family)


def golden_file(family: str, name: str) -> Path:
    """Where the text of a family for a target is kept."""
    return GOLDEN / f"{family}.{name}.txt"
