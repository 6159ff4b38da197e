"""The text of a kernel: parsed once, compiled statement by statement with true positions."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tilewright import errors, syntax
from tilewright.hl import exc
from tilewright.hl.trace.rewrite import rewritten

CHOSEN = "the chosen value"  # the variable that both arms of a conditional expression assign


@dataclass(frozen=True)
class Body:
    """The body of a loop with what follows `if c: continue` as the other arm: no jump is left.

    Args:
        statements: the body; where the loop can be left, nothing happens once `flag` is true.
        flag: the variable that `break` sets; "" where there is none.
    """

    statements: list[ast.stmt]
    flag: str


class Source:
    """A function's text.

    Args:
        function: a function defined with `def` in a file that `linecache` knows.

    Attributes:
        tree: the parsed definition; line numbers are those of the file.
        file: path of the file.
        locals: names that the function assigns, parameters included.
        used: names of globals and attributes that its text has.
        carried: for each loop statement, the leaves of variables that it was found to carry.

    Raises:
        SourceNotAvailable: the text cannot be read.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        self.file, self.name = code.co_filename, function.__qualname__
        self.locals = frozenset(code.co_varnames + code.co_cellvars + (CHOSEN,))  # and flags of loops that are left
        self.used = frozenset(code.co_names + code.co_freevars)
        try:
            lines, first = _lines(function)
        except (OSError, TypeError) as error:
            raise exc.SourceNotAvailable(
                f"the source of {self.name} cannot be read: {error}",
                hint="put the kernel into a .py file or a notebook cell: its text is what is compiled",
            ) from None
        head = ["if 1:\n"] if lines[0][:1].isspace() else []
        body: Any = syntax.parse("".join(["\n"] * (first - 1 - len(head)) + head + lines))  # with the lines of the file
        definition = body.body[0].body[0] if head else body.body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise exc.SourceNotAvailable(
                f"{self.name} is not defined with `def`", hint="a lambda or an `async def` cannot be a kernel"
            )
        _check_statements(definition, self)
        self.tree = definition
        self.carried: dict[int, set[Any]] = {}
        self._codes: dict[int, CodeType] = {}
        self._bodies: dict[int, Body] = {}

    def expression(self, node: ast.expr, device: bool = False, test: bool = False) -> CodeType:
        """Code that evaluates `node`.

        Args:
            node: the expression.
            device: whether it stands in a loop over tiles, where truths may be known late.
            test: whether nothing but its truth counts.
        """
        return self._code(
            node, lambda: syntax.code_of(ast.Expression(rewritten(node, device, test)), self.file, "eval")
        )

    def statement(self, node: ast.stmt, device: bool = False) -> CodeType:
        """Code that executes `node`; `device` says whether it stands in a loop over tiles."""
        return self._code(node, lambda: syntax.code_of(ast.Module([rewritten(node, device)], []), self.file, "exec"))

    def assignment(self, target: ast.expr) -> CodeType:
        """Code that assigns the name `__item` to a target."""

        def make() -> CodeType:
            item = ast.copy_location(ast.Name("__item", ast.Load()), target)
            node = ast.copy_location(ast.Assign([target], item), target)
            return syntax.code_of(ast.Module([node], []), self.file, "exec")

        return self._code(target, make)

    def _code(self, node: ast.AST, make: Callable[[], CodeType]) -> CodeType:
        code = self._codes.get(id(node))
        if code is None:
            code = self._codes[id(node)] = make()
        return code

    def body(self, loop: ast.For | ast.While) -> Body:
        """The body of a loop without jumps."""
        known = self._bodies.get(id(loop))
        if known is None:
            flag = f"left_{loop.lineno}" if _jumps(loop.body, ast.Break) else ""
            statements = _straight(loop.body, [], flag)
            if flag:
                self.locals |= {flag}
                test = ast.copy_location(ast.Name(flag, ast.Load()), loop)
                statements = [_branch(loop, test, [ast.copy_location(ast.Pass(), loop)], statements)]
            known = self._bodies[id(loop)] = Body(statements, flag)
        return known

    def line(self, number: int) -> str:
        """A line of the file, without indentation."""
        return linecache.getline(self.file, number).strip()

    def location(self, node: ast.stmt | ast.expr) -> errors.Location:
        """The place of a node."""
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        return errors.Location(self.file, node.lineno, node.col_offset, end, None, self.name)

    @functools.cached_property
    def integers(self) -> frozenset[int]:
        """The integer literals of the text."""
        constants = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return frozenset(value for value in constants if type(value) is int)


