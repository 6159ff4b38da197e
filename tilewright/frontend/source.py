"""Source text of block functions: captured at decoration, parsed when first needed.

A `KernelSource` keeps the lines of the file as they were when the function was defined, so
that a later edit of the file cannot change what is compiled. Positions of AST nodes are
positions in the file: nothing is dedented before parsing.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import itertools
import linecache
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

from tilewright.base.callable import BlockFunction
from tilewright.base.errors import LanguageValueError
from tilewright.base.location import Location
from tilewright.base.syntax import parse

_ATTRIBUTE = "_kernel_source"
_texts = itertools.count(1)


class Cells(Mapping[str, Any]):
    """The closure of a function: names of enclosing functions that it uses, with their values at the moment.

    Args:
        function: the function.
    """

    def __init__(self, function: types.FunctionType) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError:  # not assigned yet
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._cells if self.get(name, self) is not self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Scope(Protocol):
    """Where the free names of a function are looked up."""

    @property
    def closure(self) -> Mapping[str, Any]: ...
    @property
    def globals(self) -> Mapping[str, Any]: ...


class KernelSource:
    """Where a block function is written.

    Args:
        fn: the function; it must come from a file or another place that `linecache` knows.

    Attributes:
        file: path of the file.
        name: qualified name.
        globals: the module namespace in which free names are looked up.
    """

    def __init__(self, fn: BlockFunction) -> None:
        self.owner = fn.fn
        self.places: dict[tuple[int, int], Any] = {}  # the front end's MLIR locations by line and column
        function = inspect.unwrap(fn.fn)
        code = getattr(function, "__code__", None)
        if code is None:
            raise LanguageValueError(
                f"{fn.fn!r} is not a Python function",
                hint="decorate a function that is defined with `def`",
            )
        self.name: str = function.__qualname__
        self.file: str = code.co_filename
        self.globals: dict[str, Any] = function.__globals__
        self._function = function
        self._start: int = code.co_firstlineno
        linecache.checkcache(self.file)
        # `linecache` replaces the list when the file changes; this one stays as it is
        self._lines = linecache.getlines(self.file, self.globals)
        if len(self._lines) < self._start:
            self._lines = _command(code)
        if len(self._lines) < self._start:
            raise LanguageValueError(
                f"the source of {self.name} cannot be read: {self.file!r} is not a file",
                hint="put the kernel into a .py file or a notebook cell: its source text is what is compiled, and "
                "Python keeps none of what it reads from a pipe or a prompt, or is given by exec()",
            )

    @cached_property
    def closure(self) -> Cells:
        """Names of enclosing functions that the function uses, with the values that they have at the moment."""
        return Cells(self._function)

    @cached_property
    def _parsed(self) -> tuple[ast.FunctionDef, int]:
        return _parse_function(self)

    @property
    def tree(self) -> ast.FunctionDef:
        """The parsed function; add `line_offset` to the line numbers of its nodes."""
        return self._parsed[0]

    @property
    def line_offset(self) -> int:
        return self._parsed[1]

    @property
    def first_line(self) -> int:
        """Line of the `def`, in the file."""
        return self.tree.lineno + self.line_offset

    @cached_property
    def text(self) -> str:
        """The function from its `def` on, without decorators and indentation."""
        last = (self.tree.end_lineno or self.tree.lineno) + self.line_offset
        return textwrap.dedent("".join(self._lines[self.first_line - 1 : last]))

    @property
    def is_ours(self) -> bool:
        """Whether this is a function of Tilewright's own library."""
        return (self.globals.get("__name__") or "").startswith("tilewright.")

    def place_of(self, node: ast.AST) -> str:
        """Where a node of our own library is, in one line of text."""
        return place_of_ours(self.name, self.file, getattr(node, "lineno", 0) + self.line_offset)

    def line(self, number: int) -> str:
        """Line `number` (1-based) of the file, as it was when the function was defined."""
        return self._lines[number - 1].rstrip("\n") if 0 < number <= len(self._lines) else ""

    def text_between(self, before: ast.expr, behind: ast.expr) -> str:
        """What stands between two expressions: an operator, and brackets."""
        first, last = (before.end_lineno or 0) + self.line_offset, behind.lineno + self.line_offset
        lines = [self.line(number).encode() for number in range(first, last + 1)]
        lines[-1] = lines[-1][: behind.col_offset]
        lines[0] = lines[0][before.end_col_offset :]
        return b"\n".join(lines).decode(errors="ignore")

    def location(self, node: ast.AST, caller: Location | None = None) -> Location:
        """The place of an AST node of this function, reached from `caller`."""
        row = getattr(node, "lineno", self.tree.lineno)
        start = getattr(node, "col_offset", 0)
        end_row = getattr(node, "end_lineno", None) or row
        end = getattr(node, "end_col_offset", None)
        text = self.line(row + self.line_offset)
        if end is None or end_row != row:
            end = len(text.encode())  # a construct of several lines is underlined to the end of its first
        if not text.isascii():  # the parser counts bytes of UTF-8
            raw = text.encode()
            start, end = (len(raw[:n].decode(errors="ignore")) for n in (start, end))
        return Location(self.file, row + self.line_offset, start, end, caller, self.name)


