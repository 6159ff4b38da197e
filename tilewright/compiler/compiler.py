"""`triton.compiler.compiler`: the classes and functions that torch's Inductor and libraries import from there."""

from __future__ import annotations

from tilewright.base.hooks import LazyDict
from tilewright.base.refusal import absent
from tilewright.base.target import Target as GPUTarget
from tilewright.compile.ast_source import NO_DESCRIPTOR_HERE, ASTSource, compile
from tilewright.compile.ir_source import IRSource
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.managers import get_cache_key
from tilewright.compile.request import fingerprint as triton_key
from tilewright.compiler.backends import BaseBackend, make_backend
from tilewright.devices.drivers import driver


def max_shared_mem(device: int) -> int:
    """Bytes of shared memory that a program may have."""
    properties = driver.active.utils.get_device_properties(device)
    return int(properties["max_shared_mem"])


__getattr__ = absent("triton.compiler.compiler", {"AttrsDescriptor": NO_DESCRIPTOR_HERE})

__all__ = [
    "ASTSource", "BaseBackend", "CompiledKernel", "GPUTarget", "IRSource", "LazyDict", "compile",
    "get_cache_key", "make_backend", "max_shared_mem", "triton_key",
]  # fmt: skip
