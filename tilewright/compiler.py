"""Compiling without launching, under the names of `triton.compiler`."""

from tilewright.base import errors
from tilewright.base.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from tilewright.base.hooks import LazyDict
from tilewright.base.target import Target
from tilewright.runtime.ast_source import ASTSource, compile
from tilewright.runtime.compiler import CompiledKernel
from tilewright.runtime.ir_source import IRSource

GPUTarget = Target  # Triton's name: GPUTarget("cuda", 90, 32)

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
