"""Functions written inside a kernel: lambdas and nested `def`s. They are inlined where they are called.

They see the variables of the function around them: a nested function as they are when it is called, like Python's;
a lambda as they are where it is written, for it is mostly called from the body of a reduction.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import LanguageTypeError
from tilewright.frontend.control import finish_function
from tilewright.frontend.exits import NOTHING
from tilewright.frontend.expressions import wrap
from tilewright.frontend.frame import Frame, visit, visit_all, visits
from tilewright.frontend.names import assigned_names
from tilewright.frontend.scopes import Scope
from tilewright.ops.values import constexpr
from tilewright.ops.values import tuple as tile_tuple


def bad_arguments(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], error: TypeError
) -> LanguageTypeError:
    """The error for arguments that a signature does not take, without the parameters that users do not see."""
    problem = str(error)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        problem = str(mismatch)
    parameters = ", ".join(str(p).split(":")[0].split(" =")[0] for p in signature.parameters.values())
    return LanguageTypeError(f"{name}(): {problem}", hint=f"the signature is {name}({parameters})")


def fits(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a signature takes these arguments."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _signature(frame: Frame, arguments: ast.arguments) -> inspect.Signature:
    """The signature that a function inside a kernel has, its defaults evaluated."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[Any] = [inspect.Parameter.empty] * (len(positional) - len(arguments.defaults))
    defaults += [visit(frame, d) for d in arguments.defaults]
    kinds: list[Any] = [inspect.Parameter.POSITIONAL_ONLY] * len(arguments.posonlyargs)
    kinds += [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(arguments.args)
    made = [inspect.Parameter(a.arg, k, default=d) for a, k, d in zip(positional, kinds, defaults, strict=True)]
    if arguments.vararg is not None:
        made.append(inspect.Parameter(arguments.vararg.arg, inspect.Parameter.VAR_POSITIONAL))
    for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        default = inspect.Parameter.empty if d is None else visit(frame, d)
        made.append(inspect.Parameter(a.arg, inspect.Parameter.KEYWORD_ONLY, default=default))
    if arguments.kwarg is not None:
        made.append(inspect.Parameter(arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(made)


class Closure:
    """A function written inside a kernel.

    Args:
        frame: the frame in which it is written.
        node: its source.
    """

    def __init__(self, frame: Frame, node: ast.Lambda | ast.FunctionDef) -> None:
        self.frame = frame
        self.node = node
        self.name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
        self.signature = _signature(frame, node.args)
        self.scope = frame.scope.copy() if isinstance(node, ast.Lambda) else None

    def __repr__(self) -> str:
        return f"the function {self.name}"

    def call(self, caller: Frame, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Value of the body with the arguments bound to the parameters."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise bad_arguments(self.name, self.signature, args, kwargs, error) from error
        bound.apply_defaults()
        compilation, location = caller.compilation, caller.builder.location
        frame = Frame(compilation, self.frame.source, caller)
        frame.scope = self._outer_scope()
        for name, value in bound.arguments.items():
            frame.scope.constants.pop(name, None)
            frame.scope.bind(name, tile_tuple(map(wrap, value)) if isinstance(value, tuple) else wrap(value))
        compilation.frame = frame
        try:
            result = self._run(frame)
        finally:
            compilation.frame, caller.builder.location = caller, location
        return result

    def _outer_scope(self) -> Scope:
        scope = (self.scope or self.frame.scope).copy()
        if isinstance(self.node, ast.FunctionDef):  # what it assigns is its own
            own = [name for name in assigned_names(self.node, self.node.body) if name != self.name]
            for name in own:
                scope.values.pop(name, None)
                scope.constants.pop(name, None)
        return scope

    def _run(self, frame: Frame) -> Any:
        if isinstance(self.node, ast.Lambda):
            return visit(frame, self.node.body)
        result = finish_function(frame, visit_all(frame, self.node.body))
        return constexpr(None) if result is NOTHING else result


@visits(ast.Lambda)
def _lambda(frame: Frame, node: ast.Lambda) -> Closure:
    return Closure(frame, node)


@visits(ast.FunctionDef)
def _nested(frame: Frame, node: ast.FunctionDef) -> None:
    if node.decorator_list:
        raise frame.unsupported(
            node.decorator_list[0],
            "a function inside a kernel cannot be decorated",
            hint="leave the decorator out: the function is compiled into the kernel; or define it at module level",
        )
    frame.scope.bind(node.name, Closure(frame, node))
