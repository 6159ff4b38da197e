"""One LLVM module as text: functions, declarations on use, constants, metadata.

`Function` is made by `Module.function` and inherits every instruction helper: lane-wise (`instructions`), vector
(`vectors`), memory (`memory`) and control flow (`control`). It starts in its entry block; end it with `ret`.

Helpers that many call sites share are internal functions deduplicated by name: `if not module.has(name):
build(module.function(name, ...))`. The text carries no triple or data layout unless given: `codegen` sets those of
the target machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tilewright.backends.llvm.control import ControlFlow
from tilewright.backends.llvm.declarations import Declarations
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.types import PTR, VOID, T, V


class Function(ControlFlow):
    """Body, parameters and attributes of a function definition.

    Args:
        module: where it lives.
        name: symbol without `@`.
        ret: type of the result.
        params: parameter types, each optionally with attributes: `PTR` or `(PTR, "noalias nocapture")`.
        linkage: `"internal"`, or `""` for an exported symbol.
        attrs: function attributes.
    """

    module: Module

    def __init__(
        self, module: Module, name: str, ret: T, params: Sequence[T | tuple[T, str]], linkage: str, attrs: str
    ) -> None:
        super().__init__(module)
        self.name, self.ret_type = name, ret
        self.args: list[V] = []
        texts = []
        for number, param in enumerate(params):
            t, extra = (param, "") if isinstance(param, T) else param
            self.args.append(V(t, f"%a{number}"))
            texts.append(f"{t.text}{' ' if extra else ''}{extra} %a{number}")
        self._head = f"define {linkage}{' ' if linkage else ''}{ret.text} @{name}({', '.join(texts)}) {attrs}".rstrip()
        self._allocas: list[str] = []
        self._block, self._blocks = "entry", 0
        self._scope = self.file = ""

    @property
    def isa(self) -> CpuFeatures:
        """What the target of the module can do."""
        return self.module.isa

    @property
    def value(self) -> V:
        """The function as a pointer."""
        return V(PTR, f"@{self.name}")

    def debug_scope(self, file: str, line: int) -> None:
        """Attach debug info: the function is defined at `line` of `file`. Call before any instruction."""
        self.file, self._scope = file, self.module.debug_subprogram(self.name, file, line)
        self.at(line, 0)

    def at(self, line: int, column: int) -> None:
        """Attribute the following instructions to a source position (no effect without `debug_scope`)."""
        if self._scope:
            self._dbg = f", !dbg {self.module.debug_location(line, column, self._scope)}"

    def at_none(self) -> None:
        """Attribute the following instructions to nothing."""
        self._dbg = ""

    @contextlib.contextmanager
    def located(self, line: int) -> Iterator[None]:
        """Inside, attribute instructions to a line; 0 for no other line than outside."""
        outside = self._dbg
        if line:
            self.at(line, 0)
        try:
            yield
        finally:
            self._dbg = outside

    def render(self) -> str:
        """The definition as text."""
        scope = f" !dbg {self._scope}" if self._scope else ""
        return "\n".join([f"{self._head}{scope} {{", "entry:", *self._allocas, *self._lines, "}"])


class Module(Declarations):
    """Functions, declarations, globals and metadata of one compilation.

    Args:
        isa: features of the target; gates every target intrinsic.

    Attributes:
        externals: functions of libraries of the user's that it calls.
    """

    def __init__(self, isa: CpuFeatures) -> None:
        super().__init__(isa)
        self.externals: set[str] = set()
        self._functions: dict[str, Function] = {}

    # -- functions ---------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether a function `name` is defined (or being defined) here."""
        return name in self._functions

    def function(
        self,
        name: str,
        ret: T = VOID,
        params: Sequence[T | tuple[T, str]] = (),
        *,
        linkage: str = "internal",
        attrs: str = "nounwind",
    ) -> Function:
        """Start the definition of `name`; it must not exist yet. See `Function` for the parameters."""
        if name in self._functions:
            raise ValueError(f"function {name} is defined already")
        function = self._functions[name] = Function(self, name, ret, params, linkage, attrs)
        return function

    # -- text ----------------------------------------------------------------------------------------

    def render(self) -> str:
        """The module as LLVM assembly text."""
        parts = [f"{name} = type {{ {body} }}" for body, name in self._structs.items()]
        parts += self._globals.values()
        parts += [function.render() for function in self._functions.values()]
        parts += [text for name, text in self._declared.items() if name not in self._functions]
        if self._unit:
            version = self.metadata('!{i32 2, !"Debug Info Version", i32 3}')
            parts += [f"!llvm.dbg.cu = !{{{self._unit}}}", f"!llvm.module.flags = !{{{version}}}"]
        parts += [f"!{number} = {text}" for number, text in enumerate(self._metadata)]
        text = "\n".join(parts) + "\n"
        if " bfloat" in text and self.isa.is_x86 and not self.isa.has("avx512bf16"):
            text += _ROUND_TO_BFLOAT
        return text


# LLVM calls this where it computes with bfloat through float, for instance to select, on a CPU without bfloat.
_ROUND_TO_BFLOAT = """
define hidden bfloat @__truncsfbf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %shifted = lshr i32 %bits, 16
  %odd = and i32 %shifted, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %bits, %bias
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %shifted, 64
  %nan = fcmp uno float %x, 0.0
  %chosen = select i1 %nan, i32 %quiet, i32 %rounded
  %short = trunc i32 %chosen to i16
  %result = bitcast i16 %short to bfloat
  ret bfloat %result
}
"""
