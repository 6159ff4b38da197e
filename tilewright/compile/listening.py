"""Who hears of each compilation: the log, the listener of `knobs.compilation`, and what other rooms add."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.base.hooks import HookChain
from tilewright.base.knobs import knobs
from tilewright.base.library import logs
from tilewright.compile.kernel import CompiledKernel

compiled = HookChain()
"""Called with the source and the kernel after each compilation, and each load from the disk cache."""


class CompileTimes(NamedTuple):
    """Where the time of a compilation went, in microseconds.

    Args:
        ir_initialization: from the source to tile IR.
        lowering_stages: (extension, time) of each further stage.
        store_results: everything else: keys, the disk cache, loading.
    """

    ir_initialization: int
    lowering_stages: list[tuple[str, int]]
    store_results: int

    @property
    def total_lowering(self) -> int:
        """Time of all stages after tile IR."""
        return sum(time for _, time in self.lowering_stages)

    @property
    def total(self) -> int:
        """All of it."""
        return self.ir_initialization + self.total_lowering + self.store_results


def tell_compiled(source: Any, kernel: CompiledKernel) -> None:
    """Record the compilation and call the listener, `listener(src=, metadata=, metadata_group=, times=, cache_hit=)`.

    Args:
        source: of the kernel.
        kernel: compiled, or loaded from the disk cache.
    """
    _record(kernel)
    compiled(source, kernel)
    listener = knobs.compilation.listener
    if listener is None:
        return
    stages = [(extension, round(seconds * 1e6)) for extension, seconds in kernel.seconds.items()]
    first = sum(time for extension, time in stages if extension == "ttir")
    later = [row for row in stages if row[0] != "ttir"]
    rest = round(kernel.total_seconds * 1e6) - first - sum(time for _, time in later)
    listener(
        src=source,
        metadata=kernel.metadata,
        metadata_group=kernel.metadata_group,
        times=CompileTimes(first, later, max(0, rest)),
        cache_hit=kernel.from_disk,
    )


def _record(kernel: CompiledKernel) -> None:
    how = "loaded" if kernel.from_disk else "compiled"
    stages = ", ".join(f"{extension} {seconds * 1e3:.1f}" for extension, seconds in kernel.seconds.items())
    milliseconds, more = kernel.total_seconds * 1e3, f" ({stages})" if stages else ""
    facts = {"kernel": kernel.name, "target": str(kernel.target), "seconds": kernel.total_seconds,
             "stages": dict(kernel.seconds), "from_disk": kernel.from_disk}  # fmt: skip
    logs.compiling.info("%s %s for %s in %.1f ms%s", how, kernel.name, kernel.target, milliseconds, more, extra=facts)
