"""What a program does with kernels while it runs: launches, compilations, searches of autotuners, each with its time.

with recorded() as recording:
    program()
recording.launches, recording.variants(), recording.samples
"""

from __future__ import annotations

import copy
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.hooks import Launched, LazyDict
from tilewright.base.knobs import knobs
from tilewright.compile.grid import grid3
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.specialize import CONSTEXPR
from tilewright.launch.jit import JITFunction

_SAMPLE_BYTES = 64 << 20  # arguments larger than this are not kept
_GOOD_GRID = 12  # programs that show best how a tensor is shared out


@dataclass(slots=True)
class Event:
    """Something that took time.

    Args:
        kind: "launch", "compile" or "tuning".
        name: of the kernel.
        begin, end: seconds of `time.perf_counter`.
        thread: that it happened in.
        facts: more about it, for people.
        on_gpu: of a launch on a GPU, the seconds between two events of its stream around it.
    """

    kind: str
    name: str
    begin: float
    end: float
    thread: int
    facts: dict[str, Any] = field(default_factory=dict)
    on_gpu: float | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin

    @property
    def in_kernel(self) -> float:
        """How long a launch took where it ran."""
        return self.seconds if self.on_gpu is None else self.on_gpu


@dataclass(frozen=True, slots=True)
class Sample:
    """A launch that can be made again.

    Args:
        fn: the kernel.
        arguments: copies of what was passed, by parameter name.
        grid: programs along x, y, z.
    """

    fn: JITFunction
    arguments: dict[str, Any]
    grid: tuple[int, int, int]


@dataclass(slots=True)
class Variant:
    """A variant of a kernel that was launched.

    Args:
        fn: the kernel.
        kernel: compiled.
        launches: in order.
        sample: a launch of few programs, or None where arguments cannot be copied.
        largest: programs of the largest launch.
    """

    fn: JITFunction
    kernel: CompiledKernel
    launches: list[Event] = field(default_factory=list)
    sample: Sample | None = None
    largest: tuple[int, int, int] = (0, 0, 0)

    @property
    def reason(self) -> str:
        """Why it is not one of the variants before it."""
        return next((v.reason for v in self.fn.variants() if v.kernel is self.kernel), "")

    @property
    def title(self) -> str:
        """The kernel and its constants: `matmul_kernel[BLOCK_M=64, BLOCK_N=64]`."""
        return title_of(self.kernel)


