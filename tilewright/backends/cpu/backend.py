"""The CPU as the runtime sees it: target, stages, loading, launching.

::

    ttir --loops--> plan of fusion groups --llir--> LLVM IR text --obj--> object bytes --load--> address
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cpu.launch.launcher import KernelCode, make_launch
from tilewright.backends.cpu.lower import stages as lowering_stages
from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.features import CpuFeatures, describe
from tilewright.base.knobs import knobs
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.passes.stages import Stage


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """Code of one kernel in memory.

    Args:
        library: keeps the code alive.
        address: of the range function.
    """

    library: codegen.Library
    address: int


@functools.lru_cache(maxsize=8)
def _target(arch: str | None, features: str | None) -> Target:
    isa = describe("", arch or "", features or "")
    return Target("cpu", isa.cpu, isa.flags, isa.triple)


def target() -> Target:
    """The host, or the CPU that the knobs name."""
    return _target(knobs.cpu.arch, knobs.cpu.features)


@functools.lru_cache(maxsize=8)
def features_of(target: Target) -> CpuFeatures:
    """What a target can do."""
    host_like = _target(None, None)
    if target == host_like:
        return describe()
    return describe(target.triple, str(target.arch), target.features)


def versions() -> str:
    """Versions of what makes code, for the cache key."""
    return codegen.versions()


def stages(options: Options, target: Target) -> Mapping[str, Stage]:
    """The stages after tile IR."""
    return lowering_stages(options, features_of(target))


def load(binary: bytes, metadata: Mapping[str, Any]) -> LoadedKernel:
    """Load object bytes made by the stages.

    Raises:
        InternalError: the bytes are not a loadable object.
    """
    symbol = str(metadata["symbol"])
    library = codegen.load(binary, [symbol])
    return LoadedKernel(library, library.address(symbol))


def launcher(module: LoadedKernel, metadata: Mapping[str, Any], num_threads: int | None) -> Callable[..., None]:
    """A function ``launch(gx, gy, gz, *values)`` that runs the kernel over a grid."""
    code = KernelCode(
        address=module.address,
        types=tuple(metadata["types"]),
        scratch_bytes=int(metadata["scratch_bytes"]),
        chunk=int(metadata.get("chunk", 0)),
        owner=module,
    )
    return make_launch(code, num_threads=num_threads)
