"""State of the abstract interpreter: one `Compilation` per kernel, one `Frame` per function activation.

Visitors are plain functions, registered by AST class, that take the frame and the node. A frame keeps
the variables, the place in the source, and the branches that an early `return` has left open:

    if c: return a        =>   r = scf.if c { yield a } else { <everything that follows>; yield b }
    <everything that follows>
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from xdsl.dialects.builtin import CallSiteLoc, FileLineColLoc, IntAttr, StringAttr
from xdsl.ir import Attribute, Block

from tilewright.base.callable import BlockFunction
from tilewright.base.errors import CompilationError, TilewrightError, UnsupportedLanguageConstruct
from tilewright.base.location import Location
from tilewright.frontend.advice import as_written
from tilewright.frontend.builder import IRBuilder, Position, Side
from tilewright.frontend.exits import NOTHING, LoopContext
from tilewright.frontend.scopes import Scope
from tilewright.frontend.source import KernelSource
from tilewright.ops.values import tensor

_N = TypeVar("_N", bound=ast.AST)


_text = functools.cache(StringAttr)
_integer = functools.cache(IntAttr)


@dataclass(slots=True)
class OpenIf:
    """An `if` with one branch that returned; what follows is being built in the other one.

    Args:
        cond: the condition.
        outer: position at which the `scf.if` will be put when the branch closes.
        returned: the branch that returned.
        going_on: first block of the branch that goes on.
        value: the way out that the first branch took.
        then_returned: which of the two is the then-branch.
        location: MLIR location of the `if`.
        node: the `if` statement.
    """

    cond: tensor
    outer: Position
    returned: Side
    going_on: Block
    value: Any
    then_returned: bool
    location: Attribute
    node: ast.AST


@dataclass(slots=True)
class Compilation:
    """What all frames of one kernel share.

    Args:
        builder: where operations go.
        functions: block of the module.
        made: functions kept as calls: (function, argument types) to what calls.py needs to call it.
        symbols: names of functions used in the module.
        active: functions being visited, outermost first, with a key of their arguments.
        frame: the innermost activation.
    """

    builder: IRBuilder
    functions: Block
    made: dict[Any, Any] = field(default_factory=dict)
    symbols: set[str] = field(default_factory=set)
    active: list[tuple[BlockFunction, Any]] = field(default_factory=list)
    frame: Frame | None = None


class Frame:
    """One activation of a block function.

    Args:
        compilation: shared state.
        source: source of the function.
        caller: the frame of the call; `None` for a kernel.
        inline: whether operations remember the call as a part of their place.
    """

    __slots__ = (
        "_attributes", "_call_site", "builder", "caller", "compilation", "loop", "node", "offset", "opens",
        "returns", "scope", "source", "value",
    )  # fmt: skip

    def __init__(
        self, compilation: Compilation, source: KernelSource, caller: Frame | None, *, inline: bool = True
    ) -> None:
        self.compilation = compilation
        self.builder = compilation.builder
        self.source = source
        self.caller = caller
        self.scope = Scope()
        self.opens: list[OpenIf] = []
        self.value: Any = NOTHING  # the way out that ended the statements visited last
        self.returns: list[tuple[ast.AST, Any]] = []  # every `return` met, for messages
        self.loop: LoopContext | None = None  # the innermost loop
        self.node: ast.AST = source.tree
        self.offset = source.line_offset
        self._attributes: dict[tuple[int, int], Attribute] = {}
        self._call_site: Attribute | None = caller.builder.location if caller is not None and inline else None

    # -- places ---------------------------------------------------------------------------------------

    def at(self, node: ast.AST) -> None:
        """Operations built from now on come from `node`."""
        self.node = node
        self.builder.location = self.attribute(node)

    def attribute(self, node: ast.AST) -> Attribute:
        """MLIR location of a node, with the chain of calls that led here."""
        key = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
        found = self._attributes.get(key)
        if found is None:
            here = self.source.places.get(key)
            if here is None:
                here = FileLineColLoc(_text(self.source.file), _integer(key[0] + self.offset), _integer(key[1]))
                self.source.places[key] = here
            found = here if self._call_site is None else CallSiteLoc(here, self._call_site)
            self._attributes[key] = found
        return found

    def location(self, node: ast.AST) -> Location:
        """Place of a node for messages, with the chain of calls."""
        caller = None if self.caller is None else self.caller.location(self.caller.node)
        if caller is not None and self.source.is_ours:  # the mistake is in what the user gave to the function
            return caller if caller.inside else replace(caller, inside=self.source.place_of(node))
        return self.source.location(node, caller)

    def line(self, node: ast.AST) -> int:
        """Line of a node in its file."""
        return int(node.lineno) + self.offset  # type: ignore[attr-defined]

    def returned(self, value: Any) -> Any:
        """The way out that is a `return` of `value` here."""
        if self.loop is None:
            return value
        return self.loop.exit(self.scope, go=False, returned=True, value=value)

    # -- errors -----------------------------------------------------------------------------------------

    def error(self, node: ast.AST, message: str, hint: str | None = None) -> CompilationError:
        """A compile error at a node."""
        text, advice = (as_written(part, self.source) for part in (message, hint))
        return CompilationError(text, self.location(node), hint=advice)

    def unsupported(self, node: ast.AST, message: str, hint: str | None = None) -> UnsupportedLanguageConstruct:
        """Syntax that the language does not have, at a node."""
        return UnsupportedLanguageConstruct(message, self.location(node), hint=hint)

    def located(self, cause: Exception, node: ast.AST) -> CompilationError:
        """`cause`, raised while `node` was visited, as a compile error that points there."""
        if isinstance(cause, CompilationError):
            cause.location = self.location(node)
            return cause
        if isinstance(cause, RecursionError):
            hint = "write a long chain of `elif` as a loop over a tuple, or split it over several functions"
            error = self.error(node, "the calls, branches or expressions of the kernel are nested too deeply", hint)
        elif isinstance(cause, AssertionError):
            error = self.error(node, f"internal error of Tilewright: {cause!r}", "please report it with the kernel")
        elif isinstance(cause, TilewrightError):
            error = self.error(node, cause.message, cause.hint)
        elif isinstance(cause, (TypeError, ValueError, NotImplementedError)):
            error = self.error(node, str(cause))
        else:
            error = self.error(node, f"{type(cause).__name__}: {cause}")
        error.__cause__ = cause
        return error


# --- dispatch ------------------------------------------------------------------------------------------

Visitor = Callable[[Frame, Any], Any]
VISITORS: dict[type[ast.AST], Visitor] = {}


def visits(*classes: type[ast.AST]) -> Callable[[Visitor], Visitor]:
    """Register the visitor of some classes of nodes."""

    def add(fn: Visitor) -> Visitor:
        for cls in classes:
            VISITORS[cls] = fn
        return fn

    return add


def visit(frame: Frame, node: ast.AST) -> Any:
    """Value of an expression; for a statement, whether control does not go on behind it."""
    try:
        return VISITORS[type(node)](frame, node)
    except CompilationError as error:
        if error.location is None:
            raise frame.located(error, node) from error.__cause__
        raise
    except Exception as error:
        raise frame.located(error, node) from error


def visit_all(frame: Frame, body: Sequence[ast.stmt]) -> bool:
    """Visit statements in order up to the first that does not go on; tells whether one did not."""
    for statement in body:  # noqa: SIM110  (a generator would deepen the stack)
        if visit(frame, statement):
            return True
    return False
