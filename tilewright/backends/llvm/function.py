"""One LLVM function under construction.

`Function` is made by `Module.function` and inherits every instruction helper: lane-wise (`instructions`), vector
(`vectors`), memory (`memory`) and control flow (`control`). It starts in its entry block; end it with `ret`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.backends.llvm.control import ControlFlow
from tilewright.backends.llvm.types import PTR, T, V

if TYPE_CHECKING:
    from tilewright.backends.llvm.features import CpuFeatures
    from tilewright.backends.llvm.module import Module


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
        self._scope = ""

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
        self._scope = self.module.debug_subprogram(self.name, file, line)
        self.at(line, 0)

    def at(self, line: int, column: int) -> None:
        """Attribute the following instructions to a source position (no effect without `debug_scope`)."""
        if self._scope:
            self._dbg = f", !dbg {self.module.debug_location(line, column, self._scope)}"

    def render(self) -> str:
        """The definition as text."""
        scope = f" !dbg {self._scope}" if self._scope else ""
        return "\n".join([f"{self._head}{scope} {{", "entry:", *self._allocas, *self._lines, "}"])