def _lines(function: Callable[..., Any]) -> tuple[list[str], int]:
    """The lines of a function, and the number of the first."""
    code = function.__code__
    known = linecache.cache.get(code.co_filename)
    if known is None or len(known) != 4 or known[1] is not None:
        return inspect.getsourcelines(function)
    first = code.co_firstlineno  # no file, which might have changed: `inspect` would look through all modules for one
    return known[2][first - 1 : _last_line(known[2], first)], first


def _last_line(lines: list[str], first: int) -> int:
    """Where the function ends whose decorators begin in a line. `inspect` would look at every token, in Python."""
    with suppress(SyntaxError):  # of what else stands there
        for node in syntax.parse("".join(lines)).body:
            starts = [part.lineno for part in (node, *getattr(node, "decorator_list", ()))]
            if first in starts and node.end_lineno is not None:
                return node.end_lineno
    return first - 1 + len(inspect.getblock(lines[first - 1 :]))


def _check_statements(definition: ast.FunctionDef, source: Source) -> None:
    """Refuse what makes the function something else than a run from top to bottom."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith):
            place = errors.Location(source.file, node.lineno, node.col_offset, None, None, source.name)
            raise exc.StatementNotSupported(
                f"`{type(node).__name__.lower()}` in a kernel",
                place,
                hint="a kernel runs from its first line to its last",
            )
        if isinstance(node, ast.Global | ast.Nonlocal):
            raise exc.StatementNotSupported(
                f"`{type(node).__name__.lower()}` in a kernel, which is run to be compiled, and not once for a call",
                source.location(node),
                hint="return what is new, or store it into a tensor",
            )
    arguments = definition.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise exc.InvalidSignature(
            f"{source.name} has parameters that are not one each by position",
            errors.Location(source.file, definition.lineno, definition.col_offset, None, None, source.name),
            hint="name every parameter, or pass a list or a dictionary",
        )


def _straight(statements: list[ast.stmt], rest: list[ast.stmt], flag: str) -> list[ast.stmt]:
    """`statements` and then `rest`, where `continue` and `break` skip what is behind them; `break` sets a flag too."""
    for at, statement in enumerate(statements):
        if isinstance(statement, ast.Continue):
            return statements[:at]
        if isinstance(statement, ast.Break):
            target = ast.copy_location(ast.Name(flag, ast.Store()), statement)
            true = ast.copy_location(ast.Constant(True), statement)
            return [*statements[:at], ast.copy_location(ast.Assign([target], true), statement)]
        if isinstance(statement, ast.If) and _jumps([statement], ast.Continue | ast.Break):
            behind = _straight(statements[at + 1 :], rest, flag)
            body = _straight(statement.body, behind, flag) or [ast.copy_location(ast.Pass(), statement)]
            return [
                *statements[:at],
                _branch(statement, statement.test, body, _straight(statement.orelse, behind, flag)),
            ]
    return statements + rest


def _branch(place: ast.stmt, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> ast.If:
    return ast.copy_location(ast.If(test, body, orelse), place)


def _jumps(statements: list[ast.stmt], kinds: Any) -> bool:
    """Whether statements have a jump of the loop that they stand in."""
    return any(
        isinstance(statement, kinds)
        or (isinstance(statement, ast.If) and _jumps([*statement.body, *statement.orelse], kinds))
        for statement in statements
    )
