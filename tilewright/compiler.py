"""Compiling without launching, under the names of `triton.compiler`."""

from tilewright.base import errors
from tilewright.base.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from tilewright.base.hooks import LazyDict
from tilewright.base.target import Target
from tilewright.compile.ast_source import ASTSource, compile
from tilewright.compile.ir_source import IRSource
from tilewright.compile.kernel import CompiledKernel


def GPUTarget(backend: str, arch: str | int, warp_size: int = 32) -> Target:
    """A target by back end and architecture: `GPUTarget("cuda", 90, 32)`."""
    return Target(backend, arch, warp_size=warp_size)


__all__ = [
    "ASTSource",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "GPUTarget",
    "IRSource",
    "LazyDict",
    "UnsupportedLanguageConstruct",
    "compile",
    "errors",
]
