"""`triton.runtime._allocation`: who gives kernels memory."""

from tilewright.devices.allocation import Allocator, Buffer, NullAllocator, _allocator, set_allocator

__all__ = ["Allocator", "Buffer", "NullAllocator", "_allocator", "set_allocator"]
