"""Calls in a kernel: builtins of the language, block functions, lambdas, and Python's own on constants.

A block function is inlined while it is visited: its body goes straight into the caller's block, and its
places remember the call. One marked `noinline` becomes a function of the module, made once per
combination of argument types and constants.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Attribute

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import BlockType, PointerType, dtype
from tilewright.base.errors import LanguageTypeError
from tilewright.frontend.builder import Position
from tilewright.frontend.closures import Closure, bad_arguments, fits
from tilewright.frontend.control import finish_function
from tilewright.frontend.exits import NOTHING
from tilewright.frontend.expressions import Method, constant_items, wrap
from tilewright.frontend.frame import Compilation, Frame, visit, visit_all, visits
from tilewright.frontend.python_calls import SPECIAL, call_python
from tilewright.frontend.scopes import Scope
from tilewright.frontend.source import source_of
from tilewright.frontend.structure import is_alike, is_same, leaves, name_leaves, parts_of, rebuild, type_text
from tilewright.ir.types import to_ir
from tilewright.language.library import ConstexprFunction
from tilewright.ops.builtin import BUILTINS, Builtin, is_number, to_tensor
from tilewright.ops.function import CallOp, FuncOp, ReturnOp
from tilewright.ops.values import constexpr, tensor, unwrap

Arguments = Sequence[Any]
_DEEPEST = 100
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
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            kwargs |= _named_arguments(frame, keyword.value, kwargs)
        else:
            kwargs[keyword.arg] = visit(frame, keyword.value)
    frame.at(node)
    return call_value(frame, fn, args, kwargs)


def _named_arguments(frame: Frame, node: ast.expr, before: Keywords) -> dict[str, Any]:
    """The arguments that ``**mapping`` stands for."""
    mapping = unwrap(visit(frame, node))
    if not isinstance(mapping, Mapping) or not all(isinstance(key, str) for key in mapping):
        raise frame.error(
            node,
            f"`**` takes a dictionary of names known at compile time, not {type_text(mapping)}",
            hint="name each argument, or pass on the `**` parameter of the function",
        )
    twice = next((key for key in mapping if key in before), None)
    if twice is not None:
        raise frame.error(node, f"argument `{twice}` is given twice")
    return {key: wrap(value) for key, value in mapping.items()}


def call_value(frame: Frame, fn: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Call any value that a kernel can call; the frame stands at the call."""
    if isinstance(fn, constexpr):
        fn = ConstexprFunction(fn.value) if isinstance(fn.value, types.FunctionType) else fn.value
    if isinstance(fn, functools.partial):  # a function of the language read from an instance: descriptor.load
        args, kwargs, fn = [*fn.args, *args], {**fn.keywords, **kwargs}, fn.func
    if isinstance(fn, Method):
        args, fn = [fn.receiver, *args], fn.fn
    if isinstance(fn, Builtin):
        return _call_builtin(frame, fn, args, kwargs)
    if isinstance(fn, BlockFunction):
        return call_block_function(frame, fn, args, kwargs)
    if isinstance(fn, Closure):
        return fn.call(frame, args, kwargs)
    if getattr(fn, "__triton_builtin__", False):  # a function of the language that somebody else has written
        return wrap(fn(*args, **kwargs, _semantic=frame.builder))
    special = SPECIAL.get(fn) if isinstance(fn, (type, types.BuiltinFunctionType)) else None
    if special is not None:
        return special(frame, *args, **kwargs)
    if isinstance(fn, dtype):
        return BUILTINS["cast"].fn(frame.builder, to_tensor(frame.builder, *args, **kwargs), fn)
    return call_python(frame, fn, args, kwargs)


def _call_builtin(frame: Frame, fn: Builtin, args: Arguments, kwargs: Keywords) -> Any:
    try:
        result = fn.fn(frame.builder, *args, **kwargs)
    except TypeError as error:
        if not fits(fn.signature, args, kwargs):
            raise bad_arguments(fn.__name__, fn.signature, args, kwargs, error) from error
        raise
    return wrap(result)


# --- block functions -----------------------------------------------------------------------------------------


def bind_arguments(fn: BlockFunction, args: Arguments, kwargs: Keywords) -> dict[str, Any]:
    """Parameter names to values, defaults included.

    Raises:
        LanguageTypeError: missing, extra or doubly given arguments.
    """
    try:
        bound = fn.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise bad_arguments(fn.fn.__name__, fn.signature, args, kwargs, error) from error
    bound.apply_defaults()
    return {name: wrap(value) for name, value in bound.arguments.items()}


