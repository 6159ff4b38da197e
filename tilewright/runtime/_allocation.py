"""`triton.runtime._allocation`: who gives kernels memory."""

from tilewright.base.refusal import Refusal
from tilewright.devices.allocation import Allocator, Buffer, NullAllocator, _allocator, set_allocator

set_profile_allocator = Refusal("runtime._allocation.set_profile_allocator", "kernels take no memory for profiles")


def has_profile_allocator() -> bool:
    """False: kernels take no memory for profiles."""
    return False


__all__ = [
    "Allocator", "Buffer", "NullAllocator", "_allocator", "has_profile_allocator", "set_allocator",
    "set_profile_allocator",
]  # fmt: skip
