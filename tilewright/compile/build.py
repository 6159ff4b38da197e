"""From a request to loaded code: cache look-ups around the stages.

::

    key -> disk (machine code) -> stages: ttir, nest, loops, llir, obj (CPU)
                                          ttir, nest, tgir, llir, ptx, cubin (GPU)

A damaged cache entry is a miss: the kernel is compiled anew.
"""

from __future__ import annotations

import functools
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tilewright.base.cache_layers import disk_cache
from tilewright.base.collecting import uncollected
from tilewright.base.decision import render
from tilewright.base.disk_cache import Entry
from tilewright.base.errors import MissingKernelSourceError, NotCompiledError, TilewrightError
from tilewright.base.knobs import knobs
from tilewright.base.lazy import load_all
from tilewright.base.library import futures, logs
from tilewright.base.memory import memory_may_end
from tilewright.base.target import Target
from tilewright.compile import lazy_compiler
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.lazy_compiler import shared_objects
from tilewright.compile.listening import tell_compiled
from tilewright.compile.loading import load_code
from tilewright.compile.metadata import StageTexts, describe_kernel
from tilewright.compile.request import Request
from tilewright.compile.rooting import rooted, uprooted
from tilewright.devices.registry import backend_of
from tilewright.passes.stages import run_stages


class Image(NamedTuple):
    """What one process sends another that has compiled for it.

    Args:
        key: of the request, as the process saw it that compiled.
        binary: machine code.
        metadata: facts from the stages, `uprooted`.
        seconds: compile time per stage; empty if it came from the disk cache.
    """

    key: str
    binary: bytes
    metadata: dict[str, Any]
    seconds: dict[str, float]


def is_kept(request: Request) -> bool:
    """Whether the user's disk cache has what is asked for."""
    return _on_disk(request) and disk_cache().local.has(request.key())


def load_compiler(target: Target) -> None:
    """Load what compiles for a target, so that children that are forked off need not: each would load it for itself,
    and find a module that another thread is loading at that moment half loaded for ever."""
    load_all(vars(lazy_compiler))
    backend_of(target).load_compiler()


def image_of_pickled(pickled: bytes) -> Image:
    """`image_of` a pickled request."""
    return image_of(pickle.loads(pickled))


def image_of(request: Request) -> Image:
    """Compile for another process, or take what is asked for from the disk cache.

    Raises:
        CompilationError: the kernel is wrong; other errors as for `compile_request`.
    """
    request.check()
    key, cache = request.key(), disk_cache()
    entry = cache.get(key) if _on_disk(request) else None
    if entry is not None:
        return Image(key, entry.payload, _facts(entry), {})
    made = _made(request, key)
    return Image(key, made.binary, uprooted(made.metadata, request.files()), made.seconds)


def compile_request(
    request: Request, only_from_disk: str = "", elsewhere: Callable[[], Image] | None = None
) -> CompiledKernel:
    """Compile what is asked for, or load it from the disk cache.

    Args:
        request: what is asked for.
        only_from_disk: if not empty nothing is compiled, and this says why it would have been.
        elsewhere: gives what another process has compiled for this request.

    Raises:
        NotCompiledError: the disk cache has nothing, and nothing may be compiled.
        CompilationError: the kernel is wrong; the message shows where.
        GlobalsChangedError: a variable that the kernel uses has changed since it was first compiled.
    """
    begin = time.perf_counter()
    request.check()
    backend, key = backend_of(request.target), request.key()
    kernel = _from_disk(request, key, disk_cache().get) if _on_disk(request) else None
    if kernel is None:
        what = "miss" if _on_disk(request) else "not asked for"
        logs.caching.info("%s %s: %s below %s", what, request.name, key, disk_cache().local.folder)
        if only_from_disk:
            raise NotCompiledError(
                f"{only_from_disk}; nothing is compiled at launches",
                hint="compile it beforehand with warmup(), or unset TILEWRIGHT_NO_JIT",
            )
        kernel = _made(request, key) if elsewhere is None else _received(request, key, elsewhere)
        if kernel.module is None:
            load_code(kernel)

    def texts(until: str) -> Mapping[str, str | bytes]:
        request.check()
        return _run(request, key, until).asm

    names = ("ttir", "nest", *backend.EXTENSIONS)
    first = lambda: request.source.before_passes(request)  # noqa: E731

    stages = names[names.index(request.source.ext) :]
    kernel.asm = StageTexts(kernel.asm, texts, stages, _made_of_binary).belong(kernel, first)
    kernel.src, kernel.specialization = getattr(request.source, "fn", None), request.specialization
    kernel.metadata = describe_kernel(request.asked, request.options, request.target, key, kernel.metadata)
    if not kernel.metadata.get("takes_all", True):
        plain = replace(request, options=request.options.for_all_values())
        kernel.otherwise = functools.partial(compile_request, plain, only_from_disk)
    if knobs.compilation.explain:
        print(render(kernel.decisions, f"{kernel.name} for {kernel.target}"), file=sys.stderr)
    kernel.total_seconds = time.perf_counter() - begin
    tell_compiled(request.source, kernel)
    return kernel


