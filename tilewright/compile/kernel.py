"""From a kernel and a specialisation to loaded code: cache look-ups around the stages.

::

    key = hash(source and callees, globals, specialisation, options, target, versions)
    memory (the binder's table) -> disk (machine code) -> stages: ttir, loops, llir, obj (CPU)
                                                                  ttir, tgir, llir, ptx, cubin (GPU)

A damaged cache entry is a miss: the kernel is compiled anew.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from xdsl.dialects.builtin import ModuleOp

from tilewright.base.callable import BlockFunction
from tilewright.base.disk_cache import disk_cache
from tilewright.base.dtypes import scalar_from_signature
from tilewright.base.errors import ArgumentError, TilewrightError, UnsupportedError
from tilewright.base.hooks import LazyDict
from tilewright.base.knobs import knobs
from tilewright.base.options import Options
from tilewright.base.target import Placement, Target
from tilewright.base.version import __version__
from tilewright.compile.grid import grid3
from tilewright.compile.metadata import Metadata, StageTexts, describe_kernel
from tilewright.compile.run import Unsaved, make_run
from tilewright.compile.slots import slot_values
from tilewright.compile.specialize import ALIGNMENT, CONSTEXPR, DIVISIBLE, Specialization
from tilewright.devices.arrays import read
from tilewright.devices.drivers import driver
from tilewright.devices.places import place_of
from tilewright.devices.registry import cpu, effects, entry, nvidia, pipeline
from tilewright.frontend.hashing import check_globals, content_hash, without_content
from tilewright.ops.functions.tensor_descriptor import tensor_descriptor
from tilewright.ops.text import parse_module, print_module
from tilewright.ops.values import constexpr
from tilewright.passes.stages import Stage, run_stages

Launch = Callable[..., None]


class Backend(Protocol):
    """What the runtime needs of a back end.

    Attributes:
        BINARY: extension of the last stage, whose bytes are kept on disk and loaded.
    """

    BINARY: str

    def target(self) -> Target: ...
    def versions(self) -> str: ...
    def stages(self, options: Options, target: Target) -> Mapping[str, Stage]: ...
    def load(self, binary: bytes, metadata: Mapping[str, Any]) -> Any: ...
    def launcher(self, module: Any, metadata: Mapping[str, Any], place: Placement) -> Launch: ...
    def texts(self, asm: Mapping[str, str | bytes]) -> Mapping[str, Callable[[], str]]: ...


BACKENDS: dict[str, Backend] = {"cpu": cpu, "cuda": nvidia}


@dataclass(slots=True)
class CompiledKernel:
    """A kernel compiled for one specialisation.

    Args:
        name: name of the kernel function.
        target: what it was compiled for.
        metadata: facts about the code: signature, scratch or shared bytes, stored parameters, options.
        hash: key in the disk cache.
        asm: text of each stage ("ttir", "loops", "llir"; on a GPU "ttir", "tgir", "llir", "ptx") and the bytes of the
            last ("obj", "cubin"). After a load from the disk cache only these are there; asking for a text runs the
            stages. "sass" is made of the cubin where nvdisasm is found.
        seconds: compile time per stage; empty when loaded from disk.
        total_seconds: time from the request to loaded code.
        from_disk: whether the disk cache had it.
        module: the loaded code.
        src: the kernel, or the `ASTSource` that was compiled.
        specialization: types and keys that it was compiled for.
    """

    name: str
    target: Target
    metadata: dict[str, Any]
    hash: str
    asm: dict[str, str | bytes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    total_seconds: float = 0.0
    from_disk: bool = False
    module: Any = None
    src: Any = None
    specialization: Specialization | None = None
    _launchers: dict[Any, Any] = field(default_factory=Unsaved, repr=False)

    @property
    def binary(self) -> bytes:
        """The object file, or the cubin."""
        image = self.asm[BACKENDS[self.target.backend].BINARY]
        assert isinstance(image, bytes)
        return image

    @property
    def n_regs(self) -> int:
        """Registers per GPU thread; 0 on a CPU."""
        return int(self.metadata["n_regs"])

    @property
    def n_spills(self) -> int:
        """Bytes spilled per GPU thread; 0 on a CPU."""
        return int(self.metadata["n_spills"])

    @property
    def n_max_threads(self) -> int:
        """GPU threads of a program; 1 on a CPU."""
        return int(self.metadata["n_max_threads"])

    @property
    def occupancy(self) -> float:
        """Share of a GPU multiprocessor's warps that the kernel keeps busy; 1 on a CPU."""
        return float(self.metadata["occupancy"])

    @property
    def packed_metadata(self) -> tuple[int, int, int]:
        """(num_warps, num_ctas, shared)."""
        return self.metadata["num_warps"], self.metadata["num_ctas"], self.metadata["shared"]

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return functools.partial(self._launch, grid)

    def _launch(self, grid: Any, *args: Any, stream: Any = None) -> None:
        """Launch over `grid` with an argument for every parameter; those of compile-time constants are ignored."""
        assert self.specialization is not None
        names = self.specialization.names
        if len(args) != len(names):
            raise ArgumentError(f"{self.name}: takes {len(names)} arguments ({', '.join(names)}), got {len(args)}")
        arguments = tuple(read(value, name) for value, name in zip(args, names, strict=True))
        launch = self.launcher(Placement(place_of(names, arguments).device_for(self.target, self.name), stream))
        gx, gy, gz = grid3(grid)
        if gx * gy * gz:
            launch(gx, gy, gz, *slot_values(arguments, self.specialization.runtime_paths))

    def launcher(self, place: Placement) -> Launch:
        """`launch(gx, gy, gz, *runtime_values)` for launches that go to `place`; made once."""
        launch: Launch | None = self._launchers.get(place)
        if launch is None:
            launch = BACKENDS[self.target.backend].launcher(self.module, self.metadata, place)
            self._launchers[place] = launch
        return launch

    @property
    def run(self) -> Launch:
        """`run(gx, gy, gz, stream, function, packed_metadata, launch_metadata, enter, exit, *arguments)`: a launch with
        an argument for every parameter, of the very kinds that were compiled for."""
        run: Launch | None = self._launchers.get("run")
        if run is None:
            run = self._launchers["run"] = make_run(self)
        return run

    @property
    def function(self) -> Any:
        """The loaded code, as launch hooks are given it."""
        return self.module

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> LazyDict | None:
        """What launch hooks are told of a launch; None while there are none."""
        if not knobs.runtime.launch_enter_hook and not knobs.runtime.launch_exit_hook:
            return None
        return LazyDict({"name": self.name, "function": self.module, "stream": stream, "grid": grid})

    def _init_handles(self) -> None:
        """Load the code if another process made this object."""
        if not isinstance(self.metadata, Metadata):  # tools pass it on as a named tuple
            self.metadata = Metadata(cast(Any, self.metadata)._asdict())
        if self.module is None:
            self.module = backend_of(self.target).load(self.binary, self.metadata)

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.target}>"


