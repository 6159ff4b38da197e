"""The entry point of the front end: a block function and the types of its parameters become a module of tile IR.

    @jit                              module {
def add(x, y, n, B: constexpr)      tt.func public @add(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32) { ... }
                                  }
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Attribute

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.base.errors import ArgumentError, CompilationError
from tilewright.base.location import Location
from tilewright.base.options import Options
from tilewright.base.stack import deep_calls
from tilewright.base.target import Target
from tilewright.frontend import loops, match, statements  # noqa: F401  (register their visitors)
from tilewright.frontend.builder import IRBuilder
from tilewright.frontend.calls import call_value, make_function
from tilewright.frontend.exits import NOTHING
from tilewright.frontend.expressions import wrap
from tilewright.frontend.frame import Compilation
from tilewright.frontend.records import RecordParts
from tilewright.frontend.source import source_of
from tilewright.frontend.structure import type_text
from tilewright.ir.types import i32
from tilewright.language import names as _language  # noqa: F401  (defines functions and methods)
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """What is known of one parameter when a kernel is compiled.

    Args:
        name: name of the parameter.
        value: a language type for a run-time argument; a `constexpr` for a compile-time one; a tuple of these
            for a tuple argument.
        attrs: facts about a run-time argument, e.g. ``{"divisibility": 16}``; for a tuple argument, one
            mapping per run-time value in it, in order.
    """

    name: str
    value: Any
    attrs: Mapping[str, int] | Sequence[Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeParam:
    """A parameter of the finished kernel.

    Args:
        name: name of the Python parameter; parts of tuples are ``name.0``, ``name.1``, ...
        type: language type.
        attrs: what the caller promised about it.
    """

    name: str
    type: Any
    attrs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A kernel as tile IR.

    Args:
        module: the module; its public function is the kernel.
        name: symbol of the kernel.
        params: run-time parameters in order.
        warnings: what the compiler wants to say to the user, with places.
    """

    module: ModuleOp
    name: str
    params: tuple[RuntimeParam, ...]
    warnings: tuple[str, ...] = ()


def build_module(
    fn: BlockFunction,
    signature: Sequence[ParamSpec],
    options: Options,
    target: Target,
    name: str = "",
    *,
    keeps_promises: bool = False,
) -> BuiltKernel:
    """Compile a block function to tile IR.

    Args:
        fn: the kernel.
        signature: one entry per parameter, in order.
        options: compile options.
        target: what is compiled for.
        name: symbol of the kernel; default is the name of the function.
        keeps_promises: hints become operations (`tt.promise`), for who checks them.

    Raises:
        CompilationError: the kernel is wrong; the error points into its source.
        ArgumentError: `signature` does not fit the parameters of `fn`.
        LanguageValueError: the source of the kernel cannot be read.
    """
    source = source_of(fn)
    names = list(fn.signature.parameters)
    if [p.name for p in signature] != names:
        raise ArgumentError(
            f"{fn.fn.__name__} has parameters {names}, the signature names {[p.name for p in signature]}"
        )
    module = ModuleOp([])
    builder = IRBuilder(target, options)
    builder.keeps_promises = keeps_promises
    compilation = Compilation(builder, module.body.block)
    symbol = name or fn.fn.__name__
    compilation.symbols.add(symbol)
    messages: list[str] = []
    builder.caller = lambda callee, args, kwargs: call_value(_innermost(compilation), callee, args, kwargs)
    builder.on_warning = lambda text: messages.append(_located_warning(compilation, text))
    params: list[RuntimeParam] = []
    values = {p.name: _parameter(p.name, p.value, _attr_list(p), params) for p in signature}
    attributes = [{f"tt.{k}": _int(v) for k, v in p.attrs.items()} for p in params]
    try:
        with deep_calls():
            made = make_function(compilation, fn, values, symbol, arg_attrs=attributes)
    except CompilationError as error:
        _mention_arrays(error, signature)
        raise error.with_traceback(None) from error.__cause__
    if made.result is not NOTHING:
        raise CompilationError(
            f"a kernel returns nothing, but {fn.fn.__name__} returns {type_text(made.result)}",
            source.location(_returns(source.tree)),
            hint="store results through a pointer parameter with tl.store",
        )
    return BuiltKernel(module, symbol, tuple(params), tuple(messages))


def _returns(tree: ast.FunctionDef) -> ast.AST:
    """The statement by which a function returns something."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None)
    return next(found, tree)


def _innermost(compilation: Compilation) -> Any:
    assert compilation.frame is not None
    return compilation.frame


def _mention_arrays(error: CompilationError, signature: Sequence[ParamSpec]) -> None:
    """Have the hint of an error name parameters for constants that were given arrays: nothing is done with those."""
    given = {p.name: unwrap(p.value) for p in signature if isinstance(p.value, constexpr)}
    arrays = [
        name
        for name, value in given.items()
        if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, (type, np.generic))
    ]
    if not arrays:
        return
    inner = error
    while not inner.message and isinstance(inner.__cause__, CompilationError):
        inner = inner.__cause__
    names = " and ".join(f"`{name}`" for name in arrays)
    verb = "is" if len(arrays) == 1 else "are"
    inner.hint = (
        f"{names} {verb} annotated tl.constexpr and got an array: leave that off and load from it with tl.load, "
        "or pass a number of it, x.item()"
    )


def _located_warning(compilation: Compilation, text: str) -> str:
    frame = _innermost(compilation)
    place: Location = frame.location(frame.node)
    return f"{place.file}:{place.line}: {text}"


def _int(value: int) -> Attribute:
    return IntegerAttr(value, i32)


def _attr_list(spec: ParamSpec) -> list[Mapping[str, int]]:
    return [spec.attrs] if isinstance(spec.attrs, Mapping) else list(spec.attrs)


def _parameter(name: str, value: Any, attrs: list[Mapping[str, int]], params: list[RuntimeParam]) -> Any:
    """The kernel value of a parameter; its run-time parts are appended to `params`."""
    if isinstance(value, Type):
        params.append(RuntimeParam(name, value, attrs.pop(0) if attrs else {}))
        return tensor(None, value)  # type: ignore[arg-type]
    if isinstance(value, tuple):
        parts = [_parameter(f"{name}.{i}", part, attrs, params) for i, part in enumerate(value)]
        if isinstance(value, RecordParts):
            return type(value)(parts).record()
        make = getattr(type(value), "_make", None)
        return tile_tuple(parts) if make is None else make(parts)
    return value if isinstance(value, constexpr) else wrap(value)
