"""Functions that Dynamo traces without guards on what they read.

Dynamo checks every global, builtin and attribute that it met while tracing again at each call of a compiled function.
Those of this package never change, and would cost more than the launch. Dynamo sets no guard on what it reached from an
object made during the trace: so functions that it traces here are methods of such an object, and read no globals but
variables of a function around them.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tilewright.base.syntax import code_of, parse

_F = TypeVar("_F", bound=Callable[..., Any])


def unguarded(fn: _F) -> _F:
    """`fn`, whose globals and builtins are variables of a function around it; they are looked up now.

    Args:
        fn: a function with source, whose own name it may call.
    """
    tree = parse(textwrap.dedent(inspect.getsource(fn)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    space = {**vars(builtins), **fn.__globals__}
    read = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)} - {fn.__name__}
    names = sorted(read & space.keys() - set(fn.__code__.co_varnames))
    around = parse(f"def around({', '.join(names)}):\n    return {fn.__name__}")
    outer = around.body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body.insert(0, definition)
    ast.increment_lineno(definition, fn.__code__.co_firstlineno - 1)
    scope = {"__name__": fn.__module__}
    flags = __future__.annotations.compiler_flag
    exec(code_of(around, fn.__code__.co_filename, "exec", flags=flags), scope)
    made: Any = scope["around"]
    return cast(_F, made(**{name: space[name] for name in names}))
