"""From a recorded run to the data of its page: kernels, their variants, and what each was compiled to."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.compile.build import compile_request
from tilewright.compile.kernel import CompiledKernel
from tilewright.frontend.source import source_of
from tilewright.launch.faults import Fault
from tilewright.launch.jit import JITFunction
from tilewright.ops.casts import makes_addresses
from tilewright.sanitize.checking import checking
from tilewright.tools.report import accesses
from tilewright.tools.report.layouts import layouts_of
from tilewright.tools.report.pipelines import Pipeline, drawing, pipelines_of
from tilewright.tools.report.recording import Recording, Sample, Variant
from tilewright.tools.report.roofline import Point
from tilewright.tools.report.source import Source, source_rows
from tilewright.tools.report.stages import stages_of

_TUNING = ("num_warps", "num_stages", "num_ctas")


@dataclass(slots=True)
class Times:
    """Compile times of a variant in seconds; None where they are not known.

    Args:
        cold: with nothing on disk.
        warm: from the disk cache.
    """

    cold: float | None
    warm: float | None


@dataclass(slots=True)
class Build:
    """A variant compiled for one target.

    Args:
        title: kernel and constants.
        target: as text.
        kernel: compiled, or None if that failed.
        error: why it failed.
        source: with decisions.
        stages, passes, layouts: data for the page's script.
        pipelines: loops that copy ahead, each with its time line as SVG.
        facts: figures by name.
    """

    title: str
    target: str
    kernel: CompiledKernel | None
    error: str = ""
    source: Source | None = None
    stages: list[dict[str, Any]] = field(default_factory=list)
    passes: list[dict[str, Any]] = field(default_factory=list)
    layouts: dict[str, Any] = field(default_factory=dict)
    pipelines: list[tuple[Pipeline, str]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Shown:
    """A kernel of the run as the page shows it.

    Args:
        name: of the function.
        file, line: where it is written.
        variants: all that were launched.
        times: compile times of each.
        main: the variant that took most of the time: what the parts of the page below the overview are about.
        builds: of the main variant.
        trace: what its programs do, or None where that is not known.
        tensors, rows: data of the part about accesses.
        point: in the roofline plot, or None.
    """

    name: str
    file: str
    line: int
    variants: list[Variant]
    times: list[Times]
    main: Variant
    builds: list[Build]
    trace: accesses.Trace | None = None
    tensors: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    point: Point | None = None

    @property
    def launches(self) -> int:
        """Launches of all variants."""
        return sum(len(variant.launches) for variant in self.variants)

    @property
    def seconds(self) -> float:
        """Time of all launches."""
        return sum(map(seconds_of, self.variants))


def seconds_of(variant: Variant) -> float:
    """Time of all launches of a variant."""
    return sum(event.seconds for event in variant.launches)


def median_of(variant: Variant) -> float:
    """Median time of a launch."""
    return statistics.median(event.seconds for event in variant.launches) if variant.launches else 0.0


def shown_kernels(recording: Recording, targets: Sequence[str], checks: str = "") -> list[Shown]:
    """The kernels of a run, those that took most of it first.

    Args:
        recording: of the run.
        targets: what else to compile for.
        checks: names of checks, with which a launch of each kernel is made once more; none by default.
    """
    by_kernel: dict[JITFunction, list[Variant]] = {}
    for variant in recording.variants:
        by_kernel.setdefault(variant.fn, []).append(variant)
    made = [_shown(fn, variants, targets, checks) for fn, variants in by_kernel.items()]
    return sorted(made, key=lambda kernel: -kernel.seconds)


def _shown(fn: JITFunction, variants: list[Variant], targets: Sequence[str], checks: str) -> Shown:
    source = source_of(fn)
    main = max(variants, key=lambda variant: (variant.sample is not None, seconds_of(variant)))
    times = [_times(variant) for variant in variants]
    made = Shown(fn.fn.__name__, source.file, source.first_line, variants, times, main, [])
    if main.sample is not None:
        _interpret(made, main)
    # What addresses made of integers point to is no argument, so no copy has it.
    again = main.sample if checks and not makes_addresses(str(main.kernel.asm.get("ttir", ""))) else None
    faults = faults_of(again, checks) if again is not None else []
    moved = made.trace.bytes_by_line() if made.trace else {}
    flops = made.trace.flops if made.trace else {}
    lines = range(source.first_line, source.first_line + source.text.count("\n") + 1)
    for kernel, target, error in _compiled(main, targets):
        build = Build(main.title, target, kernel, error)
        if kernel is not None:
            build.source = source_rows(fn, kernel.decisions, moved, flops, faults)
            build.stages, build.passes = stages_of(kernel, source.file, lines)
            build.facts = _facts(kernel)
            if "tgir" in kernel.asm:
                text = str(kernel.asm["tgir"])
                build.layouts = layouts_of(text, source.file, lines)
                whose = f"{made.name} for {target}"
                build.pipelines = [(loop, drawing(loop, whose)) for loop in pipelines_of(text, source.file, lines)]
        made.builds.append(build)
    return made


def faults_of(sample: Sample, checks: str) -> list[Fault]:
    """What checks find in a launch, on copies of its arguments.

    Raises:
        ArgumentError: there is no such check.
    """
    arguments = {name: copy.deepcopy(value) for name, value in sample.arguments.items()}
    with checking(checks) as found:
        sample.fn[sample.grid](**arguments)
    return list(found.faults)


def _compiled(variant: Variant, targets: Sequence[str]) -> list[tuple[CompiledKernel | None, str, str]]:
    """(kernel, target, error) for where the variant ran, and for each target."""
    found: list[tuple[CompiledKernel | None, str, str]] = [(variant.kernel, _short(variant.kernel), "")]
    for target in targets:
        if variant.sample is None:
            found.append((None, target, "its arguments were too large to be kept, or cannot be copied"))
            continue
        asked = [name for name in _TUNING if name not in variant.sample.arguments]  # a parameter may be called so
        options = {name: variant.kernel.metadata[name] for name in asked}
        try:
            kernel = variant.fn.warmup(**variant.sample.arguments, target=target, **options)
            found.append((kernel, target, "" if kernel is not None else "kernels are interpreted"))
        except TilewrightError as error:
            found.append((None, target, str(error)))
    return found


def _short(kernel: CompiledKernel) -> str:
    target = kernel.target
    return f"{target.backend}:{target.arch}"


def _times(variant: Variant) -> Times:
    """What compiling the variant took, or takes now where only one of the two is known."""
    kernel = variant.kernel
    cold, warm = (None, kernel.total_seconds) if kernel.from_disk else (kernel.total_seconds, None)
    if variant.sample is None:
        return Times(cold, warm)
    request, _ = variant.fn.request(**variant.sample.arguments)
    if request.specialization != kernel.specialization or request.target != kernel.target:
        return Times(cold, warm)
    begin = time.perf_counter()
    if cold is None:
        cold = sum(_made_anew(request).seconds.values())
    else:
        again = compile_request(request)
        warm = time.perf_counter() - begin if again.from_disk else None
    return Times(cold, warm)


def _made_anew(request: Any) -> CompiledKernel:
    before, knobs.cache.disabled = knobs.cache.disabled, True
    try:
        return compile_request(request)
    finally:
        knobs.cache.disabled = before


def _facts(kernel: CompiledKernel) -> dict[str, str]:
    facts = {"binary": f"{len(kernel.binary):,} bytes"}
    if kernel.target.backend == "cuda":
        facts |= {
            "registers": f"{kernel.n_regs} a thread", "spilled": f"{kernel.n_spills} bytes",
            "shared memory": f"{kernel.metadata['shared']:,} bytes", "warps": str(kernel.num_warps),
            "stages": str(kernel.num_stages), "occupancy": f"{kernel.occupancy:.0%}",
        }  # fmt: skip
    return facts


def _interpret(made: Shown, variant: Variant) -> None:
    """Fill in what interpreting the sample of a variant tells."""
    sample = variant.sample
    assert sample is not None
    made.trace = accesses.trace(sample)
    if not made.trace.programs:
        return
    made.tensors = accesses.grids_of(sample, made.trace)
    made.rows = accesses.rows_of(sample, made.trace)
    grid = "×".join(map(str, sample.grid))
    times = [event.in_kernel for event in variant.launches if event.facts["grid"] == grid]
    if times:
        scale = made.trace.scale
        moved = sum(min(tensor["bytes"], tensor["unique"] * scale) for tensor in made.tensors)
        backend = variant.kernel.target.backend
        made.point = Point(made.name, sum(made.trace.flops.values()) * scale, moved, min(times), backend)
