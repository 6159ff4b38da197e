"""Nodes whose text the user wrote, and what is said while a kernel runs."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Node
from tilewright.hl.rows.table import Emitter, Row, row


@dataclass(frozen=True)
class Print(Row):
    """`print(prefix, values)`."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        prefix, given = node.args
        emitter.write(f"tl.device_print({', '.join([repr(prefix), *(emitter.operand(value) for value in given)])})")


@dataclass(frozen=True)
class Assembly(Row):
    """`assembly(asm, constraints, operands, types, pure, pack)`."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        asm, constraints, given, types, pure, pack = node.args
        operands = ", ".join(emitter.operand(value) for value in given)
        dtypes = [emitter.dtype(dtype) for dtype in types]
        dtype = dtypes[0] if len(dtypes) == 1 else f"({', '.join(dtypes)})"
        emitter.assign_all(
            node.outs,
            f"tl.inline_asm_elementwise({asm!r}, {constraints!r}, [{operands}], {dtype}, is_pure={pure}, pack={pack})",
        )


@dataclass(frozen=True)
class Call(Row):
    """`call(text, names, operands, definitions)`: lines of `tl` with names in braces, the last one an expression.

    The definitions are put beside the kernel; without results the last line is a statement too.
    """

    def emit(self, emitter: Emitter, node: Node) -> None:
        text, names, given, definitions = node.args
        for definition in definitions:
            emitter.module_text(definition)
        texts = [emitter.operand(value) for value in given]
        try:
            lines = text.format(*texts, **dict(zip(names, texts, strict=False))).splitlines()
        except (KeyError, IndexError, ValueError) as error:
            raise exc.InvalidAPIUsage(
                f"the inline text has a name in braces that is no argument: {error}",
                hint="give every name in `args`; write {{ and }} for braces of the text",
            ) from None
        for line in lines if not node.outs else lines[:-1]:
            emitter.write(line)
        if node.outs:
            emitter.assign_all(node.outs, lines[-1].strip())


row(Print("print"))
row(Assembly("assembly"))
row(Call("call"))
