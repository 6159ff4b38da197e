"""Settings of the process, read from the environment once and changeable in Python.

``tilewright.knobs.cpu.num_threads = 2`` or ``TILEWRIGHT_NUM_THREADS=2``: each knob has one
name in both worlds, a type, a default and a line of help; `tilewright doctor` lists them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tilewright.base.errors import KnobError
from tilewright.base.hooks import HookChain, settings_changed

_TRUE, _FALSE = {"1", "true", "yes", "y", "on"}, {"0", "false", "no", "n", "off"}


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("is neither 1 nor 0")
    return word in _TRUE


def _whole(least: int) -> Callable[[str], int]:
    """A parser of integers that are not below `least`."""

    def parse(text: str) -> int:
        if not text.strip().isdigit() or int(text) < least:
            raise ValueError(f"is no whole number of at least {least}")
        return int(text)

    return parse


def _places(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(";"))))


def _user_cache() -> Path:
    """The folder for caches of this user; one for temporary files where the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"tilewright-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def _knob(env: str, default: Any, parse: Callable[[str], Any], help_text: str) -> Any:
    """A dataclass field whose default is the environment variable `env` when it is set."""

    def read() -> Any:
        text = os.environ.get(env)
        if text is None or text == "":
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise KnobError(f"the environment variable {env}={text!r} {error}", hint=help_text) from None

    return field(default_factory=read, metadata={"env": env, "help": help_text})


