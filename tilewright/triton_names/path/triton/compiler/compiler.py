"""`triton.compiler.compiler`: the classes and functions that torch's Inductor and libraries import from there."""

from tilewright.base.target import Target as GPUTarget
from tilewright.compiler import ASTSource, CompiledKernel, IRSource, LazyDict, compile
from tilewright.runtime.compiler import fingerprint as triton_key
from tilewright.runtime.drivers import driver

from ..backends import backends
from ..backends.compiler import BaseBackend


def make_backend(target: GPUTarget) -> BaseBackend:
    """The back end that compiles for `target`, with the methods that programs ask of one."""
    return next(backend.compiler for backend in backends.values() if backend.compiler.supports_target(target))(target)


def max_shared_mem(device: int) -> int:
    """Bytes of shared memory that a program may have."""
    properties = driver.active.utils.get_device_properties(device)
    return int(properties["max_shared_mem"])


__all__ = [
    "ASTSource", "CompiledKernel", "GPUTarget", "IRSource", "LazyDict", "compile", "make_backend", "max_shared_mem",
    "triton_key",
]  # fmt: skip
