"""What the hooks of `knobs.runtime` are told: around the compilation of a variant and around a launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from tilewright.base.callable import BlockFunction
from tilewright.base.grids import Grid
from tilewright.base.hooks import Launched, LazyDict
from tilewright.base.knobs import knobs
from tilewright.base.target import Target
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.request import Request
from tilewright.compile.serialized import serialize
from tilewright.compile.variants import signature_texts
from tilewright.devices.registry import USUAL, gpu


class JitFunctionInfo(NamedTuple):
    """The kernel that a hook is told about.

    Args:
        module: name of its module.
        name: qualified name.
        jit_function: the kernel.
    """

    module: str
    name: str
    jit_function: BlockFunction


def is_refused(fn: BlockFunction, request: Request, warmup: bool) -> bool:
    """Whether the hook before a compilation asks that the kernel be not compiled.

    Args:
        fn: the kernel.
        request: what would be compiled.
        warmup: nothing is launched.
    """
    before = knobs.runtime.jit_cache_hook or getattr(type(fn), "cache_hook", None)
    return before is not None and bool(before(**_compile_facts(fn, request, warmup), already_compiled=False))


def tell_compiled(fn: BlockFunction, request: Request, warmup: bool, from_disk: bool) -> None:
    """Call the hook after a compilation.

    Args:
        fn, request, warmup: as for `is_refused`.
        from_disk: the disk cache had it.
    """
    after = knobs.runtime.jit_post_compile_hook or getattr(type(fn), "compiled_hook", None)
    if after is not None:
        after(**_compile_facts(fn, request, warmup), already_compiled=from_disk)


def _compile_facts(fn: BlockFunction, request: Request, warmup: bool) -> dict[str, Any]:
    specialization, options = request.specialization, {**USUAL, **asdict(request.options)}
    signature = signature_texts(specialization)
    key = f"{specialization.text()},{request.options.key()}"
    arguments = ", ".join(f"{name}: {kind}" for name, kind in signature.items())
    compile_info = {
        "key": key,
        "signature": signature,
        "device": _device_of(request.target),
        "constants": specialization.constants,
        **options,
        "configs": [specialization.attributes],
        "extern_libs": None,  # libraries are linked by name where a kernel calls them
        "specialization_data": serialize(fn, request),
        "is_warmup": warmup,
    }
    return {
        "key": key,
        "repr": f"{fn.fn.__name__}[num_warps={options['num_warps']}, num_stages={options['num_stages']}]({arguments})",
        "fn": JitFunctionInfo(fn.fn.__module__, fn.fn.__qualname__, fn),
        "compile": compile_info,
        "is_manual_warmup": warmup,
    }


def _device_of(target: Target) -> int:
    """Number of the device in use; 0 for the CPU, and where there is no GPU to compile for."""
    return gpu.current_gpu() if target.backend == "cuda" and gpu.device_count() else 0


def watcher(fn: Any, kernel: CompiledKernel, device: int | None) -> Callable[[dict[str, Any], Any], LazyDict]:
    """What tells the hooks ahead of launches, `watch(arguments by name, grid)`, and gives what it has told them: name,
    function, stream, and what the kernel's `launch_metadata` adds when asked. The hooks are those that there are now.

    Args:
        fn: the kernel.
        kernel: compiled.
        device: number of the GPU, or None for the CPU.
    """
    known = {"name": kernel.name, "function": kernel.module, "stream": 0}
    chain = knobs.runtime.launch_enter_hook
    enter = chain.calls[0] if len(chain.calls) == 1 else chain
    more, metadata = fn.launch_metadata, kernel.metadata

    def watch(args: dict[str, Any], grid: Grid) -> LazyDict:
        facts = LazyDict(known, device)
        facts.subject = Launched(fn, kernel, args, grid)
        if device is not None:
            facts.data["stream"] = gpu.current_stream(device)
        if more is not None:
            facts.add(more, (grid, metadata, dict(args)))
        enter(facts)
        return facts

    return watch
