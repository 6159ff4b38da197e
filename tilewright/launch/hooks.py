"""What the hooks of `knobs.runtime` are told: around the compilation of a variant and around a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.base.callable import BlockFunction
from tilewright.base.errors import UnsupportedError
from tilewright.base.hooks import LazyDict
from tilewright.base.knobs import knobs
from tilewright.compile.build import compile_request
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.request import Request
from tilewright.devices.registry import USUAL, gpu


@dataclass(frozen=True, slots=True)
class JitFunctionInfo:
    """The kernel that a hook is told about.

    Args:
        module: name of its module.
        name: qualified name.
        jit_function: the kernel.
    """

    module: str
    name: str
    jit_function: BlockFunction


def compile_watched(fn: BlockFunction, request: Request) -> CompiledKernel:
    """`compile_request` between the two compile hooks.

    Args:
        fn: the kernel that the hooks are told of.
        request: what is compiled.

    Raises:
        UnsupportedError: the first hook asks that the kernel be not compiled.
    """
    before, after = knobs.runtime.jit_cache_hook, knobs.runtime.jit_post_compile_hook
    if before is None and after is None:
        return compile_request(request)
    facts = _compile_facts(fn, request)
    if before is not None and before(**facts, already_compiled=False):
        raise UnsupportedError("jit_cache_hook asked not to compile", hint="let the hook return None")
    kernel = compile_request(request)
    if after is not None:
        after(**facts, already_compiled=kernel.from_disk)
    return kernel


def _compile_facts(fn: BlockFunction, request: Request) -> dict[str, Any]:
    specialization, options = request.specialization, {**USUAL, **asdict(request.options)}
    signature = {name: str(kind) for name, kind in specialization.signature.items()}
    key = f"{specialization.text()},{request.options.key()}"
    arguments = ", ".join(f"{name}: {kind}" for name, kind in signature.items())
    compile_info = {
        "key": key,
        "signature": signature,
        "device": 0,
        "constants": specialization.constants,
        **options,
        "configs": [specialization.attributes],
        "is_warmup": False,
    }
    return {
        "key": key,
        "repr": f"{fn.fn.__name__}[num_warps={options['num_warps']}, num_stages={options['num_stages']}]({arguments})",
        "fn": JitFunctionInfo(fn.fn.__module__, fn.fn.__qualname__, fn),
        "compile": compile_info,
        "is_manual_warmup": False,
    }


def launch_facts(fn: Any, kernel: CompiledKernel, grid: Any, args: Mapping[str, Any], device: int | None) -> LazyDict:
    """What launch hooks get: name, function, stream, and what the kernel's `launch_metadata` adds when asked.

    Args:
        fn: the kernel.
        kernel: compiled.
        grid: as the user wrote it, called if it was callable.
        args: by name.
        device: number of the GPU, or None for the CPU.
    """
    name = str(fn.repr(kernel.specialization))
    stream = 0 if device is None else gpu.current_stream(device)
    facts = LazyDict({"name": name, "function": kernel.module, "stream": stream})
    if fn.launch_metadata is not None:
        facts.add(fn.launch_metadata, (grid, kernel.metadata, dict(args)))
    return facts
