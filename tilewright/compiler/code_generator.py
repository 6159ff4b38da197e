"""`triton.compiler.code_generator`: the front end here walks the syntax tree in another way."""

from tilewright.base.refusal import Refusal

_WHY = "the front end makes no MLIR; `CompiledKernel.asm` has tile IR as text, `kernel.effects` what a kernel writes"
ast_to_ttir = Refusal("compiler.code_generator.ast_to_ttir", _WHY)
CodeGenerator = Refusal("compiler.code_generator.CodeGenerator", _WHY)

__all__ = ["CodeGenerator", "ast_to_ttir"]
