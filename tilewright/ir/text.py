"""Tile IR as text: parsing with located errors, printing in the form that Triton's own parser reads.

`ir` does not know the operations, so the caller gives their classes: `ops/text.py` binds these functions
to all families.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from io import StringIO

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError as XdslParseError
from xdsl.utils.exceptions import VerifyException

from tilewright.base.errors import ParseError, TilewrightError


def make_context(ops: Iterable[type[Operation]], attributes: Iterable[type[Attribute]]) -> Context:
    """A parsing context that knows the builtin dialect and the given classes."""
    context = Context()
    context.load_dialect(Builtin)
    for op in ops:
        context.load_op(op)
    for attribute in attributes:
        context.load_attr_or_type(attribute)
    return context


# MLIR prints most location aliases behind the module; xDSL wants each defined before it is used.
_ALIAS = re.compile(r"^#loc(\d*) = loc\(.*\)[ \t]*\n?", re.MULTILINE)


def _hoist_aliases(text: str) -> tuple[str, str]:
    """Definitions of location aliases in order of their numbers, and the text with empty lines in their places."""
    found = sorted((int(m[1] or -1), m[0].rstrip("\n")) for m in _ALIAS.finditer(text))
    return "".join(f"{line}\n" for _, line in found), _ALIAS.sub("\n", text) if found else text


def parse_module(context: Context, text: str, name: str = "<ttir>") -> ModuleOp:
    """The module that `text` spells.

    Args:
        context: the known operations and types.
        text: MLIR assembly.
        name: shown in errors, usually the file's path.

    Raises:
        ParseError: with line, column and caret.
    """
    aliases, body = _hoist_aliases(text)
    parser, skip = _Parser(context, aliases + body, name), len(aliases)
    try:
        return parser.parse_module()
    except XdslParseError as error:
        start, end = error.span.start - skip, error.span.end - skip
        raise ParseError(_render(body, name, start, end, error.msg)) from None
    except (TilewrightError, VerifyException, ValueError, TypeError, KeyError, AttributeError) as error:
        # Types or attributes that an operation's own parser did not expect: the mistake is just before.
        before = body[: parser.pos - skip].rstrip()
        raise ParseError(_render(body, name, max(0, len(before) - 1), len(before), str(error))) from error


def _place(text: str, start: int, end: int, message: str) -> tuple[int, int]:
    """Where the mistake is: xDSL reports some only after reading on."""
    unknown = re.match(r"Operation (\S+) is not registered", message)
    if unknown:
        found = text.rfind(unknown[1], 0, start)
        return (found, found + len(unknown[1])) if found >= 0 else (start, end)
    undefined = re.match(r"values used but not defined: \[(%[^,\]]+)", message)
    if undefined:
        use = re.search(re.escape(undefined[1]) + r"(?![\w$.-])", text)
        return use.span() if use else (start, end)
    return start, end


def _render(text: str, name: str, start: int, end: int, message: str) -> str:
    """`file:line:column: message`, the line, and a caret under the place."""
    start, end = _place(text, start, end, message)
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    number, column = text.count("\n", 0, start) + 1, start - line_start
    span = max(1, min(end - start, len(line) - column))
    return f"{name}:{number}:{column + 1}: {message}\n  {line}\n  {' ' * column}{'^' * span}"


class _Parser(Parser):
    """xDSL's parser, but that names of files may have any characters, and bytes that are none."""

    def parse_optional_str_literal(self) -> str | None:
        found = super().parse_optional_str_literal()
        if found is None and (escaped := self.parse_optional_bytes_literal()) is not None:
            return escaped.decode("utf-8", "surrogateescape")
        return found


class _Printer(Printer):
    """xDSL's printer, but that it quotes a text once: every location names the file again; and counts no columns."""

    def print_string_literal(self, string: str) -> None:
        self.print_bytes_literal(string.encode("utf-8", "surrogateescape"))

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text or self.stream is None:
            super().print_string(text, indent=indent)
        else:
            self.stream.write(text)

    def print_bytes_literal(self, bytestring: bytes) -> None:
        self.print_string(_quoted(bytestring))


@functools.lru_cache(maxsize=64)
def _quoted(text: bytes) -> str:
    out = StringIO()
    Printer(out).print_bytes_literal(text)
    return out.getvalue()


def print_op(op: Operation, *, locations: bool = False) -> str:
    """One operation (a module, a function, ...) as text.

    Args:
        op: what to print.
        locations: add ``loc(..)`` to every operation and argument.
    """
    out = StringIO()
    _Printer(out, print_debuginfo=locations).print_op(op)
    text = out.getvalue()
    # MLIR prints the module op of the builtin dialect without its prefix.
    return text.removeprefix("builtin.") if isinstance(op, ModuleOp) else text


def print_module(module: ModuleOp, locations: bool = True) -> str:
    """`module` as text that :func:`parse_module` and Triton read.

    Args:
        module: what to print.
        locations: add ``loc(..)`` to every operation and argument.
    """
    return print_op(module, locations=locations) + "\n"
