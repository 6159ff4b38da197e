"""`triton.backends.compiler`: targets, and what programs ask of a back end's compiler."""

from tilewright.base.refusal import absent
from tilewright.base.target import Target as GPUTarget
from tilewright.compile.ast_source import NO_DESCRIPTOR_HERE
from tilewright.compile.backend_face import BaseBackend, CpuBackend, CudaBackend, Language, make_backend, min_dot_size

__getattr__ = absent("triton.backends.compiler", {"AttrsDescriptor": NO_DESCRIPTOR_HERE})

__all__ = ["BaseBackend", "CpuBackend", "CudaBackend", "GPUTarget", "Language", "make_backend", "min_dot_size"]
