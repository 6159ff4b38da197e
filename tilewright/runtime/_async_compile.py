"""`triton.runtime._async_compile`."""

from tilewright.launch.asynchronous import AsyncCompileMode, FutureKernel

__all__ = ["AsyncCompileMode", "FutureKernel"]