@functools.cache
def fingerprint() -> str:
    """Identifies this copy of Tilewright: its version, and name, size and time of each of its files."""
    root = str(Path(__file__).resolve().parent.parent)
    rows = [__version__]
    for folder, folders, files in os.walk(root):  # several times as fast as Path.rglob
        folders[:] = [name for name in folders if name != "__pycache__"]
        for path in (os.path.join(folder, name) for name in files if name.endswith(".py")):
            status = os.stat(path)
            rows.append(f"{path[len(root) :]}:{status.st_size}:{status.st_mtime_ns}")
    return hashlib.sha256(";".join(sorted(rows)).encode()).hexdigest()


def cache_key(fn: BlockFunction, specialization: Specialization, options: Options, target: Target) -> str:
    """Content hash that names the compiled kernel in the disk cache."""
    parts = (
        fingerprint(),
        BACKENDS[target.backend].versions(),
        content_hash(fn),
        specialization.text(),
        options.key(),
        repr(target),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_kernel(
    fn: BlockFunction, specialization: Specialization, options: Options, target: Target | None = None
) -> CompiledKernel:
    """Compile `fn`, or load it from the disk cache.

    Args:
        fn: the kernel.
        specialization: types and keys of its arguments.
        options: compile options.
        target: default is that of the active driver.

    Raises:
        CompilationError: the kernel is wrong; the message shows where.
        GlobalsChangedError: a variable that the kernel uses has changed since it was first compiled.
        UnsupportedError: no back end for `target`.
    """
    begin = time.perf_counter()
    check_globals(fn)
    target = driver.active.get_current_target() if target is None else target
    backend = backend_of(target)
    key = cache_key(fn, specialization, options, target)
    on_disk = not (_bypass_cache() or without_content(fn) or specialization.without_content())
    kernel = _from_disk(fn, key, target, backend) if on_disk else None
    if kernel is None:
        kernel = _compile(fn, specialization, options, target, key)
        if on_disk:
            disk_cache().put(key, kernel.binary, kernel.metadata)
        kernel.module = backend.load(kernel.binary, kernel.metadata)

    def texts() -> Mapping[str, str | bytes]:
        check_globals(fn)
        return _compile(fn, specialization, options, target, key).asm

    kernel.asm = StageTexts(kernel.asm, texts, {"ttir", *backend.stages(options, target)}, backend.texts)
    kernel.src, kernel.specialization = fn, specialization
    kernel.metadata = describe_kernel(options, target, key, kernel.metadata)
    kernel.total_seconds = time.perf_counter() - begin
    return kernel


def backend_of(target: Target) -> Backend:
    """The back end of a target.

    Raises:
        UnsupportedError: there is none.
    """
    if target.backend not in BACKENDS:
        raise UnsupportedError(f"no back end for target {target}", hint=f"available: {', '.join(BACKENDS)}")
    return BACKENDS[target.backend]


def _bypass_cache() -> bool:
    """Dumps and overrides need the stages to run."""
    wanted = knobs.compilation
    return knobs.cache.disabled or wanted.dump_dir is not None or wanted.override_dir is not None


def _from_disk(fn: BlockFunction, key: str, target: Target, backend: Backend) -> CompiledKernel | None:
    entry = disk_cache().get(key)
    if entry is None:
        return None
    kernel = CompiledKernel(
        fn.fn.__name__, target, entry.metadata, key, {backend.BINARY: entry.payload}, from_disk=True
    )
    try:
        kernel.module = backend.load(entry.payload, entry.metadata)
    except (TilewrightError, KeyError):  # whole by its checksum, and still not loadable: compile anew
        return None
    return kernel


def _compile(
    fn: BlockFunction, specialization: Specialization, options: Options, target: Target, key: str
) -> CompiledKernel:
    """Run the stages."""
    metadata: dict[str, Any] = {"name": fn.fn.__name__, "types": list(specialization.runtime_types)}
    stages = {
        "ttir": Stage(
            lambda source, info: _tile_ir(source, specialization, options, target, info), print_module, _parse_override
        ),
        **BACKENDS[target.backend].stages(options, target),
    }
    outcome = run_stages(stages, fn, metadata, fn.fn.__name__, knobs.compilation)
    return CompiledKernel(fn.fn.__name__, target, metadata, key, outcome.texts, outcome.seconds)


# --- the stage that all back ends share ------------------------------------------------------------------


def _tile_ir(
    fn: BlockFunction, specialization: Specialization, options: Options, target: Target, metadata: dict[str, Any]
) -> ModuleOp:
    """Front end and simplification passes."""
    built = entry.build_module(fn, parameter_specs(specialization), options, target)
    for message in built.warnings:
        warnings.warn(message, stacklevel=2)
    metadata["params"] = [param.name for param in built.params]
    module = pipeline.run_passes(built.module)
    metadata["stored"] = sorted(effects.effects_of(module).writes)
    return module


def parameter_specs(specialization: Specialization) -> list[entry.ParamSpec]:
    """What the front end is told of each parameter."""
    rows = zip(specialization.names, specialization.types, specialization.keys, strict=True)
    marks = itertools.count()
    return [entry.ParamSpec(name, _language_value(kind, key), _promises(kind, key, marks)) for name, kind, key in rows]


def _language_value(kind: Any, key: Any) -> Any:
    """A language type, a constexpr, or a tuple of these with the class of the argument."""
    if isinstance(kind, tuple):
        values = [_language_value(k, v) for k, v in zip(kind, key, strict=True)]
        return getattr(kind, "_make", tuple)(values)
    return constexpr(key) if kind == CONSTEXPR else scalar_from_signature(kind)


def _promises(kind: Any, key: Any, marks: Iterator[int]) -> Any:
    """Facts about a run-time argument; for a tuple one mapping per run-time value in it.

    Args:
        kind, key: of the argument.
        marks: for descriptors of which a copy engine can be told: all parts of one have the same.
    """
    if not isinstance(kind, tuple):
        return {"divisibility": ALIGNMENT} if kind != CONSTEXPR and key == DIVISIBLE else {}
    out: list[dict[str, int]] = []
    for inner_kind, inner_key in zip(kind, key, strict=True):
        found = _promises(inner_kind, inner_key, marks)
        if isinstance(inner_kind, tuple):
            out.extend(found)
        elif inner_kind != CONSTEXPR:
            out.append(found)
    if isinstance(kind, tensor_descriptor) and key[0] == DIVISIBLE:
        mark = next(marks)
        return [{**facts, "host_descriptor": mark} for facts in out]
    return out


def _parse_override(contents: bytes, replaced: ModuleOp) -> ModuleOp:
    return parse_module(contents.decode())
