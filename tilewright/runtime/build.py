"""`triton.runtime.build`: nothing is built by a C compiler here, and who asks is told."""

from typing import NoReturn

from tilewright.base.errors import UnsupportedError


def compile_module_from_src(*args: object, **kwargs: object) -> NoReturn:
    """Refused: Triton builds its launchers from C; Tilewright makes them with LLVM."""
    raise UnsupportedError(
        "triton.runtime.build compiles C extensions, which Tilewright does not need and does not do",
        hint="build the extension with setuptools or torch.utils.cpp_extension",
    )


compile_module_from_file = compile_module_from_src

__all__ = ["compile_module_from_file", "compile_module_from_src"]
