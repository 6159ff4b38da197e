"""`triton.backends.compiler`: targets, and what programs ask of a back end's compiler."""

from tilewright.base.target import Target as GPUTarget
from tilewright.compile.backend_face import BaseBackend, CpuBackend, CudaBackend, Language, make_backend, min_dot_size

__all__ = ["BaseBackend", "CpuBackend", "CudaBackend", "GPUTarget", "Language", "make_backend", "min_dot_size"]
