"""Expressions of a kernel: names, literals, operators, comparisons, indexing, formatting.

A value is a tensor, a `constexpr`, a tuple of values, or a Python object that needs no wrapping
(a data type, a module, a function). Arithmetic on constants is Python's own; as soon as a tensor
takes part, the operators of `ops/` build operations.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.base import dtypes
from tilewright.base.callable import BlockFunction
from tilewright.base.errors import LanguageTypeError, LanguageValueError
from tilewright.base.naming import home_of
from tilewright.frontend import advice
from tilewright.frontend.frame import Frame, visit, visits
from tilewright.frontend.records import record_fields
from tilewright.frontend.scopes import lookup
from tilewright.frontend.structure import leaves, name_leaves, parts_of, same_constant, type_text
from tilewright.ops.builtin import BUILTINS, METHODS, Builtin, to_tensor
from tilewright.ops.control import range as run_time_range
from tilewright.ops.control import static_range
from tilewright.ops.functions import operators
from tilewright.ops.functions.subscript import subscript, with_item
from tilewright.ops.value_types import type_of
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple

_PLAIN = (bool, int, float, str, type(None))


def wrap(value: Any) -> Any:
    """A Python value as a kernel value: numbers, text and None become constexprs, sequences tuples."""
    if isinstance(value, _PLAIN):
        return constexpr(value)
    if type(value) in (builtins.tuple, list):
        return tile_tuple([wrap(v) for v in value])
    return constexpr(value.item()) if isinstance(value, np.generic) else value


# --- names and literals ------------------------------------------------------------------------------


@visits(ast.Constant)
def _constant(frame: Frame, node: ast.Constant) -> Any:
    if isinstance(node.value, (complex, bytes)):
        hint = "keep real and imaginary parts apart" if isinstance(node.value, complex) else "write a text"
        kind = type(node.value).__name__
        raise frame.unsupported(node, f"a literal of type {kind} is not supported in a kernel", hint=hint)
    return ... if node.value is ... else constexpr(node.value)


@visits(ast.Name)
def _name(frame: Frame, node: ast.Name) -> Any:
    found = frame.scope.values.get(node.id)
    return found if found is not None else wrap(lookup(frame.scope, frame.source, node.id))


@visits(ast.Tuple, ast.List)
def _sequence(frame: Frame, node: ast.Tuple | ast.List) -> Any:
    parts: list[Any] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            parts.extend(constant_items(frame, item.value))
        else:
            parts.append(visit(frame, item))
    return tile_tuple(parts)


_MOST = 100_000  # items of a loop that is unrolled: each takes about a millisecond


def _listed(items: builtins.range) -> builtins.range:
    """`items`, if they can be gone through while a kernel is compiled."""
    if items[_MOST:]:
        raise LanguageValueError(
            f"{items} has more than {_MOST:,} values, which would be unrolled one by one",
            hint="a `for` over range(n) or tl.range(n) counts at run time",
        )
    return items


def static_items(value: Any, *, counted: bool = False) -> Iterable[Any] | None:
    """The items of a compile-time sequence; `None` for what is none.

    Args:
        value: a kernel value.
        counted: take ``range(...)`` of constants, which a `for` statement runs over at run time.

    Raises:
        LanguageValueError: a range of very many items.
    """
    if isinstance(value, static_range):
        return _listed(builtins.range(value.start, value.end, value.step))
    if isinstance(value, run_time_range):
        bounds = [unwrap(v) for v in (value.start, value.end, value.step)]
        return _listed(builtins.range(*bounds)) if counted and all(isinstance(v, int) for v in bounds) else None
    if isinstance(value, builtins.tuple):
        return value
    held = unwrap(value)
    return held if isinstance(held, (builtins.tuple, list, builtins.range, str, dict)) else None


def constant_items(frame: Frame, node: ast.AST) -> Sequence[Any]:
    """The items of a tuple expression, which must have a length known at compile time."""
    value = visit(frame, node)
    items = static_items(value, counted=True)
    if items is None:
        raise frame.error(
            node,
            f"a tuple is needed here, not {type_text(value)}",
            hint="only tuples, and other sequences known at compile time, can be unpacked or looped over",
        )
    return [wrap(v) for v in items]


@visits(ast.Dict)
def _dict(frame: Frame, node: ast.Dict) -> Any:
    """A dictionary with compile-time keys: named arguments, or options."""
    made: dict[Any, Any] = {}
    for key, item in zip(node.keys, node.values, strict=True):
        value = visit(frame, item)
        if key is None:
            if not isinstance(unwrap(value), dict):
                raise frame.error(item, f"`**` takes a dictionary, not {type_text(value)}")
            made |= unwrap(value)
            continue
        name = visit(frame, key)
        if leaves(name):
            raise frame.error(key, f"the keys of a dictionary are compile-time values, not {type_text(name)}")
        made[unwrap(name)] = value
    return made


@visits(ast.NamedExpr)
def _walrus(frame: Frame, node: ast.NamedExpr) -> Any:
    return assign_name(frame, node.target, node, visit(frame, node.value))


def assign_name(frame: Frame, target: ast.Name, origin: ast.AST, value: Any) -> Any:
    """Plain assignment of what the expression `origin` gave to a name; the result is what the name holds then."""
    name, scope = target.id, frame.scope
    if name in scope.pending:  # declared as constexpr on an earlier line
        scope.pending.discard(name)
        scope.constants[name] = target
    else:
        value = decay(frame, origin, value)
        if scope.constants:
            scope.constants.pop(name, None)
    scope.bind(name, value)
    name_leaves(value, name)
    return value


def truth_of(frame: Frame, value: Any) -> Any:
    """Whether a value counts as true: a Python bool, or an int1 tensor."""
    if not isinstance(value, tensor):
        return bool(unwrap(value))
    if value.dtype == dtypes.int1:
        return value
    return BUILTINS["cast"].fn(frame.builder, value, dtypes.int1)


def decay(frame: Frame, node: ast.AST, value: Any) -> Any:
    """What plain assignment stores: numbers become tensors, tuples item by item; the rest stays."""
    if isinstance(value, tensor):
        return value
    if isinstance(value, constexpr):
        if isinstance(value.value, (bool, int, float)):
            frame.at(node)
            return to_tensor(frame.builder, value)
        return value
    if type(value) is tile_tuple:
        return tile_tuple([decay(frame, node, part) for part in value])
    return value


# --- operators ------------------------------------------------------------------------------------------

_PYTHON: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.USub: "-",
    ast.UAdd: "+", ast.Invert: "~", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


@visits(ast.BinOp)
def _binary(frame: Frame, node: ast.BinOp) -> Any:
    left, right = visit(frame, node.left), visit(frame, node.right)
    return binary(frame, node, node.op, left, right)


def binary(frame: Frame, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
    """``left op right``; `node` is the place."""
    kind = type(op)
    if isinstance(left, tensor) or isinstance(right, tensor):
        builtin = operators.BINARY.get(kind)
        if builtin is None or not _is_operand(left) or not _is_operand(right):
            raise _no_operator(kind, left, right)
        frame.at(node)
        return builtin.fn(frame.builder, left, right)
    return _static(kind, left, right)


def _is_operand(value: Any) -> bool:
    return isinstance(value, tensor) or isinstance(unwrap(value), (bool, int, float))


def _no_operator(kind: type[ast.AST], *operands: Any) -> LanguageTypeError:
    kinds = " and ".join(f"'{type_text(v)}'" for v in operands)
    of_kind = advice.power_hint(operands[-1]) if kind is ast.Pow else advice.OPERATORS.get(kind)
    hint = advice.operand_hint(operands) or of_kind
    return LanguageTypeError(f"unsupported operand type(s) for {_SIGNS.get(kind, kind.__name__)}: {kinds}", hint=hint)


def _static(kind: type[ast.AST], *operands: Any) -> Any:
    """An operator on compile-time values, as Python computes it."""
    if any(leaves(v) for v in operands) and not all(isinstance(v, builtins.tuple) for v in operands):
        kind_of_tuple = kind is ast.Mult or kind in (ast.Eq, ast.NotEq)
        if not kind_of_tuple:
            raise _no_operator(kind, *operands)
    if kind not in _PYTHON:
        raise _no_operator(kind, *operands)
    if kind is not ast.Add and kind is not ast.Mult and any(leaves(v) for v in operands):
        raise LanguageTypeError(
            f"{_SIGNS[kind]} of tuples takes compile-time values only", hint="compare the items: a[0] == b[0]"
        )
    advice.refuse_functions(_SIGNS[kind], operands)
    values = [v if isinstance(v, builtins.tuple) else unwrap(v) for v in operands]
    if kind in (ast.Eq, ast.NotEq) and isinstance(values[0], builtins.tuple):
        values = [unwrap(v) for v in values]
    try:
        return wrap(_PYTHON[kind](*values))
    except ArithmeticError as error:
        raise LanguageValueError(f"{error} in a compile-time expression") from error


@visits(ast.UnaryOp)
def _unary(frame: Frame, node: ast.UnaryOp) -> Any:
    value = visit(frame, node.operand)
    kind = type(node.op)
    if isinstance(value, tensor):
        frame.at(node)
        if kind is ast.UAdd:
            return value
        return operators.UNARY[kind].fn(frame.builder, value)
    if kind is ast.Not:
        return constexpr(not unwrap(value))
    return _static(kind, value)


@visits(ast.Compare)
def _compare(frame: Frame, node: ast.Compare) -> Any:
    """Comparisons; ``a < b < c`` is ``a < b and b < c`` with `b` computed once."""
    result: Any = None
    left = visit(frame, node.left)
    advice.warn_of_precedence(frame, node)
    for op, item in zip(node.ops, node.comparators, strict=True):
        right = visit(frame, item)
        part = compare(frame, node, op, left, right)
        result = part if result is None else _conjunction(frame, node, result, part)
        if isinstance(result, constexpr) and not result.value:
            return result
        left = right
    return result


def _conjunction(frame: Frame, node: ast.AST, a: Any, b: Any) -> Any:
    if isinstance(a, tensor) and isinstance(b, tensor):
        frame.at(node)
        return BUILTINS["logical_and"].fn(frame.builder, a, b)
    if isinstance(a, tensor):
        return a if b.value else b
    return b if a.value else a


def compare(frame: Frame, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
    """``left op right`` for one comparison operator."""
    kind = type(op)
    if kind in (ast.Is, ast.IsNot):
        a, b = unwrap(left), unwrap(right)
        same = a is b or (not isinstance(a, tensor) and a is not None and b is not None and same_constant(a, b))
        return constexpr(same is (kind is ast.Is))
    if isinstance(left, tensor) or isinstance(right, tensor):
        builtin = operators.COMPARE.get(kind)
        if builtin is None or not _is_operand(left) or not _is_operand(right):
            raise _no_operator(kind, left, right)
        frame.at(node)
        return builtin.fn(frame.builder, left, right)
    if kind in (ast.In, ast.NotIn):
        return constexpr((unwrap(left) in unwrap(right)) is (kind is ast.In))
    return _static(kind, left, right)


@visits(ast.BoolOp)
def _bool_op(frame: Frame, node: ast.BoolOp) -> Any:
    """``and``/``or``: constants decide as in Python, tensors are combined, all of them evaluated."""
    conjunction = isinstance(node.op, ast.And)
    combine = BUILTINS["logical_and"] if conjunction else BUILTINS["logical_or"]
    result: Any = None
    for item in node.values:
        value = visit(frame, item)
        if isinstance(value, tensor):
            if isinstance(result, tensor):
                frame.at(node)
                value = combine.fn(frame.builder, result, value)
            result = value
        elif bool(unwrap(value)) is not conjunction:
            return value
        elif not isinstance(result, tensor):
            result = value
    return result


# --- attributes, indexing ---------------------------------------------------------------------------------


class Method:
    """A function of the language bound to a tensor: ``x.to``, ``x.sum``."""

    __slots__ = ("fn", "receiver")

    def __init__(self, fn: Any, receiver: Any) -> None:
        self.fn = fn
        self.receiver = receiver


@visits(ast.Attribute)
def _attribute(frame: Frame, node: ast.Attribute) -> Any:
    return attribute(frame, node, visit(frame, node.value), node.attr)


def attribute(frame: Frame, node: ast.AST, value: Any, name: str) -> Any:
    """``value.name``."""
    if isinstance(value, tensor):
        return _tensor_attribute(frame, node, value, name)
    if name == "type" and isinstance(value, (constexpr, builtins.tuple)) and not hasattr(unwrap(value), "type"):
        return type_of(value)
    if isinstance(value, constexpr) and name != "value":
        value = value.value
    member = _member(value, name)
    if isinstance(member, property):
        frame.at(node)
        return wrap(frame.builder.call(Method(inlined(member.fget), value), ()))
    if isinstance(member, staticmethod):
        return _compiled(member.__func__)
    if isinstance(member, classmethod):
        return Method(_compiled(member.__func__), value if isinstance(value, type) else type(value))
    if member is not None:
        return member if isinstance(value, type) else Method(member, value)
    try:
        found = getattr(value, name)
    except AttributeError:
        written = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
        what = written if written and not written[0].isdigit() else type_text(value)
        raise LanguageTypeError(f"{what} has no attribute '{name}'", hint=advice.attribute_hint(value, name)) from None
    return wrap(found)


def _member(value: Any, name: str) -> Any:
    """A method of a record, named tuple or other object that is compiled into the kernel, or a property of one.

    Args:
        value: the object, or its class.
        name: of the method.
    """
    if isinstance(value, types.ModuleType):
        return None
    cls = value if isinstance(value, type) else type(value)
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, BlockFunction) and cls is not value:
        return found
    has_parts = _is_record_class(cls) if cls is value else parts_of(value) is not None
    if home_of(cls).startswith(("tilewright.", "builtins")) or not has_parts:
        return None
    if isinstance(found, (staticmethod, classmethod)):
        return found if isinstance(found.__func__, (types.FunctionType, BlockFunction)) else None
    if isinstance(found, property):
        return None if cls is value else found
    is_method = isinstance(found, types.FunctionType) and not name.startswith("_")
    return inlined(found) if is_method else None


def _is_record_class(cls: type) -> bool:
    """Whether instances of a class are taken apart in a kernel."""
    return record_fields(cls) is not None or (issubclass(cls, builtins.tuple) and hasattr(cls, "_fields"))


def _compiled(fn: Any) -> Any:
    return inlined(fn) if isinstance(fn, types.FunctionType) else fn


def _item_getter(value: Any) -> BlockFunction | None:
    """The method of a record that ``record[index]`` calls."""
    if isinstance(value, (builtins.tuple, dict)) or parts_of(value) is None:
        return None
    found = inspect.getattr_static(type(value), "__getitem__", None)
    if isinstance(found, types.FunctionType):
        return inlined(found)
    return found if isinstance(found, BlockFunction) else None


@functools.cache
def inlined(fn: Any) -> BlockFunction:
    """A plain Python function, a method of a record, as a block function."""
    return BlockFunction(fn)


def _tensor_attribute(frame: Frame, node: ast.AST, value: tensor, name: str) -> Any:
    method = METHODS.get(name)
    if method is not None:
        return Method(method, value)
    if name == "T":
        frame.at(node)
        return METHODS["trans"].fn(frame.builder, value)
    if name.startswith("_") or name in ("block_shape", "handle") or not hasattr(value, name):
        raise LanguageTypeError(
            f"a tensor of type {value.type} has no attribute '{name}'", hint=advice.tensor_hint(name)
        )
    shared = getattr(tensor, name)  # library functions of the language are attributes of the class
    return Method(shared, value) if isinstance(shared, (BlockFunction, Builtin)) else wrap(getattr(value, name))


@visits(ast.Slice)
def _slice(frame: Frame, node: ast.Slice) -> Any:
    parts = (None if p is None else unwrap(visit(frame, p)) for p in (node.lower, node.upper, node.step))
    return slice(*parts)


@visits(ast.Subscript)
def _subscript(frame: Frame, node: ast.Subscript) -> Any:
    value = visit(frame, node.value)
    index = visit(frame, node.slice)
    if isinstance(value, tensor):
        frame.at(node)
        return subscript.fn(frame.builder, value, index)
    getter = _item_getter(value)
    if getter is not None:
        frame.at(node)
        return wrap(frame.builder.call(Method(getter, value), (index,)))
    if leaves(index):
        raise LanguageTypeError(
            f"a tuple index must be a compile-time constant, not {type_text(index)}",
            hint="unroll the loop with tl.static_range so that its counter is a constant",
        )
    holder = value if isinstance(value, builtins.tuple) else unwrap(value)
    if isinstance(holder, BlockFunction):
        raise LanguageTypeError(
            f"{holder.fn.__name__}[...] launches a kernel, which a kernel cannot do",
            hint=f"call it as a function, {holder.fn.__name__}(...): it runs in the same program",
        )
    if not hasattr(type(holder), "__getitem__"):
        raise LanguageTypeError(f"{type_text(value)} cannot be indexed")
    try:
        return wrap(holder[index if isinstance(index, slice) else unwrap(index)])
    except (IndexError, KeyError) as error:
        said, shapeless = f"index {unwrap(index)!r} is out of range for {type_text(value)}", holder == ()
        raise LanguageValueError(said, hint=advice.NO_SHAPE if shapeless else None) from error


# --- comprehensions, text -----------------------------------------------------------------------------------


@visits(ast.ListComp, ast.GeneratorExp)
def _comprehension(frame: Frame, node: ast.ListComp | ast.GeneratorExp) -> Any:
    """A comprehension over constants, as a tuple; its variables are its own."""
    saved = frame.scope
    frame.scope = saved.copy()
    results: list[Any] = []
    _comprehend(frame, node, 0, results)
    frame.scope = saved
    return tile_tuple(results)


def _comprehend(frame: Frame, node: ast.ListComp | ast.GeneratorExp, depth: int, results: list[Any]) -> None:
    if depth == len(node.generators):
        results.append(visit(frame, node.elt))
        return
    generator = node.generators[depth]
    for item in constant_items(frame, generator.iter):
        bind_target(frame, generator.target, item)
        if all(_static_filter(frame, test) for test in generator.ifs):
            _comprehend(frame, node, depth + 1, results)


def _static_filter(frame: Frame, test: ast.expr) -> bool:
    value = visit(frame, test)
    if isinstance(value, tensor):
        raise frame.error(
            test,
            f"the condition of a comprehension must be a compile-time constant, not {type_text(value)}",
            hint="the length of a tuple is fixed when the kernel is compiled; use tl.where on the values instead",
        )
    return bool(unwrap(value))


def bind_target(frame: Frame, target: ast.AST, value: Any) -> None:
    """Assign `value`, as it is, to a name or to a (nested) tuple of names."""
    if isinstance(target, ast.Name):
        frame.scope.bind(target.id, value)
        name_leaves(value, target.id)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item, part in zip(target.elts, unpacked(frame, target, value), strict=True):
            bind_target(frame, item.value if isinstance(item, ast.Starred) else item, part)
    elif isinstance(target, ast.Attribute):
        raise frame.unsupported(
            target,
            "Attribute assignment is not supported",
            hint="assign to a name, or make a changed copy: tl.aggregate_replace(x, field=...), x._replace(field=...)",
        )
    elif isinstance(target, ast.Subscript):
        _assign_part(frame, target, value)
    else:
        raise frame.unsupported(target, f"unsupported assignment target: {type(target).__name__}")


def _assign_part(frame: Frame, target: ast.Subscript, value: Any) -> None:
    """``x[index] = value``: the variable `x` stands for a new tile from now on."""
    if not isinstance(target.value, ast.Name):
        raise frame.unsupported(
            target,
            "only a part of a variable can be assigned",
            hint="give the tile a name, and assign to a part of that",
        )
    name = target.value.id
    holder = visit(frame, ast.copy_location(ast.Name(name, ast.Load()), target.value))
    index = visit(frame, target.slice)
    frame.at(target)
    if not isinstance(holder, tensor):
        raise frame.unsupported(
            target,
            f"assignment to an item of {type_text(holder)} is not supported",
            hint=f"kernel tuples and lists do not change; make a new one, e.g. {name}[:1] + (value,) + {name}[2:]",
        )
    frame.scope.bind(name, with_item.fn(frame.builder, holder, index, value))


def unpacked(frame: Frame, target: ast.Tuple | ast.List, value: Any) -> Sequence[Any]:
    """The values of the targets in a tuple of targets; a starred one gets a tuple."""
    star = next((n for n, item in enumerate(target.elts) if isinstance(item, ast.Starred)), None)
    names = len(target.elts)
    items = static_items(value, counted=True)
    if items is None:
        raise frame.error(target, f"cannot unpack {type_text(value)} into {names} names", "only tuples are unpacked")
    parts = [wrap(part) for part in items]
    if star is not None:
        if len(parts) < names - 1:
            problem = f"not enough values to unpack (expected at least {names - 1}, got {len(parts)})"
            raise frame.error(target, problem)
        end = len(parts) - (names - 1 - star)
        return [*parts[:star], tile_tuple(parts[star:end]), *parts[end:]]
    if len(parts) != names:
        problem = "too many values" if len(parts) > names else "not enough values"
        detail = f"(expected {names})" if len(parts) > names else f"(expected {names}, got {len(parts)})"
        raise frame.error(target, f"{problem} to unpack {detail}")
    return parts


_CONVERSIONS: dict[int, Callable[[Any], Any]] = {-1: lambda value: value, 115: str, 114: repr, 97: ascii}


@visits(ast.JoinedStr)
def _joined(frame: Frame, node: ast.JoinedStr) -> Any:
    return constexpr("".join(str(unwrap(visit(frame, part))) for part in node.values))


@visits(ast.FormattedValue)
def _formatted(frame: Frame, node: ast.FormattedValue) -> Any:
    value = visit(frame, node.value)
    if leaves(value):
        raise frame.error(
            node.value,
            "Cannot evaluate f-string containing non-constexpr conversion values, "
            f"found conversion of type {type_text(value)}",
            hint="show run-time values with tl.device_print",
        )
    constant = unwrap(value)
    convert: Callable[[Any], Any] = _CONVERSIONS[node.conversion]
    spec = "" if node.format_spec is None else unwrap(visit(frame, node.format_spec))
    return constexpr(format(convert(constant), spec))
