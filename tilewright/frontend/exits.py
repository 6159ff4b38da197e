"""Ways out of a piece of code: falling through, `continue`, `break`, `return`.

Outside of loops a way out is the value that a function returns. Inside a loop it is an `Exit`, a record whose
fields are kernel values: branches that leave on different ways are joined field by field, and a flag
that differs becomes an int1 tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.frontend.scopes import Scope
from tilewright.ops.values import constexpr, tensor
from tilewright.ops.values import tuple as tile_tuple

YES = constexpr(True)
NO = constexpr(False)


class Marker:
    """A value that is not one.

    Args:
        text: how messages name it.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


NOTHING = Marker("no value")
"""What a function gives that returns nothing."""
UNDEFINED = Marker("undefined")
"""A value on a path where nothing will look at it."""
HIDDEN = Marker("hidden")
"""A variable that has no value, or not always one of the same type."""


class Exit(NamedTuple):
    """A way out of one iteration of a loop.

    Args:
        go: whether the loop goes on with its next iteration; an int1 tensor, or a constant.
        returned: whether the function returns; if neither, the loop is left by `break`.
        value: what the function returns.
        variables: values of the variables of the loop, in the order of its names.
    """

    go: Any
    returned: Any
    value: Any
    variables: Any


class LoopContext:
    """The loop whose body is being visited.

    Args:
        node: the loop.
        names: variables that pass from one iteration to the next, or out of the loop.
        fixed: whether their types must not change: the loop runs at run time.
        fresh: how many of the names, the last ones, have no value before the loop; they matter behind it only.
    """

    __slots__ = ("broken", "fixed", "fresh", "names", "node")

    def __init__(self, node: ast.For | ast.While, names: Sequence[str], *, fixed: bool, fresh: int = 0) -> None:
        self.node = node
        self.fresh = fresh
        self.names = tuple(names)
        self.fixed = fixed
        self.broken = False  # a `break` was visited

    def exit(self, scope: Scope, *, go: bool, returned: bool = False, value: Any = UNDEFINED) -> Exit:
        """The way out taken at a place where `scope` holds the variables."""
        values = [scope.values.get(name, HIDDEN) for name in self.names]
        if go and self.fresh:
            values[-self.fresh :] = [UNDEFINED] * self.fresh
        return Exit(YES if go else NO, YES if returned else NO, value, tile_tuple(values))


def is_yes(flag: Any) -> bool:
    """Whether a flag is known to be set."""
    return isinstance(flag, constexpr) and bool(flag.value)


def is_no(flag: Any) -> bool:
    """Whether a flag is known not to be set."""
    return not isinstance(flag, tensor) and not is_yes(flag)
