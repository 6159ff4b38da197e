"""Compiling without launching, under the names of `triton.compiler`."""

from tilewright.base.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from tilewright.base.hooks import LazyDict
from tilewright.compile.ast_source import ASTSource, AttrsDescriptor, compile
from tilewright.compile.ir_source import IRSource
from tilewright.compile.kernel import CompiledKernel
from tilewright.compiler import code_generator, errors
from tilewright.compiler.backends import GPUTarget, make_backend
from tilewright.compiler.compiler import get_cache_key, max_shared_mem

__all__ = [
    "ASTSource",
    "AttrsDescriptor",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "GPUTarget",
    "IRSource",
    "LazyDict",
    "UnsupportedLanguageConstruct",
    "code_generator",
    "compile",
    "errors",
    "get_cache_key",
    "make_backend",
    "max_shared_mem",
]
