"""Python's own functions and classes, called in a kernel.

On compile-time values they run as Python; a few (`min`, `max`, `abs`, `print`) have a counterpart in the language
for tensors. Everything else that is not written in the block language is refused.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType, PointerType, Type
from tilewright.base.errors import LanguageTypeError, LanguageValueError
from tilewright.base.naming import home_of
from tilewright.frontend.advice import NO_SHAPE, call_hint
from tilewright.frontend.expressions import attribute, static_items, wrap
from tilewright.frontend.frame import Frame
from tilewright.frontend.iteration import SEQUENCE_FUNCTIONS
from tilewright.frontend.records import record_fields
from tilewright.frontend.structure import is_static, leaves, type_text
from tilewright.language.aggregate import KERNEL_FUNCTIONS
from tilewright.ops.builtin import BUILTINS
from tilewright.ops.control import condition, static_range
from tilewright.ops.control import range as run_time_range
from tilewright.ops.values import constexpr, tensor, unwrap

_MATH = frozenset(f for f in vars(math).values() if isinstance(f, types.BuiltinFunctionType))


def _language(frame: Frame, name: str, *args: Any, **kwargs: Any) -> Any:
    return wrap(BUILTINS[name].fn(frame.builder, *args, **kwargs))


def _extreme(name: str, python: Callable[..., Any]) -> Callable[..., Any]:
    def call(frame: Frame, *args: Any) -> Any:
        values = list(args[0]) if len(args) == 1 and isinstance(args[0], builtins.tuple) else list(args)
        if all(is_static(v) for v in values):
            result = python(*(unwrap(v) for v in values)) if len(values) > 1 else unwrap(*values)
            if isinstance(result, float):
                _check_order(python.__name__, [unwrap(v) for v in values])
            return wrap(result)
        result = values[0]
        for value in values[1:]:
            result = BUILTINS[name].fn(frame.builder, result, value)
        return result

    return call


def _check_order(name: str, values: Sequence[Any]) -> None:
    """Raise LanguageValueError for what Python and the language put in another order."""
    for value in values:
        if value != value or (value == 0 and math.copysign(1.0, value) < 0):
            raise LanguageValueError(
                f"{name}() of constants does not take {'NaN' if value else '-0.0'}",
                hint=f"leave it out, or write tl.{name}imum, which says what becomes of it",
            )


def _abs(frame: Frame, value: Any) -> Any:
    return _language(frame, "abs", value) if isinstance(value, tensor) else wrap(abs(unwrap(value)))


def _number(python: Any) -> Callable[..., Any]:
    """`int(x)` and the like: of constants only."""

    def call(frame: Frame, *args: Any) -> Any:
        if not all(is_static(a) for a in args):
            target = {int: "tl.int32", float: "tl.float32", bool: "tl.int1"}.get(python, "tl.int32")
            raise LanguageTypeError(
                f"{python.__name__}() takes compile-time values only, not {', '.join(type_text(a) for a in args)}",
                hint=f"convert a tensor with .to({target})",
            )
        return wrap(python(*(unwrap(a) for a in args)))

    return call


def _len(frame: Frame, value: Any) -> Any:
    if isinstance(value, tensor):
        hint = NO_SHAPE if value.type.is_ptr() else "use x.shape[0] or x.numel"
        raise LanguageTypeError(f"len() of a tensor of type {value.type}", hint=hint)
    items = static_items(value, counted=True)
    return constexpr(len(unwrap(value) if items is None else list(items)))


def _isinstance(frame: Frame, value: Any, classes: Any) -> Any:
    flat = unwrap(classes)
    flat = tuple(flat) if isinstance(flat, (builtins.tuple, list)) else (flat,)
    if constexpr in flat and isinstance(value, constexpr):
        return constexpr(True)
    rest = tuple(c for c in flat if c is not constexpr)
    held = value if isinstance(value, builtins.tuple) else unwrap(value)
    return constexpr(isinstance(held, rest))


def _getattr(frame: Frame, value: Any, name: Any, *default: Any) -> Any:
    try:
        return attribute(frame, frame.node, value, unwrap(name))
    except LanguageTypeError:
        if default:
            return default[0]
        raise


def _hasattr(frame: Frame, value: Any, name: Any) -> Any:
    try:
        attribute(frame, frame.node, value, unwrap(name))
    except LanguageTypeError:
        return constexpr(False)
    return constexpr(True)


def _print(frame: Frame, *args: Any, **kwargs: Any) -> Any:
    return _language(frame, "device_print", *args, **kwargs)


def _type(frame: Frame, value: Any) -> Any:
    return value.type if isinstance(value, tensor) else type(unwrap(value))


def _make(cls: type) -> Callable[..., Any]:
    """Construct a marker or a type of the language."""

    def call(frame: Frame, *args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)

    return call


def _make_type(cls: type) -> Callable[..., Any]:
    def call(frame: Frame, *args: Any, **kwargs: Any) -> Any:
        return cls(*(unwrap(a) for a in args), **{k: unwrap(v) for k, v in kwargs.items()})

    return call


SPECIAL: dict[Any, Callable[..., Any]] = {
    len: _len, isinstance: _isinstance, getattr: _getattr, hasattr: _hasattr, print: _print, type: _type, abs: _abs,
    min: _extreme("minimum", min), max: _extreme("maximum", max), int: _number(int), float: _number(float),
    bool: _number(bool), str: _number(str), round: _number(round), divmod: _number(divmod), repr: _number(repr),
    pow: _number(pow), callable: _number(callable), issubclass: _number(issubclass), slice: _make(slice),
    **SEQUENCE_FUNCTIONS,
    range: _make(run_time_range), run_time_range: _make(run_time_range), static_range: _make(static_range),
    condition: _make(condition), constexpr: _make(constexpr), PointerType: _make_type(PointerType),
    BlockType: _make_type(BlockType), dtypes.dtype: _make_type(dtypes.dtype),
}  # fmt: skip


def call_python(frame: Frame, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call something that is not of the block language.

    Classes of named tuples and records take any values; methods of constants, and the functions of `math`, constants.

    Raises:
        LanguageTypeError: not callable in a kernel.
    """
    owner = getattr(fn, "__self__", None)
    if _takes_any(fn) or _takes_any(owner) or (hasattr(type(owner), "_fields") and fn.__name__ == "_replace"):
        return fn(*args, **kwargs, **_emitter_for(frame, fn))
    method = owner is not None and not isinstance(owner, (types.ModuleType, tensor))
    marked = getattr(fn, "is_constexpr_function", False) or _is_ours(fn)
    if method or marked or (isinstance(fn, types.BuiltinFunctionType) and fn in _MATH) or isinstance(fn, type):
        dynamic = [v for v in (*args, *kwargs.values()) if leaves(v)]
        if not dynamic:
            return wrap(fn(*(unwrap(a) for a in args), **{k: unwrap(v) for k, v in kwargs.items()}))
        raise LanguageTypeError(
            f"{_name(fn)} takes compile-time values only, not {', '.join(type_text(v) for v in dynamic)}",
            hint=call_hint(fn),
        )
    if isinstance(fn, types.FunctionType):
        raise LanguageTypeError(
            f"Unsupported function referenced: {_name(fn)} is a plain Python function",
            hint=call_hint(fn),
        )
    what = type_text(fn) if isinstance(fn, (tensor, builtins.tuple, Type)) else _written(frame) or _name(fn)
    raise LanguageTypeError(f"{what} cannot be called in a kernel", hint=call_hint(fn))


def _is_ours(fn: Any) -> bool:
    """Whether it is a plain function of the language's own modules, such as `tl.core.get_int_dtype`."""
    return isinstance(fn, types.FunctionType) and home_of(fn).startswith("tilewright.")


def _written(frame: Frame) -> str:
    """How the function of the call at which the frame stands is written."""
    return ast.unparse(frame.node.func) if isinstance(frame.node, ast.Call) else ""


def _takes_any(fn: Any) -> bool:
    """Whether a Python callable takes kernel values of any kind: it makes or copies a named tuple or record."""
    if isinstance(fn, type):
        return (issubclass(fn, builtins.tuple) and hasattr(fn, "_fields")) or record_fields(fn) is not None
    return fn is dataclasses.replace or (isinstance(fn, types.FunctionType) and fn in KERNEL_FUNCTIONS)


def _emitter_for(frame: Frame, fn: Any) -> dict[str, Any]:
    """The keyword by which the constructor of a record gets the emitter, if it has it."""
    if not isinstance(fn, type) or record_fields(fn) is None:
        return {}
    return {"_semantic": frame.builder} if "_semantic" in inspect.signature(fn).parameters else {}


def _name(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", None) or repr(fn))
