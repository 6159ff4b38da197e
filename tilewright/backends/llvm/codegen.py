"""LLVM IR text to object bytes, assembly, and loaded addresses, through llvmlite.

`compile_object` parses, verifies, runs a light pass pipeline and the code generator; the bytes may be cached on disk
and given to `load` in any later process on a machine with the same features. Emitters make loops and vectors
themselves, so the full middle end buys nothing (measured). Text that LLVM rejects is a bug of ours: `InternalError`
with the text in a temporary file.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.backends.llvm import errata
from tilewright.backends.llvm.features import CpuFeatures, host, tell_triple
from tilewright.backends.llvm.identity import llvmlite_version
from tilewright.backends.llvm.objectfile import MappedObject, load_object
from tilewright.backends.protocol import ByteCache
from tilewright.base import system
from tilewright.base.errors import CodeLoadError, InternalError, UnsupportedError, report_with
from tilewright.base.knobs import ALL_KERNELS, knobs
from tilewright.base.memory import require_address_space

# Above this many loads and stores in one block the scheduler does not compare each with each: 200 tiles loaded and
# stored one after the other took it 4 s, and now 0.6 s. LLVM's own limit is 1,000. Of debug information we have lines
# alone: its newer way to follow variables took 3 % of the compile of a product to find that there are none, and reading
# a module with lines verified it, which `parsed` does, and ended the process where it was wrong.
_OPTIONS = (
    "--dag-maps-huge-region=200",
    "--experimental-debug-variable-locations=false",
    "--disable-auto-upgrade-debug-info",
)
# Memory of a compile. Measured, for kernels of 3 kB to 2.7 MB: 1.4 MB, and 15 to 29 bytes for a character of the text.
_OWN_BYTES = 8 << 20
_BYTES_OF_A_CHARACTER = 48
_names = itertools.count()
_printing: list[str] = []
_own: set[bytes] = set()  # digests of the objects that this process has compiled
# LLVM contexts are private to a compile; target and JIT construction are not. A compile may take a second, and forks
# wait for it: a child that has to compile would wait for a thread that it does not have.
lock = system.this().hold_at_forks(threading.RLock())


def compile_object(
    text: str, isa: CpuFeatures, *, optimize: str = "light", level: int = 1, link: Callable[[Any], None] | None = None
) -> bytes:
    """Compile a module to a relocatable object.

    Args:
        text: LLVM IR; must not name another triple than that of `isa`.
        isa: the target.
        optimize: `"none"`, `"light"` or `"full"` (LLVM's own -O2 pipeline).
        level: code generator effort, 0 to 3. From 2 instructions are put in order once more after registers are chosen,
            which took 3 % of a compile; processors that run them out of order gain nothing from it.
        link: adds to the module of llvmlite what it lacks.

    Raises:
        InternalError: LLVM rejects the text.
        UnsupportedError: this build of LLVM has no code generator for the target.
    """
    with lock, _addresses_as_written(isa):
        machine = _machine(isa, level)
        image = bytes(machine.emit_object(_prepare(text, isa, machine, optimize, link)))
        if errata.may_lose_registers(image, isa):
            image = _with_registers(image, _prepare(text, isa, machine, optimize, link), isa, machine)
    _own.add(hashlib.sha256(image).digest())
    return image


def assembly(text: str, isa: CpuFeatures, *, optimize: str = "light", level: int = 1) -> str:
    """Compile a module to assembly text. Arguments and errors as `compile_object`."""
    with lock, _addresses_as_written(isa):
        machine = _machine(isa, level)
        return errata.with_registers(str(machine.emit_assembly(_prepare(text, isa, machine, optimize))))


@contextmanager
def _addresses_as_written(isa: CpuFeatures) -> Iterator[None]:
    """Generate code for an x86 without strength reduction of loops, which took a sixth of LLVM's instructions there.

    An address of x86 holds a base, an index and a constant, so there is little to reduce. The option is one of the
    process, where NVPTX and other users of llvmlite want the pass: it holds for as long as the block runs.
    """
    import llvmlite.binding as llvm

    if not isa.triple.startswith("x86_64"):
        yield
        return
    llvm.set_option("tilewright", "--disable-lsr")
    try:
        yield
    finally:
        llvm.set_option("tilewright", "--disable-lsr=false")


def _with_registers(image: bytes, module: Any, isa: CpuFeatures, machine: Any) -> bytes:
    """An object that has the short forms of `errata`: made anew from text if one names a register that it lacks."""
    emitted = str(machine.emit_assembly(module))
    mended = errata.with_registers(emitted)
    if mended == emitted:
        return image
    return bytes(machine.emit_object(parsed(errata.as_module(mended), isa.triple, machine)))


def optimized(text: str, isa: CpuFeatures, *, optimize: str = "light") -> str:
    """The module as LLVM IR after the pass pipeline, for people to read."""
    with lock:
        return str(_prepare(text, isa, _machine(isa, 1), optimize))


class Library:
    """Loaded code. Addresses are valid as long as the object lives."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded  # owns the memory, and gives addresses by name

    @property
    def extent(self) -> tuple[int, int] | None:
        """Where its instructions start and end, if that is known."""
        return self._loaded.code if isinstance(self._loaded, MappedObject) else None

    def address(self, name: str) -> int:
        """Address of an exported symbol that was named to `load`."""
        return int(self._loaded[name])


def load(image: bytes, exports: Sequence[str], symbols: Mapping[str, int] | None = None) -> Library:
    """Load an object made for this machine, without LLVM where the system is known and the knob `cpu.loader` allows.

    Args:
        image: bytes from `compile_object`.
        exports: symbols whose addresses are wanted.
        symbols: addresses of external symbols that the process itself does not export.

    Raises:
        InternalError: the image does not load (truncated, or of another format) or lacks a symbol.
        UnsupportedError: our loader does not know something in an image that comes from elsewhere, such as the disk
            cache: LLVM's loader trusts what it is given.
    """
    if knobs.cpu.loader != "llvm" and system.this().loads_objects:
        try:
            return Library(load_object(image, exports, symbols))
        except UnsupportedError:  # LLVM's may know it
            if hashlib.sha256(image).digest() not in _own:
                raise
    return load_with_llvm(image, exports, symbols)


# How helpers are optimised: objects of another way are of no use.
_PASSES = "light, inlined, simplified once, combined once, scheduled once, addresses as written"
_provided: dict[str, bytes] = {}


def helper_key(name: str, text: str) -> str:
    """What `provide_helpers` knows code by, from its name and its text."""
    return hashlib.sha256(f"{name}\0{text}".encode()).hexdigest()


def provide_helpers(images: Mapping[str, bytes], triple: str) -> None:
    """Give `load_helper` objects that were compiled elsewhere, by `helper_key`, for a triple that is this machine's."""
    _provided.update(images)
    tell_triple(triple)


def load_helper(name: str, text: str, exports: Sequence[str], cache: ByteCache | None) -> Library:
    """Load code of our own that no kernel changes, such as a launcher, for this machine.

    Args:
        name: of the code, part of its key.
        text: LLVM IR.
        exports: symbols whose addresses are wanted.
        cache: where to look for the object, and where to keep it, so that a warm start needs no LLVM.
    """
    provided = _provided.get(helper_key(name, text))
    if provided is not None:
        return load(provided, exports)
    isa = host()
    identity = "\0".join((name, text, versions(), _PASSES, isa.triple, isa.cpu, isa.flags))
    key = hashlib.sha256(identity.encode()).hexdigest()
    image = cache.get_bytes(key) if cache is not None else None
    if image is not None:
        try:
            return load(image, exports)
        except (InternalError, UnsupportedError):
            pass  # an object from a damaged cache: make it anew
    image = compile_object(text, isa)
    if cache is not None:
        cache.put_bytes(key, image)
    return load(image, exports)


def load_with_llvm(image: bytes, exports: Sequence[str], symbols: Mapping[str, int] | None = None) -> Library:
    """`load` through LLVM's own loader."""
    import llvmlite.binding as llvm

    if image[:4] not in (b"\x7fELF", b"\xcf\xfa\xed\xfe") and image[:2] != b"\x64\x86":
        raise InternalError("the image is not an object file of a known format")
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    for name in exports:
        builder.export_symbol(name)
    for name, address in (symbols or {}).items():
        builder.import_symbol(name, address)
    with lock:
        try:
            return Library(builder.link(_jit(), f"tilewright.{next(_names)}"))
        except RuntimeError as error:
            raise CodeLoadError(f"compiled code does not load: {error}") from error


def versions() -> str:
    """Version of llvmlite, and with it of LLVM, for cache keys. Does not load them."""
    return f"llvmlite {llvmlite_version()}"


def initialize() -> None:
    """Make every code generator of LLVM known, once."""
    with lock:
        _initialize()


@functools.cache
def _initialize() -> None:
    import llvmlite.binding as llvm

    for option in _OPTIONS:
        llvm.set_option("tilewright", option)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@functools.cache
def _machine(isa: CpuFeatures, level: int) -> Any:
    import llvmlite.binding as llvm

    initialize()
    try:
        target = llvm.Target.from_triple(isa.triple)
    except RuntimeError as error:
        raise UnsupportedError(f"LLVM cannot compile for {isa.triple}: {error}") from error
    return target.create_target_machine(
        cpu=isa.cpu, features=isa.flags, opt=level, reloc="pic", codemodel="small", jit=False
    )


@functools.cache
def _jit() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(_machine(host(), 1), use_jit_link=False, suppress_errors=True)


def print_passes(wanted: str) -> None:
    """Have LLVM print every module, or every function of one name, after each of its passes, on standard error.

    LLVM takes such options once: they hold for the process.
    """
    import llvmlite.binding as llvm

    if not _printing:
        _printing.append(wanted)
        llvm.set_option("tilewright", "--print-after-all")
        if wanted != ALL_KERNELS:
            llvm.set_option("tilewright", f"--filter-print-funcs={wanted}")


def parsed(text: str, triple: str, machine: Any) -> Any:
    """A verified module for a target machine of llvmlite.

    Raises:
        InternalError: LLVM rejects the text, which is kept in a file.
        MemoryError: there is a limit, and LLVM would end the process at it.
    """
    import llvmlite.binding as llvm

    if knobs.compilation.print_llvm is not None:
        print_passes(knobs.compilation.print_llvm)
    require_address_space(_OWN_BYTES + _BYTES_OF_A_CHARACTER * len(text), "LLVM")
    try:
        module = llvm.parse_assembly(text, context=llvm.create_context())
        module.triple = triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM rejects generated code: {error}", hint=report_with(text, ".ll")) from error
    return module


def _prepare(
    text: str, isa: CpuFeatures, machine: Any, optimize: str, link: Callable[[Any], None] | None = None
) -> Any:
    """Parsed, verified and optimised module."""
    import llvmlite.binding as llvm

    module = parsed(text, isa.triple, machine)
    if link is not None:
        link(module)
    if optimize == "none":
        return module
    options = llvm.create_pipeline_tuning_options()
    options.speed_level = 2
    options.loop_vectorization = options.slp_vectorization = optimize == "full"
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager() if optimize == "full" else _light_pipeline()
    passes.run(module, builder)
    return module


def _light_pipeline() -> Any:
    """Instructions are combined once: after the numbering of values a second time took 3 % and left no shorter code.

    Control flow is simplified in front of the loops alone: behind them that takes away the blocks before loops, into
    which the code generator moves what does not change.
    """
    import llvmlite.binding as llvm

    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    passes.add_new_gvn_pass()
    return passes