def is_constexpr_parameter(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated ``tl.constexpr``."""
    annotation = parameter.annotation
    return annotation is constexpr or (isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr")


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
    active = frame.compilation.active
    if sum(other is fn for other, _ in active) >= _DEEPEST:
        raise LanguageTypeError(
            f"{fn.fn.__qualname__} calls itself {_DEEPEST} times, one call inside the other",
            hint="end the recursion with an `if` on a constexpr, or write a loop: each call is compiled anew",
        )
    for other, before in active:
        if other is fn and all(_same_kind(values[name], before[name]) for name in values):
            raise LanguageTypeError(
                f"{fn.fn.__qualname__} calls itself with arguments of the same types and constants",
                hint="recursion must end at compile time: pass a constexpr that changes, and test it with `if`",
            )


def _same_kind(a: Any, b: Any) -> bool:
    if isinstance(a, tensor) and isinstance(b, tensor):
        return bool(a.type == b.type)
    parts, others = parts_of(a), parts_of(b)
    if parts is not None and others is not None:
        return is_alike(a, b) and all(_same_kind(x, y) for x, y in zip(parts, others, strict=True))
    return is_same(a, b)


# --- functions of the module ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """A function of the module.

    Args:
        op: the function.
        values: parameter names to values; the tensors in them are its arguments.
        result: what it returns; the tensors in it are of the types that it returns.
    """

    op: FuncOp
    values: Mapping[str, Any]
    result: Any


def make_function(
    compilation: Compilation,
    fn: BlockFunction,
    values: Mapping[str, Any],
    symbol: str,
    *,
    caller: Frame | None = None,
    arg_attrs: Sequence[dict[str, Attribute]] | None = None,
) -> Made:
    """Build a function of the module.

    Args:
        compilation: where.
        fn: the block function.
        values: parameter names to values; only the types of the tensors in them count.
        symbol: name; a function without `caller` is public: the kernel.
        caller: the frame of the call for which it is made, for messages.
        arg_attrs: attributes of each argument.
    """
    builder = compilation.builder
    inputs = [leaf for value in values.values() for leaf in leaves(value)]
    op = FuncOp.build(
        symbol,
        [to_ir(leaf.type) for leaf in inputs],
        (),
        visibility="public" if caller is None else "private",
        noinline=fn.noinline,
        arg_attrs=arg_attrs,
    )
    compilation.functions.add_op(op)
    block = op.body.block
    arguments = iter([tensor(arg, leaf.type) for arg, leaf in zip(block.args, inputs, strict=True)])
    inside = {name: rebuild(value, arguments) for name, value in values.items()}
    for name, value in inside.items():
        name_leaves(value, name)
    outside, location = builder.position, builder.location
    builder.position = Position(block)
    frame = Frame(compilation, source_of(fn), caller, inline=False)
    op.location = frame.attribute(frame.source.tree)  # type: ignore[assignment]
    result = enter_function(frame, fn, inside)
    if caller is not None and isinstance(result, constexpr) and is_number(result):
        result = to_tensor(builder, result)
    outputs = leaves(result)
    builder.location = op.location
    builder.finish(ReturnOp, [leaf.handle for leaf in outputs])
    op.properties["function_type"] = FunctionType.from_lists(
        [arg.type for arg in block.args], [leaf.handle.type for leaf in outputs]
    )
    builder.position, builder.location = outside, location
    return Made(op, inside, result)


def _call_out_of_line(frame: Frame, fn: BlockFunction, values: dict[str, Any]) -> Any:
    """Call of the function made of `fn` for these types and constants."""
    for name, value in values.items():
        for leaf in leaves(value):
            if isinstance(leaf.type, BlockType):
                raise LanguageTypeError(
                    f"Function {fn.fn.__qualname__} is marked noinline, but was called with non-scalar argument "
                    f"{name}:{type_text(leaf)}",
                    hint="pass scalars and pointers, or let the function be inlined",
                )
    made = _made_for(frame, fn, values)
    operands = [leaf.handle for value in values.values() for leaf in leaves(value)]
    outputs = leaves(made.result)
    call = CallOp.make_call(made.op.symbol, operands, [leaf.handle.type for leaf in outputs])  # type: ignore[arg-type]
    frame.builder.append(call)
    results = iter([tensor(r, leaf.type) for r, leaf in zip(call.results, outputs, strict=True)])
    return constexpr(None) if made.result is NOTHING else rebuild(made.result, results)


def _made_for(frame: Frame, fn: BlockFunction, values: dict[str, Any]) -> Made:
    compilation = frame.compilation
    known: list[Made] = compilation.made.setdefault(fn, [])
    for made in known:
        if all(_same_kind(values[name], made.values[name]) for name in values):
            return made
    stem = re.sub(r"[^A-Za-z0-9_.$]", "_", f"{fn.fn.__module__}.{fn.fn.__qualname__}")
    symbol = "__".join([stem, "_".join(_mangle(value) for value in values.values())])
    while symbol in compilation.symbols:
        symbol += "_"
    compilation.symbols.add(symbol)
    made = make_function(compilation, fn, values, symbol, caller=frame)
    known.append(made)
    return made


def _mangle(value: Any) -> str:
    """Text of an argument's type in the symbol of a function."""
    if isinstance(value, tensor):
        element = value.dtype
        text = f"P{_mangle_scalar(element.element_ty)}" if isinstance(element, PointerType) else _mangle_scalar(element)
        return text + (f"S{'_'.join(map(str, value.block_shape))}S" if value.block_shape else "")
    parts = parts_of(value)
    if parts is not None:
        return f"T{'_'.join(_mangle(part) for part in parts)}T"
    return "c" + re.sub(r"[^A-Za-z0-9_]", "_", str(unwrap(value)))


def _mangle_scalar(type_: Any) -> str:
    return str(getattr(type_, "signature", type_)).replace("*", "P")