class Recording:
    """What was heard of a run.

    Attributes:
        begin, end: of the run, in seconds of `time.perf_counter`.
        events: in the order in which they ended.
    """

    def __init__(self) -> None:
        self.begin = self.end = time.perf_counter()
        self.events: list[Event] = []
        self._variants: dict[int, Variant] = {}
        self._open: dict[int, tuple[float, Any, _GpuClock | None]] = {}
        self._lock = threading.Lock()

    @property
    def variants(self) -> list[Variant]:
        """Variants that were launched, in the order of their first launches."""
        return list(self._variants.values())

    def enter(self, facts: LazyDict) -> None:
        """Ahead of a launch."""
        launched = facts.subject
        if launched is None or not isinstance(launched.fn, JITFunction):  # a bundle has no source to show
            return
        with self._lock:
            variant = self._variants.setdefault(id(launched.kernel), Variant(launched.fn, launched.kernel))
        grid = grid3(launched.grid)
        _consider(variant, launched.arguments, grid)
        variant.largest = max(variant.largest, grid, key=math.prod)
        mark = _profiler_mark(variant.title)
        clock = _GpuClock() if launched.kernel.target.backend == "cuda" and _torch_has_gpu() else None
        self._open[id(facts)] = (time.perf_counter(), mark, clock)

    def leave(self, facts: LazyDict) -> None:
        """Behind a launch."""
        begin, mark, clock = self._open.pop(id(facts), (None, None, None))
        if begin is None:
            return
        launched = facts.subject
        assert isinstance(launched, Launched)
        on_gpu = None if clock is None else clock.seconds()
        end = time.perf_counter()
        if mark is not None:
            mark.__exit__(None, None, None)
        variant = self._variants[id(launched.kernel)]
        grid = grid3(launched.grid)
        facts_shown = {"grid": "×".join(map(str, grid)), "variant": variant.title}
        event = Event("launch", launched.kernel.name, begin, end, threading.get_ident(), facts_shown, on_gpu)
        variant.launches.append(event)
        self.events.append(event)

    def compiled(self, **told: Any) -> None:
        """Behind a compilation (the listener of `knobs.compilation`)."""
        end, times = time.perf_counter(), told["times"]
        stages = {"ttir": times.ir_initialization, **dict(times.lowering_stages)}
        facts = {
            "from the disk cache": told["cache_hit"],
            **{name: f"{us / 1e3:.1f} ms" for name, us in stages.items() if us},
        }
        begin = end - times.total / 1e6
        self.events.append(Event("compile", told["metadata"]["name"], begin, end, threading.get_ident(), facts))

    def tuned(self, **told: Any) -> None:
        """Behind a search of an autotuner (the listener of `knobs.autotuning`)."""
        end = time.perf_counter()
        begin = end - (told["duration"] or 0.0)
        here = threading.get_ident()
        for event in self.events:
            if event.kind == "launch" and event.thread == here and event.begin >= begin:
                event.facts["by"] = "a search"
        facts = {"best": str(told["best_config"]), "configurations": len(told["configs_timings"])}
        self.events.append(Event("tuning", told["fn"].fn.__name__, begin, end, here, facts))


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the launches, compilations and searches of this process while the block runs."""
    recording = Recording()
    runtime, before = knobs.runtime, (knobs.compilation.listener, knobs.autotuning.listener)
    runtime.launch_enter_hook.add(recording.enter)
    runtime.launch_exit_hook.add(recording.leave)
    knobs.compilation.listener, knobs.autotuning.listener = recording.compiled, recording.tuned
    recording.begin = time.perf_counter()
    try:
        yield recording
    finally:
        recording.end = time.perf_counter()
        knobs.compilation.listener, knobs.autotuning.listener = before
        runtime.launch_enter_hook.remove(recording.enter)
        runtime.launch_exit_hook.remove(recording.leave)


def title_of(kernel: CompiledKernel) -> str:
    """The kernel with its constants: `add_kernel[BLOCK=1024]`."""
    assert kernel.specialization is not None
    leaves = [(name, key) for name, _, kind, key in kernel.specialization.leaves() if kind == CONSTEXPR]
    shown = ", ".join(f"{name}={getattr(key, 'name', key)}" for name, key in leaves)
    return f"{kernel.name}[{shown}]" if shown else kernel.name


def _consider(variant: Variant, arguments: Mapping[str, Any], grid: tuple[int, int, int]) -> None:
    """Keep copies of a launch's arguments if it shows more than the one that is kept."""
    held = variant.sample
    if math.prod(grid) == 0 or (held is not None and _distance(grid) >= _distance(held.grid)):
        return
    if sum(_bytes(value) for value in arguments.values()) > _SAMPLE_BYTES:
        return
    try:
        copies = {name: _detached(value) for name, value in copy.deepcopy(dict(arguments)).items()}
        variant.sample = Sample(variant.fn, copies, grid)
    except Exception:  # whatever an argument of another library says to being copied: it is shown without accesses
        return


def _detached(value: Any) -> Any:
    """A tensor without its place in autograd: launching it again is no part of the user's graph."""
    return value.detach() if getattr(value, "requires_grad", False) is True else value


def _distance(grid: tuple[int, int, int]) -> float:
    return abs(math.log2(math.prod(grid) / _GOOD_GRID))


def _bytes(value: Any) -> int:
    if isinstance(value, (tuple, list)):
        return sum(map(_bytes, value))
    size = getattr(value, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _profiler_mark(name: str) -> Any:
    """A range that `torch.profiler` sees, if torch is loaded and a profiler runs."""
    profiler = sys.modules.get("torch.autograd.profiler")
    if profiler is None or not getattr(profiler, "_is_profiler_enabled", False):
        return None
    mark = profiler.record_function(name)
    mark.__enter__()
    return mark


class _GpuClock:
    """Times a launch on the current stream of torch, and waits for it."""

    def __init__(self) -> None:
        event = sys.modules["torch"].cuda.Event
        self._begin, self._end = event(enable_timing=True), event(enable_timing=True)
        self._begin.record()

    def seconds(self) -> float:
        """Between the two ends of the launch."""
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1e3


def _torch_has_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()
