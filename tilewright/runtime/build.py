"""`triton.runtime.build`: nothing is built by a C compiler here, and who asks is told."""

from tilewright.base.refusal import Refusal

_WHY = "launchers need no C compiler; build extensions with setuptools or torch.utils.cpp_extension"
compile_module_from_src = Refusal("runtime.build.compile_module_from_src", _WHY)
compile_module_from_file = Refusal("runtime.build.compile_module_from_file", _WHY)
compile_so_from_src = Refusal("runtime.build.compile_so_from_src", _WHY)
compile_so_from_file = Refusal("runtime.build.compile_so_from_file", _WHY)
_build = Refusal("runtime.build._build", _WHY)

__all__ = ["compile_module_from_file", "compile_module_from_src", "compile_so_from_file", "compile_so_from_src"]
