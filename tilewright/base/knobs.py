"""Settings of the process, read from the environment once and changeable in Python.

``tilewright.knobs.cpu.num_threads = 2`` or ``TILEWRIGHT_NUM_THREADS=2``: each knob has one
name in both worlds, a type, a default and a line of help; `tilewright doctor` lists them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, cast

from tilewright.base import environment
from tilewright.base.checks import parse_checks
from tilewright.base.environment import FALSE, TRUE, user_cache
from tilewright.base.errors import ArgumentError, KnobError
from tilewright.base.foreign_knobs import AMD, PROTON, ForeignKnobs
from tilewright.base.hooks import HookChain, settings_changed
from tilewright.base.library import logs
from tilewright.base.nvidia_knobs import NvidiaKnobs
from tilewright.base.refusal import OneValue, Refusal


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE | FALSE:
        raise ValueError("is neither 1 nor 0")
    return word in TRUE


def _whole(least: int) -> Callable[[str], int]:
    """A parser of integers that are not below `least`."""

    def parse(text: str) -> int:
        if not text.strip().isdigit() or int(text) < least:
            raise ValueError(f"is no whole number of at least {least}")
        return int(text)

    return parse


def _places(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(";"))))


def _one_of(*choices: str) -> Callable[[str], str]:
    """A parser of one of these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is none of {', '.join(choices)}")
        return text

    return parse


def _checks(text: str) -> str:
    """Names of checks, separated by commas."""
    try:
        return ",".join(parse_checks(text))
    except ArgumentError as error:
        raise ValueError(f"names a check that there is not: {error.hint}") from None


def _logs(text: str) -> str:
    """Which records are shown."""
    logs.levels_of(text)
    return text


ALL_KERNELS = "1"


def _kernels(text: str) -> str | None:
    """Which kernels a knob is about: all, one by its name, or None."""
    try:
        return ALL_KERNELS if _bool(text) else None
    except ValueError:
        return text


def _stage(text: str) -> str | None:
    """A stage of tile IR, under its name or Triton's; 1 is the one with layouts."""
    named = {"ttir": "ttir", "tgir": "tgir", "ttgir": "tgir"}
    if text in named:
        return named[text]
    try:
        return "tgir" if _bool(text) else None
    except ValueError:
        raise ValueError("is neither ttir nor tgir") from None


def _knob(env: str, default: Any, parse: Callable[[str], Any], help_text: str) -> Any:
    """A dataclass field whose default is the environment variable `env` when it is set."""

    def read() -> Any:
        name, text = environment.read(env)
        if text == "":
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise KnobError(f"the environment variable {name}={text!r} {error}", hint=help_text) from None

    return field(default_factory=read, metadata={"env": env, "help": help_text, "parse": parse})


@functools.cache
def _types(group: Any) -> dict[str, tuple[type, ...]]:
    """Classes that the values of a group's knobs have, by name."""
    found = {}
    for name, hint in typing.get_type_hints(group).items():
        parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        found[name] = tuple(object if part is Any else typing.get_origin(part) or part for part in parts)
    return found


class _Group:
    """A group of knobs; a value is checked when it is set, and setting one is announced."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        refusal = getattr(type(self), name, None)
        if isinstance(refusal, Refusal):
            refusal.raise_error()
        if hasattr(self, name) and name in _types(cast(Any, type(self))):  # a first value is one that was parsed
            value = self._checked(name, value)
        object.__setattr__(self, name, value)
        settings_changed()

    def _checked(self, name: str, value: Any) -> Any:
        """The value as it is kept.

        Raises:
            KnobError: the knob cannot have it.
        """
        wanted = _types(cast(Any, type(self)))[name]
        if Path in wanted and isinstance(value, str):
            return Path(value)
        if HookChain in wanted and (value is None or callable(value)) and not isinstance(value, HookChain):
            chain: HookChain = getattr(self, name)
            chain.calls[:] = [] if value is None else [value]
            return chain
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            shown = " or ".join("None" if kind is type(None) else kind.__name__ for kind in wanted)
            raise KnobError(f"the knob {name} is {shown}, not {value!r}", hint=self._help(name))
        parse = next((f.metadata.get("parse") for f in fields(self) if f.name == name), None)  # type: ignore[arg-type]
        if parse is not None and type(value) in (int, str):
            try:
                parse(str(value))
            except ValueError as error:
                raise KnobError(f"the knob {name}={value!r} {error}", hint=self._help(name)) from None
        return value

    def _help(self, name: str) -> str:
        return next((f.metadata.get("help", "") for f in fields(self) if f.name == name), "")  # type: ignore[arg-type]

    @property
    def knobs(self) -> dict[str, Any]:
        """Value by name."""
        return {knob.name: getattr(self, knob.name) for knob in fields(self)}  # type: ignore[arg-type]

    def copy(self) -> Self:
        """The values as they are now, apart from these."""
        return copy.deepcopy(self)

    def reset(self) -> None:
        """What the environment says now, or the usual values; hooks are taken off."""
        self._take(type(self)())

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A block after which all knobs of the group have the values that they had before."""
        before = self.copy()
        try:
            yield
        finally:
            self._take(before)

    def _take(self, other: Self) -> None:
        for knob in fields(self):  # type: ignore[arg-type]
            value = getattr(other, knob.name)
            if isinstance(value, HookChain):
                getattr(self, knob.name).calls[:] = value.calls
            else:
                setattr(self, knob.name, value)


