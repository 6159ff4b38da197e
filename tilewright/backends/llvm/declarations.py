"""What a function under construction needs of its LLVM module: declarations on use, constants, metadata."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.types import PTR, T, V


class Declarations:
    """Declarations, globals and metadata of one compilation.

    Args:
        isa: features of the target; gates every target intrinsic.
    """

    def __init__(self, isa: CpuFeatures) -> None:
        self.isa = isa
        self._declared: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._strings: dict[str, str] = {}
        self._structs: dict[str, str] = {}
        self._metadata: list[str] = []
        self._metadata_index: dict[str, str] = {}
        self._unit = ""

    def declare(self, name: str, ret: T, params: Sequence[T], attrs: str = "") -> None:
        """Declare `name` once; where it is defined here the definition counts."""
        if name in self._declared:
            return
        self._declared[name] = f"declare {ret.text} @{name}({', '.join([t.text for t in params])}) {attrs}".rstrip()

    # -- globals -------------------------------------------------------------------------------------

    def constant(self, name: str, t: T, values: Sequence[V], align: int = 64) -> V:
        """A private constant array of `t`; reuses an existing one of the same name. Gives its address."""
        if name not in self._globals:
            body = ", ".join([v.typed for v in values])
            head = f"private unnamed_addr constant [{len(values)} x {t.text}]"
            self._globals[name] = f"@{name} = {head} [{body}], align {align}"
        return V(PTR, f"@{name}")

    def variable(self, name: str, t: T, count: int, align: int = 64, *, exported: bool = False) -> V:
        """A zero-initialised array of `count` values of `t`, internal unless `exported`. Gives its address."""
        linkage = "" if exported else "internal "
        self._globals.setdefault(name, f"@{name} = {linkage}global [{count} x {t.text}] zeroinitializer, align {align}")
        return V(PTR, f"@{name}")

    def struct(self, fields: Sequence[T]) -> T:
        """A struct with these fields, as a type with a name of its own: its text would fill every use."""
        body = ", ".join(field.text for field in fields)
        name = self._structs.setdefault(body, f"%fields.{len(self._structs)}")
        return T(name)

    def external(self, name: str, type_: str, align: int, space: int = 0) -> None:
        """Declare a global that lies elsewhere, once; `type_` is LLVM's text, such as `[0 x i8]`."""
        where = f"addrspace({space}) " if space else ""
        self._globals.setdefault(name, f"@{name} = external {where}global {type_}, align {align}")

    def string(self, text: str) -> V:
        """Address of a private NUL-terminated constant; equal texts share one."""
        name = self._strings.setdefault(text, f"text.{len(self._strings)}")
        data = text.encode() + b"\0"
        body = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
        self._globals.setdefault(name, f'@{name} = private unnamed_addr constant [{len(data)} x i8] c"{body}", align 1')
        return V(PTR, f"@{name}")

    # -- metadata ------------------------------------------------------------------------------------

    def metadata(self, text: str) -> str:
        """A metadata node with this text (`!{...}` or `!DI...(...)`), shared by equal text. Gives `!number`."""
        found = self._metadata_index.get(text)
        if found is None:
            found = self._metadata_index[text] = f"!{len(self._metadata)}"
            self._metadata.append(text)
        return found

    def no_unroll(self) -> str:
        """A fresh loop node that forbids unrolling (loop nodes must be distinct)."""
        disable = self.metadata('!{!"llvm.loop.unroll.disable"}')
        number = f"!{len(self._metadata)}"
        self._metadata.append(f"distinct !{{{number}, {disable}}}")
        return number

    def debug_file(self, path: str) -> str:
        """The `DIFile` node of a source path."""
        folder, name = os.path.split(path)
        return self.metadata(f"!DIFile(filename: {_quoted(name)}, directory: {_quoted(folder)})")

    def debug_subprogram(self, name: str, path: str, line: int) -> str:
        """A `DISubprogram` of a function defined at `line` of `path`; the first makes the compile unit.

        Line directives alone: anything more makes the assembler for GPUs drop its optimisations.
        """
        file = self.debug_file(path)
        if not self._unit:
            self._unit = f"!{len(self._metadata)}"
            self._metadata.append(
                f"distinct !DICompileUnit(language: DW_LANG_Python, file: {file}, isOptimized: true, "
                "emissionKind: DebugDirectivesOnly)"
            )
        kind = self.metadata("!DISubroutineType(types: !{null})")
        number = f"!{len(self._metadata)}"
        self._metadata.append(
            f"distinct !DISubprogram(name: {_quoted(name)}, scope: {file}, file: {file}, line: {line}, type: {kind}, "
            f"unit: {self._unit}, spFlags: DISPFlagDefinition | DISPFlagOptimized)"
        )
        return number

    def debug_location(self, line: int, column: int, scope: str) -> str:
        """A source position inside the subprogram `scope`."""
        return self.metadata(f"!DILocation(line: {line}, column: {column}, scope: {scope})")


def _quoted(text: str) -> str:
    """A metadata string literal; names of files may have bytes that are no characters."""
    data = text.encode("utf-8", "surrogateescape")
    safe = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'"{safe}"'
