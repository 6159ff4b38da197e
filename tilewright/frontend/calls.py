"""Calls in a kernel: builtins of the language, block functions, lambdas, and Python's own on constants.

A block function is inlined while it is visited: its body goes straight into the caller's block, and its
places remember the call. One marked `noinline` becomes a function of the module, made once per
combination of argument types and constants.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import BlockType, PointerType, Type, dtype
from tilewright.base.errors import LanguageTypeError
from tilewright.frontend.control import finish_function
from tilewright.frontend.expressions import Method, attribute, constant_items, wrap
from tilewright.frontend.frame import NOTHING, Frame, visit, visit_all, visits
from tilewright.frontend.scopes import PYTHON_BUILTINS, Scope
from tilewright.frontend.source import source_of
from tilewright.frontend.structure import is_same, leaves, type_text
from tilewright.ops.builtin import BUILTINS, Builtin, to_tensor
from tilewright.ops.control import condition, static_range
from tilewright.ops.control import range as run_time_range
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple

Arguments = Sequence[Any]
Keywords = Mapping[str, Any]


@visits(ast.Call)
def _call(frame: Frame, node: ast.Call) -> Any:
    fn = visit(frame, node.func)
    args: list[Any] = []
    for item in node.args:
        if isinstance(item, ast.Starred):
            args.extend(constant_items(frame, item.value))
        else:
            args.append(visit(frame, item))
    kwargs = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise frame.unsupported(keyword.value, "`**` in a call is not supported", hint="name each argument")
        kwargs[keyword.arg] = visit(frame, keyword.value)
    frame.at(node)
    return call_value(frame, fn, args, kwargs)


def call_value(frame: Frame, fn: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Call any value that a kernel can call; the frame stands at the call."""
    if isinstance(fn, constexpr):
        fn = fn.value
    if isinstance(fn, Method):
        args, fn = [fn.receiver, *args], fn.fn
    if isinstance(fn, Builtin):
        return _call_builtin(frame, fn, args, kwargs)
    if isinstance(fn, BlockFunction):
        return call_block_function(frame, fn, args, kwargs)
    if isinstance(fn, Lambda):
        return fn.call(frame, args, kwargs)
    special = _SPECIAL.get(fn) if isinstance(fn, (type, types.BuiltinFunctionType)) else None
    if special is not None:
        return special(frame, *args, **kwargs)
    if isinstance(fn, dtype):
        return BUILTINS["cast"].fn(frame.builder, to_tensor(frame.builder, *args, **kwargs), fn)
    return _call_python(frame, fn, args, kwargs)


def _call_builtin(frame: Frame, fn: Builtin, args: Arguments, kwargs: Keywords) -> Any:
    try:
        result = fn.fn(frame.builder, *args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # the call itself did not fit
            raise _bad_arguments(fn.__name__, fn.__signature__, args, kwargs, error) from error
        raise
    return wrap(result)


def _bad_arguments(
    name: str, signature: inspect.Signature, args: Arguments, kwargs: Keywords, error: TypeError
) -> LanguageTypeError:
    """The error for arguments that a signature does not take, without the parameters that users do not see."""
    problem = str(error)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        problem = str(mismatch)
    parameters = ", ".join(str(p).split(":")[0].split(" =")[0] for p in signature.parameters.values())
    return LanguageTypeError(f"{name}(): {problem}", hint=f"the signature is {name}({parameters})")


# --- block functions -----------------------------------------------------------------------------------------


def bind_arguments(fn: BlockFunction, args: Arguments, kwargs: Keywords) -> dict[str, Any]:
    """Parameter names to values, defaults included.

    Raises:
        LanguageTypeError: missing, extra or doubly given arguments.
    """
    try:
        bound = fn.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise _bad_arguments(fn.fn.__name__, fn.signature, args, kwargs, error) from error
    bound.apply_defaults()
    values = {}
    for name, value in bound.arguments.items():
        if fn.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            if value:
                raise LanguageTypeError(f"{fn.fn.__name__}(): `**{name}` is not supported")
            value = tile_tuple()
        values[name] = wrap(value)
    return values


def is_constexpr_parameter(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated ``tl.constexpr``."""
    annotation = parameter.annotation
    return annotation is constexpr or isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr"


def enter_function(frame: Frame, fn: BlockFunction, values: Mapping[str, Any]) -> Any:
    """Visit the body of `fn` with its parameters bound; the result is its value or `NOTHING`."""
    scope = frame.scope = Scope()
    scope.values.update(values)
    for name, parameter in fn.signature.parameters.items():
        if is_constexpr_parameter(parameter):
            scope.constants[name] = frame.source.tree
    compilation = frame.compilation
    outside = compilation.frame
    compilation.frame = frame
    compilation.active.append((fn, values))
    try:
        return finish_function(frame, visit_all(frame, frame.source.tree.body))
    finally:
        compilation.active.pop()
        compilation.frame = outside


def call_block_function(frame: Frame, fn: BlockFunction, args: Arguments, kwargs: Keywords) -> Any:
    """Inline `fn`, or call it if it is marked `noinline`."""
    values = bind_arguments(fn, args, kwargs)
    _refuse_endless_recursion(frame, fn, values)
    if fn.noinline:
        return _call_out_of_line(frame, fn, values)
    location = frame.builder.location
    result = enter_function(Frame(frame.compilation, source_of(fn), frame), fn, values)
    frame.builder.location = location
    return constexpr(None) if result is NOTHING else result


def _refuse_endless_recursion(frame: Frame, fn: BlockFunction, values: Mapping[str, Any]) -> None:
    for other, before in frame.compilation.active:
        if other is fn and all(_same_kind(values[name], before[name]) for name in values):
            raise LanguageTypeError(
                f"{fn.fn.__qualname__} calls itself with arguments of the same types and constants",
                hint="recursion must end at compile time: pass a constexpr that changes, and test it with `if`",
            )


def _same_kind(a: Any, b: Any) -> bool:
    if isinstance(a, tensor) and isinstance(b, tensor):
        return bool(a.type == b.type)
    if isinstance(a, builtins.tuple) and isinstance(b, builtins.tuple):
        return len(a) == len(b) and all(_same_kind(x, y) for x, y in zip(a, b, strict=True))
    return is_same(a, b)


# --- noinline ------------------------------------------------------------------------------------------------


def _call_out_of_line(frame: Frame, fn: BlockFunction, values: dict[str, Any]) -> Any:
    from_values = [leaf for value in values.values() for leaf in leaves(value)]
    for name, value in values.items():
        for leaf in leaves(value):
            if isinstance(leaf.type, BlockType):
                raise LanguageTypeError(
                    f"Function {fn.fn.__qualname__} is marked noinline, but was called with non-scalar argument "
                    f"{name}:{type_text(leaf)}",
                    hint="pass scalars and pointers, or let the function be inlined",
                )
    return make_call(frame, fn, values, from_values)


def make_call(frame: Frame, fn: BlockFunction, values: Mapping[str, Any], operands: Sequence[tensor]) -> Any:
    """Call of the function made of `fn` for these types and constants."""
    made = _functions(frame).get(frame, fn, values)
    from_op = CallOp.make_call(made.symbol, [o.handle for o in operands], made.types)  # type: ignore[misc]
    call = frame.builder.append(from_op)
    results = iter([tensor(r, leaf.type) for r, leaf in zip(call.results, leaves(made.value), strict=True)])
    return constexpr(None) if made.value is NOTHING else rebuild(made.value, results)