NO_C_COMPILER = "launchers need no C compiler"
SHARED_CACHE = "a shared cache is a folder or an fsspec URL: the knob `cache.shared`"


@dataclass(slots=True)
class CacheKnobs(_Group):
    dir: Path = _knob(
        "TILEWRIGHT_CACHE_DIR",
        user_cache(),
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
    key: Path | None = _knob(
        "TILEWRIGHT_CACHE_KEY",
        None,
        Path,
        "file with a secret; entries of the shared layer and of URLs are signed with it, and others are refused",
    )
    size: int = _knob("TILEWRIGHT_CACHE_SIZE", 1 << 30, _whole(0), "size in bytes above which old entries are dropped")
    disabled: bool = _knob("TILEWRIGHT_ALWAYS_COMPILE", False, _bool, "ignore the caches and compile each kernel anew")

    manager_class = Refusal(
        "knobs.cache.manager_class", "kernels are kept as entries of one disk cache; see caching.md"
    )
    remote_manager_class = Refusal("knobs.cache.remote_manager_class", SHARED_CACHE)

    @property
    def home_dir(self) -> str:
        """The folder in which the disk cache lies."""
        return str(self.dir.parent)

    def get_triton_dir(self, name: str) -> str:
        """A folder beside the disk cache; it is not made."""
        return str(self.dir.parent / name)

    @property
    def dump_dir(self) -> Path:
        """Where stages are written to while `compilation.dump_ir` is on; a folder switches that on."""
        return knobs.compilation.dump_dir or self.dir.parent / "dump"

    @dump_dir.setter
    def dump_dir(self, folder: Path | str) -> None:
        knobs.compilation.dump_dir = Path(folder)

    @property
    def override_dir(self) -> Path:
        """Where stages are read from while `compilation.override` is on; a folder switches that on."""
        return knobs.compilation.override_dir or self.dir.parent / "override"

    @override_dir.setter
    def override_dir(self, folder: Path | str) -> None:
        knobs.compilation.override_dir = Path(folder)


@dataclass(slots=True)
class CpuKnobs(_Group):
    num_threads: int | None = _knob(
        "TILEWRIGHT_NUM_THREADS", None, _whole(1), "threads of a launch; default: torch's, else the affinity mask"
    )
    threading: str = _knob("TILEWRIGHT_THREADING", "auto", str, "auto, openmp, pool or serial")
    arch: str | None = _knob("TILEWRIGHT_CPU", None, str, "CPU to generate code for, as LLVM names it")
    features: str | None = _knob("TILEWRIGHT_CPU_FEATURES", None, str, "LLVM feature string used with TILEWRIGHT_CPU")
    loader: str = _knob(
        "TILEWRIGHT_LOADER", "auto", _one_of("auto", "llvm"), "what loads machine code: auto: ours on Linux; llvm"
    )


@dataclass(slots=True)
class CudaKnobs(_Group):
    assembler: str = _knob(
        "TILEWRIGHT_ASSEMBLER", "auto", str, "what makes machine code of PTX: auto, nvjitlink, ptxas or driver"
    )
    ptxas: Path | None = _knob("TILEWRIGHT_PTXAS_PATH", None, Path, "the ptxas program to use")
    assertions: str = _knob(
        "TILEWRIGHT_ASSERTIONS",
        "wait",
        _one_of("wait", "trap"),
        "of kernels loaded from now on that have device assertions: wait for each launch and raise if one failed, or "
        "trap: nobody waits, and one that fails ends the context (as with as_triton())",
    )
    libcuda: Path | None = _knob("TILEWRIGHT_LIBCUDA_PATH", None, Path, "the driver library to load")
    libdevice: Path | None = _knob("TILEWRIGHT_LIBDEVICE_PATH", None, Path, "the libdevice.10.bc to link")


@dataclass(slots=True)
class CompilationKnobs(_Group):
    dump_dir: Path | None = _knob("TILEWRIGHT_DUMP_DIR", None, Path, "write the text of every stage below this folder")
    override_dir: Path | None = _knob(
        "TILEWRIGHT_OVERRIDE_DIR", None, Path, "read stages from this folder instead of computing them"
    )
    explain: bool = _knob("TILEWRIGHT_EXPLAIN", False, _bool, "print what is done to each kernel, and why")
    print_passes: str | None = _knob(
        "TILEWRIGHT_PRINT_PASSES",
        None,
        _kernels,
        "print tile IR after each pass over all kernels (1), or over the one that is named",
    )
    print_llvm: str | None = _knob(
        "TILEWRIGHT_PRINT_LLVM",
        None,
        _kernels,
        "print LLVM IR after each pass of LLVM, likewise, from the first kernel on that is compiled",
    )
    use_ir_loc: str | None = _knob(
        "TILEWRIGHT_USE_IR_LOC",
        None,
        _stage,
        "lines in machine code are those of the text of this stage, ttir or tgir, which is written beside the cache",
    )
    verify: bool = _knob("TILEWRIGHT_VERIFY", False, _bool, "verify the IR against its level after every pass")
    listener: Callable[..., Any] | None = None  # called after each compilation

    dump_ir_extract_di_local_variables = OneValue(False, "stages are written as they are")
    store_binary_only = OneValue(True, "texts are made of the source when somebody asks for them")
    enable_asan = OneValue(False, "TILEWRIGHT_SANITIZE, or `tilewright sanitize`, finds accesses out of bounds")
    disable_line_info = OneValue(False, "machine code says which line it is of in any case")
    front_end_debugging = OneValue(False, "`__cause__` of an error is what the front end met")
    allow_non_constexpr_globals = OneValue(False, "annotate them: `NAME: tl.constexpr = ...`")
    instrumentation_mode = OneValue("", "kernels are not instrumented")
    fpsan_homomorphic_casts = OneValue(False, "kernels are not instrumented")

    @property
    def dump_ir(self) -> bool:
        """Whether every stage is written to a folder."""
        return self.dump_dir is not None

    @dump_ir.setter
    def dump_ir(self, wanted: bool) -> None:
        self.dump_dir = knobs.cache.dump_dir if wanted else None

    @property
    def override(self) -> bool:
        """Whether stages are read from a folder."""
        return self.override_dir is not None

    @override.setter
    def override(self, wanted: bool) -> None:
        self.override_dir = knobs.cache.override_dir if wanted else None

    @property
    def always_compile(self) -> bool:
        """The knob `cache.disabled`."""
        return knobs.cache.disabled

    @always_compile.setter
    def always_compile(self, wanted: bool) -> None:
        knobs.cache.disabled = wanted


@dataclass(slots=True)
class RuntimeKnobs(_Group):
    interpret: bool = _knob("TILEWRIGHT_INTERPRET", False, _bool, "run kernels as Python through the reference")
    debug: bool = _knob("TILEWRIGHT_DEBUG", False, _bool, "default of the `debug` option")
    sanitize: str = _knob(
        "TILEWRIGHT_SANITIZE",
        "",
        _checks,
        "run kernels with checks, on the CPU: names of checks, all, or 1 for bounds,races,deadlocks",
    )
    explain_variants: bool = _knob(
        "TILEWRIGHT_EXPLAIN_VARIANTS", False, _bool, "print in a line why each variant of a kernel is compiled"
    )
    no_jit: bool = _knob("TILEWRIGHT_NO_JIT", False, _bool, "raise at a launch that would compile")
    full_traceback: bool = _knob(
        "TILEWRIGHT_FULL_TRACEBACK", False, _bool, "show frames of Tilewright, and causes, in errors of launches"
    )
    default_backend: str = _knob(
        "TILEWRIGHT_DEFAULT_BACKEND",
        "auto",
        str,
        "device that is active at the start: cpu, cuda, or auto: a GPU if any",
    )
    logs: str = _knob(
        "TILEWRIGHT_LOGS",
        "",
        _logs,
        "records written to stderr: all, compile, cache, launch, tune, hl, torch; +name: details, -name: errors only",
    )
    as_triton: bool = _knob("TILEWRIGHT_AS_TRITON", False, _bool, "pose as `triton` from the import of tilewright on")
    as_helion: bool = _knob("TILEWRIGHT_AS_HELION", False, _bool, "pose as `helion` from the import of tilewright on")
    jit_cache_hook: Callable[..., Any] | None = None  # before a kernel is compiled
    jit_post_compile_hook: Callable[..., Any] | None = None
    launch_enter_hook: HookChain = field(default_factory=lambda: HookChain(on_change=settings_changed))
    launch_exit_hook: HookChain = field(default_factory=lambda: HookChain(reverse=True, on_change=settings_changed))
    kernel_load_start_hook: HookChain = field(default_factory=HookChain)  # around the loading of machine code
    kernel_load_end_hook: HookChain = field(default_factory=lambda: HookChain(reverse=True))
    kernel_unload_hook: HookChain = field(default_factory=HookChain)  # when a compiled kernel goes

    override_arch = OneValue(None, 'the option target="cuda:90" of `warmup` and `compile`')
    add_stages_inspection_hook = OneValue(
        None, "stages are no functions of Triton's; a file of `compilation.override_dir` replaces one"
    )


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
    default_fp_fusion: bool = _knob(
        "TILEWRIGHT_DEFAULT_FP_FUSION", True, _bool, "default of the `enable_fp_fusion` option"
    )
    force_disable_fp_fusion: bool = _knob(
        "TILEWRIGHT_FORCE_DISABLE_FP_FUSION", False, _bool, "contract no x * y + z, whatever options say"
    )

    def fp_fusion_enabled(self) -> bool:
        """What `enable_fp_fusion` is at a launch that does not say."""
        return self.default_fp_fusion and not self.force_disable_fp_fusion


@dataclass(slots=True)
class TorchKnobs(_Group):
    gradients: str = _knob(
        "TILEWRIGHT_TORCH_GRADIENTS",
        "warn",
        _one_of("error", "warn", "silent"),
        "what a launch on torch tensors that require gradients does, as none flow: error, warn (once) or silent",
    )


@dataclass(slots=True)
class BuildKnobs(_Group):
    """How Triton calls a C compiler, which nothing here does."""

    cc = OneValue(None, NO_C_COMPILER)
    cudacrt_path = OneValue(None, NO_C_COMPILER)
    cudart_path = OneValue(None, NO_C_COMPILER)
    impl = OneValue(None, NO_C_COMPILER)
    backend_dirs = OneValue(frozenset(), NO_C_COMPILER)


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
    build: BuildKnobs = field(default_factory=BuildKnobs)

    redis = Refusal("knobs.redis", SHARED_CACHE)
    amd = ForeignKnobs(AMD)
    proton = ForeignKnobs(PROTON)

    @property
    def nvidia(self) -> NvidiaKnobs:
        """The group `cuda` under Triton's names."""
        return NvidiaKnobs(self.cuda)

    def refresh_knobs(self) -> None:
        """Read `runtime.debug` from the environment again, as Triton's function of this name does."""
        self.runtime.debug = RuntimeKnobs().debug

    def copy(self) -> Knobs:
        """The values as they are now, apart from these."""
        return Knobs(**{group.name: getattr(self, group.name).copy() for group in fields(self)})

    def reset(self) -> None:
        """What the environment says now, or the usual values, in all groups."""
        for group in fields(self):
            getattr(self, group.name).reset()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A block after which all knobs have the values that they had before."""
        with contextlib.ExitStack() as stack:
            for group in fields(self):
                stack.enter_context(getattr(self, group.name).scope())
            yield

    def describe(self) -> Iterator[tuple[str, str, Any, str]]:
        """Rows of (name, environment variable, value, help)."""
        for group in fields(self):
            values = getattr(self, group.name)
            for knob in fields(values):
                meta = knob.metadata
                if meta:  # a hook has no environment variable
                    yield f"{group.name}.{knob.name}", meta["env"], getattr(values, knob.name), meta["help"]

    def take(self, values: Mapping[str, Any]) -> None:
        """Set knobs by their full names, as another process has them.

        Args:
            values: by name, such as "cache.dir"; see `describe`.
        """
        for name, value in values.items():
            group, _, knob = name.partition(".")
            setattr(getattr(self, group), knob, value)


knobs = Knobs()
_followed: list[tuple[dict[str, str], Knobs]] = []


def follow_triton_variables() -> None:
    """Take what Triton's variables say now, in a process that poses; values set in Python stay.

    Programs set them before they import Triton, and this process has done that already.
    """
    said = environment.triton_variables()
    if said == (_followed[-1][0] if _followed else {}):
        return
    before, now = _followed[-1][1] if _followed else _unfollowed, Knobs()
    for group in fields(Knobs):
        mine, old, new = (getattr(every, group.name) for every in (knobs, before, now))
        for knob in fields(mine):
            if not knob.metadata or knob.metadata["env"] not in environment.TRITON_NAMES:
                continue
            if getattr(mine, knob.name) == getattr(old, knob.name) != getattr(new, knob.name):
                setattr(mine, knob.name, getattr(new, knob.name))
    _followed[:] = [(said, now)]


_unfollowed = Knobs()