def place_of_ours(function: str, file: str, line: int) -> str:
    """A line of Tilewright itself, named from the folder of the package on."""
    return f"{function} (tilewright{file.rpartition('tilewright')[2]}:{line})"


def _command(code: types.CodeType) -> list[str]:
    """The lines of `python -c TEXT`, if `code` is a part of it; before 3.13 Python does not keep them."""
    arguments = sys.orig_argv
    if code.co_filename != "<string>" or "-c" not in arguments[:-1]:
        return []
    text = arguments[arguments.index("-c") + 1]
    with contextlib.suppress(SyntaxError):
        waiting = [compile(text, "<string>", "exec", dont_inherit=True)]
        while waiting:
            held = [part for part in waiting.pop().co_consts if isinstance(part, types.CodeType)]
            if code in held:
                return text.splitlines(keepends=True)
            waiting += held
    return []


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _candidate_ends(lines: list[str], first: int, indent: int) -> Iterator[int]:
    """Lines behind the function, by their numbers. Decorators, which may have brackets over many lines, are passed by:
    text that does not parse takes Python longer than the function."""
    start = (" " * indent + "def ", "\t" * indent + "def ")
    begin = next((number for number in range(first, len(lines)) if lines[number].startswith(start)), first)
    for number in range(begin + 1, len(lines)):
        text = lines[number].strip()
        if text and not text.startswith("#") and _indentation(lines[number]) <= indent:
            yield number
    yield len(lines)


def _parse_function(source: KernelSource) -> tuple[ast.FunctionDef, int]:
    """Parse the function alone, however long its file is.

    A function ends before a line that is indented no deeper than its `def`; where such a line belongs to a
    bracket or a string the text up to it does not parse, and the next candidate is tried.
    """
    lines = source._lines
    first = source._start - 1
    indent = _indentation(lines[first])
    head = ["if 1:\n"] if indent else []  # keeps columns true, which dedenting would not
    for end in _candidate_ends(lines, first, indent):
        try:
            body = parse("".join([*head, *lines[first:end]])).body
        except SyntaxError:
            continue
        if head:
            body = body[0].body  # type: ignore[attr-defined]
        if body and isinstance(body[0], ast.FunctionDef):
            return body[0], first - len(head)
        break
    raise LanguageValueError(
        f"no function definition at line {source._start} of {source.file!r} for {source.name}",
        hint="decorate a plain `def` (not a lambda, an `async def` or generated code)",
    )


def source_of(fn: BlockFunction) -> KernelSource:
    """The source of `fn`, captured on the first call: call it once when the function is decorated.

    Raises:
        LanguageValueError: the source cannot be read, or is not a `def`.
    """
    found = fn.__dict__.get(_ATTRIBUTE)
    if found is None or found.owner is not fn.fn:
        found = KernelSource(fn)
        fn.__dict__[_ATTRIBUTE] = found
    return found


def replace_source(fn: BlockFunction, text: str) -> None:
    """Have `fn` mean another text from now on; names in it are looked up where they were.

    Args:
        fn: the function.
        text: from its `def` on.

    Raises:
        LanguageValueError: the text is no definition of a function.
    """
    old = source_of(fn)
    new = copy.copy(old)
    for name in ("_parsed", "text"):
        new.__dict__.pop(name, None)
    new._lines = textwrap.dedent(text).splitlines(keepends=True)
    new.file, new._start, new.places = f"<new text {next(_texts)} of {old.name}>", 1, {}
    linecache.cache[new.file] = len(text), None, new._lines, new.file
    assert new.tree  # or the reason why not
    fn.__dict__[_ATTRIBUTE] = new
