"""`triton.backends.nvidia.compiler`: the back end as programs see it."""

from tilewright.compiler.backends import CudaBackend as CUDABackend
from tilewright.compiler.backends import min_dot_size

__all__ = ["CUDABackend", "min_dot_size"]
