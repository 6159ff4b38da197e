"""`triton.backends.nvidia.compiler`: the back end as programs see it."""

from tilewright.compiler.backends import CudaBackend as CUDABackend

__all__ = ["CUDABackend"]