class _Group:
    """A group of knobs; setting one is announced."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        settings_changed()


@dataclass(slots=True)
class CacheKnobs(_Group):
    dir: Path = _knob(
        "TILEWRIGHT_CACHE_DIR",
        _user_cache(),
        Path,
        "folder of the disk cache",
    )
    layers: tuple[str, ...] = _knob(
        "TILEWRIGHT_CACHE_LAYERS", (), _places, "folders or URLs that are read after the disk cache, separated by `;`"
    )
    shared: str | None = _knob(
        "TILEWRIGHT_CACHE_SHARED",
        None,
        str,
        "folder or URL that is read last, and gets what is compiled",
    )
    size: int = _knob("TILEWRIGHT_CACHE_SIZE", 1 << 30, _whole(0), "size in bytes above which old entries are dropped")
    disabled: bool = _knob("TILEWRIGHT_ALWAYS_COMPILE", False, _bool, "ignore the caches and compile each kernel anew")


@dataclass(slots=True)
class CpuKnobs(_Group):
    num_threads: int | None = _knob(
        "TILEWRIGHT_NUM_THREADS", None, _whole(1), "threads of a launch; default: torch's, else the affinity mask"
    )
    threading: str = _knob("TILEWRIGHT_THREADING", "auto", str, "auto, openmp, pool or serial")
    arch: str | None = _knob("TILEWRIGHT_CPU", None, str, "CPU to generate code for, as LLVM names it")
    features: str | None = _knob("TILEWRIGHT_CPU_FEATURES", None, str, "LLVM feature string used with TILEWRIGHT_CPU")


@dataclass(slots=True)
class CudaKnobs(_Group):
    assembler: str = _knob(
        "TILEWRIGHT_ASSEMBLER", "auto", str, "what makes machine code of PTX: auto, nvjitlink, ptxas or driver"
    )
    ptxas: Path | None = _knob("TILEWRIGHT_PTXAS_PATH", None, Path, "the ptxas program to use")
    libcuda: Path | None = _knob("TILEWRIGHT_LIBCUDA_PATH", None, Path, "the driver library to load")
    libdevice: Path | None = _knob("TILEWRIGHT_LIBDEVICE_PATH", None, Path, "the libdevice.10.bc to link")


@dataclass(slots=True)
class CompilationKnobs(_Group):
    dump_dir: Path | None = _knob("TILEWRIGHT_DUMP_DIR", None, Path, "write the text of every stage below this folder")
    override_dir: Path | None = _knob(
        "TILEWRIGHT_OVERRIDE_DIR", None, Path, "read stages from this folder instead of computing them"
    )
    explain: bool = _knob("TILEWRIGHT_EXPLAIN", False, _bool, "print what is done to each kernel, and why")
    verify: bool = _knob("TILEWRIGHT_VERIFY", False, _bool, "verify the IR against its level after every pass")


@dataclass(slots=True)
class RuntimeKnobs(_Group):
    interpret: bool = _knob("TILEWRIGHT_INTERPRET", False, _bool, "run kernels as Python through the reference")
    debug: bool = _knob("TILEWRIGHT_DEBUG", False, _bool, "default of the `debug` option")
    explain_variants: bool = _knob(
        "TILEWRIGHT_EXPLAIN_VARIANTS", False, _bool, "print in a line why each variant of a kernel is compiled"
    )
    no_jit: bool = _knob("TILEWRIGHT_NO_JIT", False, _bool, "raise at a launch that would compile")
    default_backend: str = _knob(
        "TILEWRIGHT_DEFAULT_BACKEND",
        "auto",
        str,
        "device that is active at the start: cpu, cuda, or auto: a GPU if any",
    )
    as_triton: bool = _knob("TILEWRIGHT_AS_TRITON", False, _bool, "pose as `triton` from the import of tilewright on")
    jit_cache_hook: Callable[..., Any] | None = None  # before a kernel is compiled
    jit_post_compile_hook: Callable[..., Any] | None = None
    launch_enter_hook: HookChain = field(default_factory=lambda: HookChain(on_change=settings_changed))
    launch_exit_hook: HookChain = field(default_factory=lambda: HookChain(reverse=True, on_change=settings_changed))


@dataclass(slots=True)
class AutotuningKnobs(_Group):
    cache: bool = _knob("TILEWRIGHT_CACHE_AUTOTUNING", True, _bool, "keep the results of autotuners on disk")
    workers: int | None = _knob(
        "TILEWRIGHT_TUNING_WORKERS", None, _whole(1), "processes that compile configurations; default: one a core"
    )
    print: bool = _knob("TILEWRIGHT_PRINT_AUTOTUNING", False, _bool, "print what each autotuner chooses")
    listener: Callable[..., Any] | None = None  # called after each search
    executor: Any = None  # a concurrent.futures.Executor that compiles and measures configurations


@dataclass(slots=True)
class LanguageKnobs(_Group):
    fp32_default: str | None = _knob(
        "TILEWRIGHT_F32_DEFAULT", None, str, "precision of tl.dot on f32 when a call does not say: ieee, tf32, ..."
    )


@dataclass(slots=True)
class TorchKnobs:
    gradients: str = _knob(
        "TILEWRIGHT_TORCH_GRADIENTS",
        "warn",
        str,
        "what a launch on torch tensors that require gradients does, as none flow: error, warn (once) or silent",
    )


@dataclass(slots=True)
class Knobs:
    """All knobs, in groups."""

    cache: CacheKnobs = field(default_factory=CacheKnobs)
    cpu: CpuKnobs = field(default_factory=CpuKnobs)
    cuda: CudaKnobs = field(default_factory=CudaKnobs)
    compilation: CompilationKnobs = field(default_factory=CompilationKnobs)
    runtime: RuntimeKnobs = field(default_factory=RuntimeKnobs)
    autotuning: AutotuningKnobs = field(default_factory=AutotuningKnobs)
    language: LanguageKnobs = field(default_factory=LanguageKnobs)
    torch: TorchKnobs = field(default_factory=TorchKnobs)

    def describe(self) -> Iterator[tuple[str, str, Any, str]]:
        """Rows of (name, environment variable, value, help)."""
        for group in fields(self):
            values = getattr(self, group.name)
            for knob in fields(values):
                meta = knob.metadata
                if meta:  # a hook has no environment variable
                    yield f"{group.name}.{knob.name}", meta["env"], getattr(values, knob.name), meta["help"]


knobs = Knobs()
