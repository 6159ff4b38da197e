"""Python functions to tile IR: source capture, hashing, scopes, and an abstract interpreter over the AST.

`build_module` compiles a kernel; `content_hash` names it in the disk cache.
"""

from tilewright.frontend.builder import IRBuilder
from tilewright.frontend.entry import BuiltKernel, ParamSpec, RuntimeParam, build_module
from tilewright.frontend.hashing import GlobalsChangedError, check_globals, content_hash, used_globals
from tilewright.frontend.source import KernelSource, source_of

__all__ = [
    "BuiltKernel", "GlobalsChangedError", "IRBuilder", "KernelSource", "ParamSpec", "RuntimeParam", "build_module",
    "check_globals", "content_hash", "source_of", "used_globals",
]  # fmt: skip