def _made_of_binary(kernel: CompiledKernel, asm: Mapping[str, str | bytes]) -> Mapping[str, Callable[[], str | bytes]]:
    """What is made of a kernel's binary when it is asked for, in whatever process: texts, and objects to link."""
    linked: dict[str, Callable[[], bytes]] = {
        "so": lambda: shared_objects.kernel_object(kernel),
        "launcher.so": lambda: shared_objects.launcher_object(kernel),
    }
    return {**backend_of(kernel.target).texts(asm), **(linked if kernel.target.backend == "cpu" else {})}


def _made(request: Request, key: str) -> CompiledKernel:
    """Compile, and keep what was made. Of several processes that want one kernel at one time, one compiles."""
    if not _on_disk(request):
        return _run(request, key)
    with disk_cache().making(key):
        kernel = _from_disk(request, key, disk_cache().local.get)
        if kernel is None:
            kernel = _run(request, key)
            _keep(request, kernel)
    return kernel


def _received(request: Request, key: str, elsewhere: Callable[[], Image]) -> CompiledKernel:
    """The kernel that another process has compiled; compiled here if that process died, or has another source."""
    try:
        image = elsewhere()
    except (futures.BrokenExecutor, MissingKernelSourceError):
        image = None
    if image is None or image.key != key:
        return _made(request, key)
    asm: dict[str, str | bytes] = {backend_of(request.target).BINARY: image.binary}
    kernel = CompiledKernel(
        request.name, request.target, rooted(image.metadata, request.files()), key, asm, image.seconds
    )
    if _on_disk(request) and not disk_cache().local.has(key):
        _keep(request, kernel)
    return kernel


def _keep(request: Request, kernel: CompiledKernel) -> None:
    """Keep a kernel on disk; the target is for people who list what is there, as the key holds it."""
    facts = uprooted(kernel.metadata, request.files())
    disk_cache().put(kernel.hash, kernel.binary, {**facts, "target": str(kernel.target)})
    logs.caching.debug("kept %s: %s", kernel.name, disk_cache().local.file(kernel.hash))


def _facts(entry: Entry) -> dict[str, Any]:
    """What an entry says of a kernel, `uprooted`."""
    return {name: value for name, value in entry.metadata.items() if name != "target"}


def _on_disk(request: Request) -> bool:
    """Whether the disk cache may hold what is asked for."""
    return not (_bypass_cache() or request.specialization.without_content()) and request.source.has_content()


def _bypass_cache() -> bool:
    """Dumps and overrides need the stages to run."""
    wanted = knobs.compilation
    asked = (wanted.dump_dir, wanted.override_dir, wanted.print_passes, wanted.print_llvm, wanted.use_ir_loc)
    return knobs.cache.disabled or any(setting is not None for setting in asked)


def _from_disk(request: Request, key: str, look: Callable[[str], Entry | None]) -> CompiledKernel | None:
    entry = look(key)
    if entry is None:
        return None
    asm: dict[str, str | bytes] = {backend_of(request.target).BINARY: entry.payload}
    kernel = CompiledKernel(
        request.name, request.target, rooted(_facts(entry), request.files()), key, asm, from_disk=True
    )
    try:
        load_code(kernel)
    except (TilewrightError, KeyError, TypeError, ValueError):  # whole, and still not loadable: compile anew
        logs.caching.info("unusable %s: %s", request.name, disk_cache().local.file(key))
        return None
    logs.caching.info("hit %s: %s", request.name, disk_cache().local.file(key))
    return kernel


def _run(request: Request, key: str, until: str | None = None) -> CompiledKernel:
    """Run the stages: all of them, or those up to one, with everything rendered.

    Raises:
        GlobalsChangedError: a variable that the kernel uses changed meanwhile, so that key and code disagree.
    """
    name, types = request.name, list(request.specialization.runtime_types)
    metadata: dict[str, Any] = {"name": name, "types": types}
    with uncollected(), memory_may_end(f"compiling kernel `{name}`"):
        stages = request.source.stages(request, backend_of(request.target).stages(request.options, request.target))
        outcome = run_stages(stages, request.source, metadata, name, knobs.compilation, key, until)
    request.check()
    return CompiledKernel(name, request.target, metadata, key, outcome.texts, outcome.seconds)
