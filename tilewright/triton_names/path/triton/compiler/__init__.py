"""`triton.compiler`: compiling without a launch."""

from tilewright.compiler import CompilationError, CompiledKernel, IRSource, LazyDict, compile

from . import compiler, errors
from .compiler import ASTSource, make_backend, max_shared_mem

__all__ = [
    "ASTSource", "CompilationError", "CompiledKernel", "IRSource", "LazyDict", "compile", "compiler", "errors",
    "make_backend", "max_shared_mem",
]  # fmt: skip
