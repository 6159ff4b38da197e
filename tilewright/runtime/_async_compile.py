"""`triton.runtime._async_compile`."""

from tilewright.launch.asynchronous import AsyncCompileMode, FutureKernel, active_mode

__all__ = ["AsyncCompileMode", "FutureKernel", "active_mode"]
